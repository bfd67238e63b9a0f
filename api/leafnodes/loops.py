"""Finds loops of leaf node connections: each server subscribes to a subject of its own, and must not hear of it."""

import secrets
from typing import Final

import attrs

ID_BYTES: Final = 16


@attrs.define(eq=False)
class LoopSubjects:
    """The subjects of this server, by account."""

    _known: dict[str, bytes] = attrs.field(factory=dict)

    def subject(self, account: str) -> bytes:
        """That of an account, which no other server can guess."""
        known = self._known.get(account)
        if known is None:
            known = self._known[account] = b"$LDS." + secrets.token_urlsafe(ID_BYTES).replace("-", "0").encode()
        return known

    def is_own(self, account: str, subject: bytes) -> bool:
        """Whether a subject that another server subscribes to is this server's: there is a loop."""
        return subject == self._known.get(account)
