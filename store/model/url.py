"""URLs in errors and logs. Pure."""

import re
from typing import Final

# All up to the last @: a password that was not quoted may have slashes and @ of its own.
_USER_INFO: Final = re.compile(r"^([a-z-]*://)?.*@", re.DOTALL)


def redacted(url: str) -> str:
    """The URL with `xxxxx` for user and password, whatever these are, and whether the rest is a URL or not."""
    return _USER_INFO.sub(lambda match: f"{match[1] or ''}xxxxx@", url)
