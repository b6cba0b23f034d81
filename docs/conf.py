"""Sphinx configuration of the site: ``make docs`` builds it offline, and takes warnings for errors."""

import re
from pathlib import Path

project = "scalesearch"
author = copyright = "The scalesearch team"
version = release = re.search(
    r'"(.+)"',
    (Path(__file__).parents[1]
     / "scalesearch/__init__.py").read_text("utf-8") .partition("__version__")[2])[1]
extensions = ["myst_parser", "sphinx.ext.mathjax"]
myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 4  # as GitHub makes them of headings
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"scalesearch {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_extra_path = ["example-report.html"]
