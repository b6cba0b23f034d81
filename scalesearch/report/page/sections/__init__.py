"""The sections of a page, a module each: a function of the facts computes, then draws. Imports the parts above."""
