"""What makes inlined figures small: letters kept once for the whole page, coordinates to a hundredth of a point."""

import re

from scalesearch.report.page.html import Html

FONT = "DejaVuSans"  # how matplotlib's names of letters begin; a letter's outline is the same in every figure
LETTER = re.compile(rf'<path id="({FONT}[^"]*)"([^>]*/>)')
USED = re.compile(rf'<use (?:xlink:)?href="#({FONT}[^"]*)"(?: transform="translate\(([-\d.]+)[ ,]+([-\d.]+)\)")?/>')
MARK = re.compile(r'(<g id="[^"]*" class="point"[^>]*><title>[^<]*</title>)\s*(?:<defs>(?:(?!</?g\b).)*?</defs>\s*)?'
                  r'<g clip-path="[^"]*">\s*<use [^>]*?x="([^"]*)" y="([^"]*)"[^>]*fill-opacity: 0[^>]*/>\s*'
                  r"</g>\s*</g>",
                  re.DOTALL)
LONG = re.compile(r"-?\d+\.\d{3,}(?:e-?\d+)?")
PLACES = re.compile(r'(?<= )(?:d|x|y|points|x1|x2|y1|y2)="[^"]*"|translate\([^)]*\)')


def slim(figure: str) -> str:
    """An SVG with shorter numbers, without names of groups or space between elements, its unseen marks circles."""
    figure = PLACES.sub(lambda found: " ".join(LONG.sub(_short, found.group(0)).split()), figure)
    figure = MARK.sub(r'\1<circle cx="\2" cy="\3" r="6"/></g>', figure)
    figure = re.sub(r'<g id="[^"]*">', "<g>", figure)  # a mark's has a class as well
    return re.sub(r">\s+<", "><", re.sub(r"<!--.*?-->", "", figure, flags=re.DOTALL))


def _short(found: re.Match[str]) -> str:
    said = f"{float(found.group(0)):.2f}".rstrip("0").rstrip(".")
    return "0" if said == "-0" else said


def sharing_letters(body: str) -> Html:
    """``body`` with every letter of its figures kept once, at its beginning, under a short name."""
    outlines: dict[str, str] = {}
    for found in LETTER.finditer(body):
        if ' d="' in found.group(2):  # a space has no outline
            outlines.setdefault(found.group(1), found.group(2))
    if not outlines:
        return Html(body)
    names = {name: f"L{at}" for at, name in enumerate(outlines)}

    def use(found: re.Match[str]) -> str:
        name, x, y = found.groups()
        if name not in names:
            return ""
        places = "".join(f' {axis}="{value}"' for axis, value in (("x", x), ("y", y)) if value not in (None, "0"))
        return f'<use href="#{names[name]}"{places}/>'

    body = USED.sub(use, re.sub(r"<defs>\s*</defs>", "", LETTER.sub("", body)))
    letters = "".join(f'<path id="{names[name]}"{outline}' for name, outline in outlines.items())
    return Html(f'<svg class="letters" aria-hidden="true" width="0" height="0"><defs>{letters}</defs></svg>{body}')
