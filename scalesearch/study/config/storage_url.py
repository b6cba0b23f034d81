"""URLs of storages, read and shown without any database's library."""

import re

from scalesearch.errors import UserError

EMBEDDED = "embedded"  # the word for the storage in the study's own folder, which is what a study has unless told
FORM = re.compile(r"[A-Za-z][\w.]*(\+\w+)?://\S*")
SECRETS = (re.compile(r"(\w://[^\s:/@]*):[^\s/]*@"), re.compile(r"([?&]password=)[^\s&]*"))


def storage_url(text: str) -> str | None:
    """The URL that ``storage: text`` names, or None for the embedded storage.

    Raises:
        UserError: it is not a URL.
    """
    if text == EMBEDDED:
        return None
    if not FORM.fullmatch(text):
        raise UserError(f"`{hide(text)}` is not a storage: write `embedded`, or a URL such as "
                        "postgresql://user@host/database or sqlite:///file.db", code="bad-storage-url")
    if text.startswith("postgres://"):
        raise UserError("the scheme `postgres` is not known; write postgresql://…", code="bad-storage-url")
    return text


def hide(text: str) -> str:
    """``text`` with ``***`` in place of every password in a URL in it."""
    return SECRETS[1].sub(r"\1***", SECRETS[0].sub(r"\1:***@", text))
