"""Stores the data key of each group, wrapped (encrypted) with the configured key (decision 22).

Each group has a random data key, on disk in two copies (`key.0`, `key.1`) with checksums. Without it the log is
permanently unreadable, so both copies are durable before the first frame is encrypted. When the configured key changes
and the old one is given as `prev_key`, each group's data key is wrapped again as the group is opened; no block is
rewritten. A wrong key is detected before anything is changed.

The configured key must be random (`openssl rand -hex 32`): no password hashing is applied. Source: envelope encryption;
nats-server's stream keys. Keys are wrapped by AEAD with a random nonce.
"""

import hmac
import os
import struct
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import attrs

from jetraft.store.disk.copies import FAILURES, verdict
from jetraft.store.disk.files import TMP_SUFFIX, read_file, replace_file
from jetraft.store.disk.io import Disk, sync_directory
from jetraft.store.frames.cipher import KEY_BYTES, NONCE_BYTES, TAG_BYTES, CipherKind, GroupCipher, aead, derived
from jetraft.store.frames.format import KEY_NAMES, FileKind, Identity, pack_envelope, unpack_envelope
from jetraft.store.port import StoreCorrupt, StoreNewer, StoreRefused

_BODY: Final = struct.Struct(f"<B16s{NONCE_BYTES}s{KEY_BYTES + TAG_BYTES}s")  # cipher, salt, nonce, wrapped key
_SALT_BYTES: Final = 16
_CODES: Final = {CipherKind.CHACHA: 1, CipherKind.AES: 2}


@attrs.frozen(kw_only=True, slots=True)
class Secrets:
    """The configured key, the previous one, and the cipher of new groups."""

    key: bytes = attrs.field(repr=False)
    cipher: CipherKind = CipherKind.CHACHA
    prev_key: bytes | None = attrs.field(default=None, repr=False)


@attrs.frozen(kw_only=True, slots=True)
class Wrapped:
    """A wrapped data key, the content of a key file."""

    kind: CipherKind
    salt: bytes
    nonce: bytes
    key: bytes


def unlock(disk: Disk, group: Path, identity: Identity, secrets: Secrets | None) -> GroupCipher | None:
    """The cipher of a group; None without encryption. With `secrets`, a group without a data key gets one.

    The key files are durable on return. The unencrypted frames of such a group remain readable; new ones are encrypted.
    Raises StoreRefused, before anything is changed, when no key in `secrets` unwraps the data key; StoreCorrupt when no
    copy is usable and one is damaged.
    """
    names = disk.list_directory(group)
    present = [name for name in KEY_NAMES if name in names]
    if not present:
        return None if secrets is None else _make(disk, group, identity, secrets)
    if secrets is None:
        raise StoreRefused(f"{group}: is encrypted, and the jetstream block of the configuration has no key")
    copies = sound_copies(present, lambda name: read_file(disk, group / name), identity, what=str(group))
    opened = open_copies(copies.values(), identity, secrets)
    if opened is None:
        raise StoreRefused(f"{group}: is encrypted with another key than the configured one")
    wrapped, data_key, secret = opened
    is_new = secret == secrets.key
    body = pack(wrapped, identity) if is_new else wrap(wrapped.kind, data_key, identity, secrets.key)
    for name in KEY_NAMES:
        if not is_new or copies.get(name) != wrapped:
            replace_file(disk, group / name, body)
    return GroupCipher(wrapped.kind, data_key, identity)


def has_key(disk: Disk, group: Path) -> bool:
    """Whether a group has a file of its data key."""
    names = disk.list_directory(group)
    return any(name in names for name in KEY_NAMES)


def open_copies(copies: Iterable[Wrapped], identity: Identity, secrets: Secrets) -> tuple[Wrapped, bytes, bytes] | None:
    """(copy, data key, the secret that unwraps it), with the current secret if possible; None if no secret does."""
    found = list(copies)
    for secret in (secrets.key, secrets.prev_key):
        for wrapped in found:
            data_key = None if secret is None else unwrap(wrapped, identity, secret)
            if secret is not None and data_key is not None:
                return wrapped, data_key, secret
    return None


def sound_copies(
    names: Sequence[str], read: Callable[[str], bytes], identity: Identity, *, what: str
) -> dict[str, Wrapped]:
    """The sound copies by name. Raises the `verdict` of store/disk/copies.py when there is none."""
    copies: dict[str, Wrapped] = {}
    failures: list[Exception] = []
    for name in names:
        try:
            copies[name] = unpack(read(name), identity, what=f"{what}/{name}")
        except FAILURES as error:
            failures.append(error)
    if failures and not copies:
        raise verdict(failures)
    return copies


