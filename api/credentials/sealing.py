"""Seals what is for one reader: X25519 with XSalsa20-Poly1305, as NaCl's boxes, behind a version and a nonce.

The form is that of github.com/nats-io/nkeys (xkeys.go). PyNaCl does the work; it is loaded where a key is configured.
"""

from typing import TYPE_CHECKING, Final

import attrs

from jetraft.api.credentials.nkeys import PREFIX_CURVE, key_text, public_key

if TYPE_CHECKING:
    from nacl.public import PrivateKey, PublicKey

VERSION: Final = b"xkv1"


class SealError(ValueError):
    """The message is not sealed by the one that was expected, for this server."""


def is_curve_key(text: str) -> bool:
    """Whether a text is the public key of a reader."""
    return public_key(text, PREFIX_CURVE) is not None


@attrs.frozen
class SealingKeys:
    """The keys of this server for sealing, made at each start; `reader` is the public key of the other end."""

    reader: str
    _private: "PrivateKey" = attrs.field(repr=False)

    @classmethod
    def new(cls, reader: str) -> "SealingKeys":
        """Keys of this server for one reader."""
        from nacl.public import PrivateKey  # noqa: PLC0415

        return cls(reader, PrivateKey.generate())

    @property
    def public(self) -> str:
        """The public key as text."""
        return key_text(PREFIX_CURVE, bytes(self._private.public_key))

    def seal(self, data: bytes) -> bytes:
        """A text that only the reader can open."""
        from nacl.public import Box  # noqa: PLC0415

        return VERSION + bytes(Box(self._private, self._reader()).encrypt(data))

    def open(self, sealed: bytes) -> bytes:
        """The text that the reader has sealed for this server. Raises SealError."""
        from nacl.exceptions import CryptoError  # noqa: PLC0415
        from nacl.public import Box  # noqa: PLC0415

        if not sealed.startswith(VERSION):
            raise SealError("not sealed")
        try:
            return bytes(Box(self._private, self._reader()).decrypt(sealed[len(VERSION) :]))
        except (CryptoError, ValueError):
            raise SealError("not sealed for this server by the service") from None

    def _reader(self) -> "PublicKey":
        from nacl.public import PublicKey  # noqa: PLC0415

        raw = public_key(self.reader, PREFIX_CURVE)
        assert raw is not None, "checked with the configuration"
        return PublicKey(raw)
