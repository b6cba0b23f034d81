"""Errors that a user can act on: printed without a traceback, exit status 2."""


class UserError(Exception):
    """Something the user gave is wrong; the message says what, where, and what would be right."""
