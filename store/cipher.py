"""Encryption at rest: what a frame, and a whole small file, looks like on disk when the store has a key.

A sealed frame is a frame: its header says its true length, carries `FRAME_SEALED`, and its checksum covers the bytes as
they lie on disk. So everything that walks blocks (recovery, survey, scrub, mending, inspection) needs no key, and only
readers of entries open it. In a sealed frame the body is

    ciphertext of the body, 16 bytes of tag, 8 bytes of salt, 8 bytes 0

that is SEAL_BYTES more than in the open one. Key: one for each block, derived from the group's data key and the block's
serial. Nonce: the frame's place in its block and the salt, which is drawn for each write, so that a frame that is
overwritten (store/erasure.py) or rewritten (store/faulty.py) never uses a nonce twice. The header is authenticated
with the body: a frame that was moved, renumbered or taken from another block does not open.

On links, in memory and in the cache frames are open. Source: RFC 5116, RFC 5869; libraries: `cryptography`.
"""

import enum
import hmac
import os
from typing import Any, Final, Protocol

from jetraft.store._frame import crc32c
from jetraft.store.format import (
    FRAME_CRC_AT,
    FRAME_CRC_FROM,
    FRAME_FLAGS_AT,
    FRAME_HEADER_BYTES,
    FRAME_SEALED,
    Identity,
)
from jetraft.store.port import StoreCorrupt, StoreRefused

KEY_BYTES: Final = 32  # AES-256 and ChaCha20
NONCE_BYTES: Final = 12
TAG_BYTES: Final = 16
SALT_BYTES: Final = 8
SEAL_BYTES: Final = 32  # of a mark too: an opened block keeps its places, with a mark where the seal was
_PADDING: Final = bytes(SEAL_BYTES - TAG_BYTES - SALT_BYTES)
_BLOCK_KEYS_MAX: Final = 64  # kept at hand; deriving one takes 5 us


class CipherKind(enum.StrEnum):
    """nats-server's words for the `cipher` of its configuration."""

    CHACHA = "chachapoly"
    AES = "aes"


class Aead(Protocol):
    """What `cryptography` gives for both ciphers."""

    def encrypt(self, nonce: bytes, data: Any, associated_data: bytes | None) -> bytes:
        """Ciphertext and tag."""
        ...

    def decrypt(self, nonce: bytes, data: Any, associated_data: bytes | None) -> bytes:
        """Raises InvalidTag."""
        ...


def aead(kind: CipherKind, key: bytes) -> Aead:
    """The cipher with a key. Raises StoreRefused when the library is not installed."""
    try:
        from cryptography.hazmat.primitives.ciphers import aead as library  # noqa: PLC0415  most servers have no key
    except ImportError as error:
        raise StoreRefused(f"encryption needs the package cryptography: {error}") from error
    found: Aead = library.AESGCM(key) if kind is CipherKind.AES else library.ChaCha20Poly1305(key)
    return found


def derived(key: bytes, *info: bytes) -> bytes:
    """A key for one purpose: HKDF-Expand (RFC 5869) of one block; `key` must be as good as random."""
    return hmac.digest(key, b"\0".join((b"jetraft", *info)) + b"\x01", "sha256")


class GroupCipher:
    """Seals and opens what one group keeps on disk."""

    def __init__(self, kind: CipherKind, data_key: bytes, identity: Identity) -> None:
        assert len(data_key) == KEY_BYTES
        self.kind = kind
        self._data_key = data_key
        self._identity = identity
        self._blocks: dict[int, Aead] = {}
        self._files = aead(kind, derived(data_key, b"files"))

    def fresh(self) -> "GroupCipher":
        """Another one with the same key, for another thread."""
        return GroupCipher(self.kind, self._data_key, self._identity)

    def seal_frame(self, serial: int, offset: int, frame: bytes) -> bytes:
        """The frame as the block with this serial keeps it at `offset`: SEAL_BYTES longer."""
        header = bytearray(frame[:FRAME_HEADER_BYTES])
        header[:FRAME_CRC_AT] = (len(frame) + SEAL_BYTES).to_bytes(4, "little")
        header[FRAME_CRC_AT:FRAME_CRC_FROM] = bytes(4)
        header[FRAME_FLAGS_AT] |= FRAME_SEALED
        salt = os.urandom(SALT_BYTES)
        body = memoryview(frame)[FRAME_HEADER_BYTES:]
        sealed = self._block(serial).encrypt(offset.to_bytes(4, "little") + salt, body, bytes(header))
        crc = crc32c(memoryview(header)[FRAME_CRC_FROM:])
        for part in (sealed, salt, _PADDING):
            crc = crc32c(part, crc)
        header[FRAME_CRC_AT:FRAME_CRC_FROM] = crc.to_bytes(4, "little")
        return b"".join((header, sealed, salt, _PADDING))

    def open_frame(self, serial: int, offset: int, frame: bytes, *, what: str) -> bytes:
        """The open frame of a sealed one with a right checksum. Raises StoreCorrupt when it was not sealed for here."""
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415  most servers have no key

        header = bytearray(frame[:FRAME_HEADER_BYTES])
        header[FRAME_CRC_AT:FRAME_CRC_FROM] = bytes(4)
        end = len(frame) - SEAL_BYTES + TAG_BYTES
        nonce = offset.to_bytes(4, "little") + frame[end : end + SALT_BYTES]
        try:
            body = self._block(serial).decrypt(nonce, memoryview(frame)[FRAME_HEADER_BYTES:end], bytes(header))
        except InvalidTag:
            raise StoreCorrupt(f"{what}: the frame at byte {offset} does not open with the key of its block") from None
        header[:FRAME_CRC_AT] = (len(frame) - SEAL_BYTES).to_bytes(4, "little")
        header[FRAME_FLAGS_AT] &= ~FRAME_SEALED & 0xFF
        crc = crc32c(body, crc32c(memoryview(header)[FRAME_CRC_FROM:]))
        header[FRAME_CRC_AT:FRAME_CRC_FROM] = crc.to_bytes(4, "little")
        return b"".join((header, body))

    def seal_file(self, data: bytes) -> bytes:
        """Content of a small file as it lies on disk."""
        nonce = os.urandom(NONCE_BYTES)
        return nonce + self._files.encrypt(nonce, data, self._owner())

    def open_file(self, data: bytes, *, what: str) -> bytes:
        """Raises StoreCorrupt when it was not sealed by this group."""
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415  most servers have no key

        try:
            return self._files.decrypt(data[:NONCE_BYTES], data[NONCE_BYTES:], self._owner())
        except (InvalidTag, ValueError):
            raise StoreCorrupt(f"{what}: does not open with the key of its group") from None

    def _owner(self) -> bytes:
        identity = self._identity
        return f"{identity.node_id} {identity.group_id} {identity.incarnation}".encode()

    def _block(self, serial: int) -> Aead:
        found = self._blocks.get(serial)
        if found is None:
            if len(self._blocks) >= _BLOCK_KEYS_MAX:
                self._blocks.clear()
            key = derived(self._data_key, b"block", serial.to_bytes(8, "little"))
            found = self._blocks[serial] = aead(self.kind, key)
        return found
