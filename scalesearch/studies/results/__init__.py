"""Results of a study: tables, figures, the report page.

This package may import all packages of ``study`` except ``engine``.
"""
