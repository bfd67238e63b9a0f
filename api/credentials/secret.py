"""A password or token of the configuration: compared, never shown. Pure."""

import hmac
import re
from typing import Final

BCRYPT: Final = re.compile(r"\$2[abxy]?\$\d\d\$")  # server/auth.go, isBcrypt


class Secret:
    """A text that its `repr` does not contain. A bcrypt hash stands for the password that was hashed."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    @property
    def hashed(self) -> bytes | None:
        """The bcrypt hash, or None for a secret that stands in the configuration as it is."""
        return self._text.encode() if BCRYPT.match(self._text) else None

    @property
    def offered_by_default(self) -> str:
        """The credentials of a connection without a user, as `no_auth_user`: the configured text, as in nats-server."""
        return self._text

    def equals(self, offered: str) -> bool:
        """Compare a plain secret in a time that does not tell how much of it was right."""
        return hmac.compare_digest(offered.encode(errors="surrogatepass"), self._text.encode(errors="surrogatepass"))

    def __bool__(self) -> bool:
        return bool(self._text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self.equals(other._text)

    def __hash__(self) -> int:
        return hash(self._text)

    def __repr__(self) -> str:
        return "Secret([REDACTED])"
