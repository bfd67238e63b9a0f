"""Secrets that this server signs with towards others: seeds of users, alone or in a file of credentials with a token.

A seed is base32 of two prefixes, 32 bytes and a CRC-16, as in github.com/nats-io/nkeys (strkey.go); a file of
credentials has the token and the seed between lines of dashes. No secret is in a text of an error or in a `repr`.
"""

import base64
import binascii
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

from jetraft.api.credentials.nkeys import CRC_BYTES, KEY_BYTES, PREFIX_USER, key_text

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

PREFIX_SEED: Final = 18 << 3  # S
SEED_CHARS: Final = 58  # base32 of 36 bytes
FILE_BYTES_MAX: Final = 1 << 20
# A block: its text stands between two lines of dashes.
BLOCK: Final = re.compile(r"-{3,}[^\n]*-{3,}\r?\n\s*(\S+)\s*\n\s*-{3,}[^\n]*-{3,}")


class SeedError(ValueError):
    """A text is not the seed of a user, or a file has no credentials; the message shows no part of it."""


@attrs.frozen
class UserKey:
    """The keys of a user."""

    _private: "Ed25519PrivateKey" = attrs.field(repr=False)

    @classmethod
    def read(cls, seed: str) -> "UserKey":
        """The keys of a seed. Raises SeedError."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415

        wrong = SeedError("not a valid seed")
        if len(seed) != SEED_CHARS:
            raise wrong
        try:
            raw = base64.b32decode(seed + "=" * (-len(seed) % 8))
        except (binascii.Error, ValueError):
            raise wrong from None
        body, crc = raw[:-CRC_BYTES], int.from_bytes(raw[-CRC_BYTES:], "little")
        kind = (body[0] & 7) << 5 | body[1] >> 3
        if len(body) != 2 + KEY_BYTES or body[0] & 0xF8 != PREFIX_SEED or binascii.crc_hqx(body, 0) != crc:
            raise wrong
        if kind != PREFIX_USER:
            raise SeedError("not the seed of a user")
        return cls(Ed25519PrivateKey.from_private_bytes(body[2:]))

    @property
    def public(self) -> str:
        """The public key as text."""
        return key_text(PREFIX_USER, self._private.public_key().public_bytes_raw())

    def sign(self, nonce: bytes) -> str:
        """The signature of a nonce, as CONNECT has it."""
        return base64.urlsafe_b64encode(self._private.sign(nonce)).rstrip(b"=").decode()


@attrs.frozen(kw_only=True)
class UserCredentials:
    """A token with the keys of its user."""

    jwt: str = attrs.field(repr=False)
    key: UserKey = attrs.field(repr=False)

    @classmethod
    def read(cls, path: str) -> "UserCredentials":
        """The seed in a file. Raises SeedError, or OSError."""
        with Path(path).open("rb") as file:
            data = file.read(FILE_BYTES_MAX)
        found = BLOCK.findall(data.decode("utf-8", "replace"))
        if len(found) < 2:  # noqa: PLR2004  the token and the seed
            raise SeedError("no token and seed between lines of dashes")
        return cls(jwt=found[0], key=UserKey.read(found[1]))