def wrap(kind: CipherKind, data_key: bytes, identity: Identity, secret: bytes) -> bytes:
    """The bytes of a key file with the data key wrapped."""
    salt, nonce = os.urandom(_SALT_BYTES), os.urandom(NONCE_BYTES)
    wrapped = aead(kind, _wrapping_key(secret, salt)).encrypt(nonce, data_key, _owner(kind, identity))
    return pack(Wrapped(kind=kind, salt=salt, nonce=nonce, key=wrapped), identity)


def unwrap(wrapped: Wrapped, identity: Identity, secret: bytes) -> bytes | None:
    """The data key; None when it was wrapped with another secret."""
    from cryptography.exceptions import InvalidTag  # noqa: PLC0415  most servers have no key

    cipher = aead(wrapped.kind, _wrapping_key(secret, wrapped.salt))
    try:
        return cipher.decrypt(wrapped.nonce, wrapped.key, _owner(wrapped.kind, identity))
    except InvalidTag:
        return None


def seal_value(content: bytes, name: str, secrets: Secrets) -> bytes:
    """Encrypt a small value of the node with the configured key; it can be decrypted under this name only."""
    salt, nonce = os.urandom(_SALT_BYTES), os.urandom(NONCE_BYTES)
    sealed = aead(secrets.cipher, _wrapping_key(secrets.key, salt)).encrypt(nonce, content, name.encode())
    return bytes([_CODES[secrets.cipher]]) + salt + nonce + sealed


def open_value(sealed: bytes, name: str, secrets: Secrets) -> tuple[bytes, bool] | None:
    """(content, whether it was sealed with the current key and cipher); None when neither key decrypts it."""
    from cryptography.exceptions import InvalidTag  # noqa: PLC0415  most servers have no key

    kind = next((kind for kind, code in _CODES.items() if sealed[:1] == bytes([code])), None)
    salt, nonce = sealed[1 : 1 + _SALT_BYTES], sealed[1 + _SALT_BYTES : 1 + _SALT_BYTES + NONCE_BYTES]
    body = sealed[1 + _SALT_BYTES + NONCE_BYTES :]
    if kind is None or len(body) < TAG_BYTES:
        return None
    for secret in (secrets.key, secrets.prev_key):
        if secret is not None:
            with suppress(InvalidTag):
                content = aead(kind, _wrapping_key(secret, salt)).decrypt(nonce, body, name.encode())
                return content, (secret, kind) == (secrets.key, secrets.cipher)
    return None


def pack(wrapped: Wrapped, identity: Identity) -> bytes:
    """The bytes of a key file."""
    body = _BODY.pack(_CODES[wrapped.kind], wrapped.salt, wrapped.nonce, wrapped.key)
    return pack_envelope(FileKind.KEY, identity, body)


def unpack(data: bytes, identity: Identity, *, what: str) -> Wrapped:
    """The wrapped key in a key file. Raises StoreCorrupt or StoreRefused."""
    body = unpack_envelope(data, FileKind.KEY, identity, what=what)
    if len(body) != _BODY.size:
        raise StoreCorrupt(f"{what}: expected a key of {_BODY.size} bytes, found {len(body)}")
    code, salt, nonce, key = _BODY.unpack(body)
    kind = next((kind for kind, known in _CODES.items() if known == code), None)
    if kind is None:
        raise StoreNewer(f"{what}: unknown cipher {code}")
    return Wrapped(kind=kind, salt=salt, nonce=nonce, key=key)


def _make(disk: Disk, group: Path, identity: Identity, secrets: Secrets) -> GroupCipher:
    data_key = os.urandom(KEY_BYTES)
    cipher = GroupCipher(secrets.cipher, data_key, identity)
    body = wrap(secrets.cipher, data_key, identity, secrets.key)
    for directory in disk.make_directory(group):
        sync_directory(disk, directory)
    for name in KEY_NAMES:
        replace_file(disk, group / name, body)
    return cipher


def _wrapping_key(secret: bytes, salt: bytes) -> bytes:
    """HKDF-Extract with the salt, then HKDF-Expand."""
    return derived(hmac.digest(salt, secret, "sha256"), b"wrap")


def _owner(kind: CipherKind, identity: Identity) -> bytes:
    return f"{kind} {identity.node_id} {identity.group_id} {identity.incarnation}".encode()


def is_unfinished(name: str) -> bool:
    """Whether a name in a group's directory is a key file that a crash left unfinished."""
    return name.endswith(TMP_SUFFIX) and name.removesuffix(TMP_SUFFIX) in KEY_NAMES
