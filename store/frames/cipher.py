"""Encryption at rest of frames and small files (decision 22).

A sealed (encrypted) frame is still a frame: its header has its length on disk and `FRAME_SEALED`, and its checksum
covers the encrypted bytes. So everything that walks blocks (recovery, damage scan, scrub, repair, inspection) works
without a key; only readers of entries decrypt. The body of a sealed frame is

    ciphertext of the body, 16 bytes of tag, 8 bytes of salt, 8 bytes 0

which is SEAL_BYTES longer than the open body. Each block has a key, derived from the group's data key and the block's
serial. The nonce is the frame's place in the block and a random salt for each write, so that a frame that is
overwritten (store/log/erasure.py) or rewritten (store/log/block_repair.py) never reuses a nonce. The header is
authenticated with the body: a frame that was moved, renumbered or copied from another block does not decrypt.

Frames are open (not encrypted) on links, in memory and in the cache. Source: RFC 5116, RFC 5869. Library:
`cryptography`.
"""

import enum
import hmac
import os
from typing import Any, Final, Protocol

from jetraft.store.frames._frame import crc32c
from jetraft.store.frames.format import (
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
SEAL_BYTES: Final = 32  # as long as a mark, which replaces the seal of an opened frame so that places do not change
_PADDING: Final = bytes(SEAL_BYTES - TAG_BYTES - SALT_BYTES)
_BLOCK_KEYS_MAX: Final = 64  # cached; deriving one takes 5 us


class CipherKind(enum.StrEnum):
    """The values of `cipher` in nats-server's configuration."""

    CHACHA = "chachapoly"
    AES = "aes"


class Aead(Protocol):
    """The interface of both ciphers in `cryptography`."""

    def encrypt(self, nonce: bytes, data: Any, associated_data: bytes | None) -> bytes:
        """Return ciphertext and tag."""
        ...

    def decrypt(self, nonce: bytes, data: Any, associated_data: bytes | None) -> bytes:
        """Return the plaintext. Raises InvalidTag."""
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
    """A key for one purpose: HKDF-Expand (RFC 5869) of one block; `key` must be uniformly random."""
    return hmac.digest(key, b"\0".join((b"jetraft", *info)) + b"\x01", "sha256")


class GroupCipher:
    """Encrypts and decrypts the frames and small files of one group."""

    def __init__(self, kind: CipherKind, data_key: bytes, identity: Identity) -> None:
        assert len(data_key) == KEY_BYTES
        self.kind = kind
        self._data_key = data_key
        self._identity = identity
        self._blocks: dict[int, Aead] = {}
        self._files = aead(kind, derived(data_key, b"files"))

    def fresh(self) -> "GroupCipher":
        """A new cipher with the same key, for another thread."""
        return GroupCipher(self.kind, self._data_key, self._identity)

    def seal_frame(self, serial: int, offset: int, frame: bytes) -> bytes:
        """The frame as it is stored at `offset` of the block with this serial, SEAL_BYTES longer."""
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
        """Decrypt a frame whose checksum is right. Raises StoreCorrupt if it was sealed for another place or key."""
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415  most servers have no key

        header = bytearray(frame[:FRAME_HEADER_BYTES])
        header[FRAME_CRC_AT:FRAME_CRC_FROM] = bytes(4)
        end = len(frame) - SEAL_BYTES + TAG_BYTES
        nonce = offset.to_bytes(4, "little") + frame[end : end + SALT_BYTES]
        try:
            body = self._block(serial).decrypt(nonce, memoryview(frame)[FRAME_HEADER_BYTES:end], bytes(header))
        except InvalidTag:
            raise StoreCorrupt(f"{what}: the frame at byte {offset} does not decrypt with its block's key") from None
        header[:FRAME_CRC_AT] = (len(frame) - SEAL_BYTES).to_bytes(4, "little")
        header[FRAME_FLAGS_AT] &= ~FRAME_SEALED & 0xFF
        crc = crc32c(body, crc32c(memoryview(header)[FRAME_CRC_FROM:]))
        header[FRAME_CRC_AT:FRAME_CRC_FROM] = crc.to_bytes(4, "little")
        return b"".join((header, body))

    def seal_file(self, data: bytes) -> bytes:
        """Encrypt the content of a small file."""
        nonce = os.urandom(NONCE_BYTES)
        return nonce + self._files.encrypt(nonce, data, self._owner())

    def open_file(self, data: bytes, *, what: str) -> bytes:
        """Decrypt the content of a small file. Raises StoreCorrupt if this group did not encrypt it."""
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415  most servers have no key

        try:
            return self._files.decrypt(data[:NONCE_BYTES], data[NONCE_BYTES:], self._owner())
        except (InvalidTag, ValueError):
            raise StoreCorrupt(f"{what}: does not decrypt with the group's key") from None

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
