"""A study as one HTML file that needs nothing else: a module a section, each of which computes, then draws."""
