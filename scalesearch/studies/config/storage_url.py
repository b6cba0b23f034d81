"""URLs of storages, and their text without secrets; unknown parts are hidden."""

import re

from scalesearch.errors import UserError

EMBEDDED = "embedded"  # the word for the storage in the study's own folder
STORAGE_URL_PATTERN = re.compile(r"[A-Za-z][\w.]*(\+\w+)?://\S*")
# In a text, a URL continues to the last @ of its line, since a password may hold anything, and then
# to a space or to a quote that closes something.
URL_IN_TEXT_PATTERN = re.compile(
    r"([A-Za-z][\w.+]*://)((?:[^\n]*@)?(?:(?!['\"`](?:[\s,.;:)\]}]|\Z))\S)*)")
SECRET_SETTING_PATTERN = re.compile(
    r"(?i)\b(\w*(?:pass(?:w\w*|phrase)?|pwd|secret)\s*=\s*)('[^'\n]*'|\"[^\"\n]*\"|[^\s;&'\"`]+)")
# what users, hosts and databases are of; no `=` of further settings
HARMLESS_TEXT_PATTERN = re.compile(r"[\w.\-/\[\]% ~+#]*")
# keys of a query whose values are shown
HARMLESS_QUERY_KEYS = ("application_name", "charset", "client_encoding", "connect_timeout",
                       "driver", "isolation_level", "mode", "sslmode", "ssl_mode", "timeout", "uri")
SECRET_QUERY_KEYS = ("odbc_connect", "passwd", "password", "pwd", "sslpassword")
MASK = "***"


def parse_storage_url(text: str) -> str | None:
    """The URL that ``storage: text`` names, or None for the embedded storage.

    Raises:
        UserError: it is not a URL.
    """
    if text == EMBEDDED:
        return None
    if not STORAGE_URL_PATTERN.fullmatch(text):
        raise UserError("not a storage: write `embedded`, or a URL such as "
                        "postgresql://user@host/database or sqlite:///file.db",
                        code="bad-storage-url")
    # a database's library would take what follows the first for the host
    if text.partition("?")[0].count("@") > 1:
        raise UserError("a password that holds @ is written with %40 in its place",
                        code="bad-storage-url")
    if text.startswith("postgres://"):
        raise UserError("the scheme `postgres` is not known; write postgresql://…",
                        code="bad-storage-url")
    return text


def mask_passwords(text: str) -> str:
    """``text`` with ``***`` in place of everything that may be a password."""
    return SECRET_SETTING_PATTERN.sub(
        rf"\1{MASK}", URL_IN_TEXT_PATTERN.sub(lambda url: url[1] + _mask_url(url[1], url[2]), text))


def _mask_url(scheme: str, remainder: str) -> str:
    """Return the part of a URL after ``scheme://`` without secrets."""
    from sqlalchemy.engine import make_url  # Optuna needs it for every storage that has a URL
    from sqlalchemy.exc import SQLAlchemyError

    ending = remainder[len(remainder.rstrip(".,:;!)]}…")) :]  # of the sentence around it
    credentials, separator, place = ("", "", remainder) if remainder[:1] == "/" else (
        remainder.removesuffix(ending).rpartition("@"))
    user, colon, _ = credentials.partition(":")
    location, mark, query = place.partition("?")
    try:
        url = make_url(f"{scheme}{place}")
    except (ValueError, SQLAlchemyError):
        return MASK
    parts = (user, url.host or "", url.database or "")
    if url.password or url.username or not all(map(HARMLESS_TEXT_PATTERN.fullmatch, parts)):
        return MASK + ending
    pairs = [pair.partition("=") for pair in query.split("&") if query]
    shown = []
    for key, _, value in pairs:
        is_harmless = key in HARMLESS_QUERY_KEYS and HARMLESS_TEXT_PATTERN.fullmatch(value)
        is_known = key.lower() in (*HARMLESS_QUERY_KEYS, *SECRET_QUERY_KEYS)
        shown.append(f"{key}={value if is_harmless else MASK}" if is_known else MASK)
    return f"{user}{colon and f':{MASK}'}{separator}{location}{mark}{'&'.join(shown)}{ending}"
