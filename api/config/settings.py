"""Settings of flags and of a file before they are options, and the error of those that make none."""

from typing import Any
from urllib.parse import unquote, urlsplit

from jetraft.store.model.url import redacted

Settings = dict[str, Any]
PORT_MAX = 65535


class OptionsError(ValueError):
    """The options contradict each other; the text is one line, in nats-server's words where it has some."""


def split_url(text: str, *, default_port: int) -> tuple[str, int, str]:
    """Return host, port and secret of `nats://user:pass@host:port`, `host:port` or `:port`. Raises OptionsError."""
    try:
        parts = urlsplit(text if "//" in text else f"nats://{text}")
    except ValueError:  # its text quotes the password
        raise OptionsError(f"error parsing URL {redacted(text)!r}") from None
    try:
        port = parts.port
    except ValueError:
        # urlsplit refuses -1, which nats-server reads as "any free port".
        host, _, number = parts.netloc.rpartition("@")[2].rpartition(":")
        if number != "-1":
            raise OptionsError(f"error parsing URL {redacted(text)!r}: invalid port") from None
        return host.strip("[]"), -1, ""
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    secret = f"{user}:{password}" if password else user
    return parts.hostname or "", default_port if port is None else port, secret
