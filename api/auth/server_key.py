"""A server's own keys, made at each start: its id is the public one, and requests to a callout service are signed."""

from typing import TYPE_CHECKING

import attrs

from jetraft.api.credentials.nkeys import PREFIX_SERVER, PREFIX_USER, key_text

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


@attrs.frozen
class ServerKey:
    """See the module."""

    _private: "Ed25519PrivateKey" = attrs.field(repr=False)

    @classmethod
    def new(cls) -> "ServerKey":
        """Keys that no other server has."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415

        return cls(Ed25519PrivateKey.generate())

    @property
    def server_id(self) -> str:
        """The public key as text."""
        return key_text(PREFIX_SERVER, self._private.public_key().public_bytes_raw())

    def sign(self, data: bytes) -> bytes:
        """Sign bytes."""
        return self._private.sign(data)


def new_user_key() -> str:
    """The public key of a user that exists for one request; its secret is not kept."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415

    return key_text(PREFIX_USER, Ed25519PrivateKey.generate().public_key().public_bytes_raw())
