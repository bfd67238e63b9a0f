"""Whose data key it is: the file beside a group's log that holds it, wrapped with the key of the configuration.

Each group has a random data key of its own. It is on disk in two copies (`key.0`, `key.1`), each checked and each
wrapped with a key derived from the configured one; a log without it is unreadable for ever, so both are durable before
the first sealed byte. A new configured key, with the old one given as the previous, means wrapping the data keys again,
group by group as they are opened: no block is rewritten. A key that does not fit is found before anything is changed.

The configured key must be random (`openssl rand -hex 32`): it is not stretched. Source of the idea: envelope
encryption; nats-server's stream keys. The wrapping is AEAD with a random nonce.
"""

import hmac
import os
import struct
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import attrs

from jetraft.store.cipher import KEY_BYTES, NONCE_BYTES, TAG_BYTES, CipherKind, GroupCipher, aead, derived
from jetraft.store.copies import FAILURES, verdict
from jetraft.store.faulty import replace_file
from jetraft.store.format import KEY_NAMES, TMP_SUFFIX, FileKind, Identity, pack_envelope, unpack_envelope
from jetraft.store.io import Disk, sync_directory
from jetraft.store.port import StoreCorrupt, StoreNewer, StoreRefused
from jetraft.store.recovery import read_file

_BODY: Final = struct.Struct(f"<B16s{NONCE_BYTES}s{KEY_BYTES + TAG_BYTES}s")  # cipher, salt, nonce, wrapped key
_SALT_BYTES: Final = 16
_CODES: Final = {CipherKind.CHACHA: 1, CipherKind.AES: 2}


@attrs.frozen(kw_only=True, slots=True)
class Secrets:
    """What the configuration says: the cipher of new groups, the key, and the one before it."""

    key: bytes = attrs.field(repr=False)
    cipher: CipherKind = CipherKind.CHACHA
    prev_key: bytes | None = attrs.field(default=None, repr=False)


@attrs.frozen(kw_only=True, slots=True)
class Wrapped:
    """A data key as a key file holds it."""

    kind: CipherKind
    salt: bytes
    nonce: bytes
    key: bytes


def unlock(disk: Disk, group: Path, identity: Identity, secrets: Secrets | None) -> GroupCipher | None:
    """The cipher of a group; made, durably, when it has none and there is a key. None without a key.

    Raises StoreRefused, before anything is changed, when the group's key opens with none of `secrets`; StoreCorrupt
    when no copy can be used and one is damaged. A group that was written without encryption is read on; what is written
    from now on is sealed.
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


def open_copies(copies: Iterable[Wrapped], identity: Identity, secrets: Secrets) -> tuple[Wrapped, bytes, bytes] | None:
    """(copy, data key, the secret that opened it): with the new key if possible; None when no key opens any copy."""
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
    """What the sound copies hold, by name. When none of them is: StoreCorrupt, or what else store/copies.py says."""
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
    """The bytes of a key file."""
    salt, nonce = os.urandom(_SALT_BYTES), os.urandom(NONCE_BYTES)
    wrapped = aead(kind, _wrapping_key(secret, salt)).encrypt(nonce, data_key, _owner(kind, identity))
    return pack(Wrapped(kind=kind, salt=salt, nonce=nonce, key=wrapped), identity)


def unwrap(wrapped: Wrapped, identity: Identity, secret: bytes) -> bytes | None:
    """The data key; None when `secret` is not what it was wrapped with."""
    from cryptography.exceptions import InvalidTag  # noqa: PLC0415  most servers have no key

    cipher = aead(wrapped.kind, _wrapping_key(secret, wrapped.salt))
    try:
        return cipher.decrypt(wrapped.nonce, wrapped.key, _owner(wrapped.kind, identity))
    except InvalidTag:
        return None


def seal_value(content: bytes, name: str, secrets: Secrets) -> bytes:
    """A small value of the node, sealed with the configured key; it opens under this name only."""
    salt, nonce = os.urandom(_SALT_BYTES), os.urandom(NONCE_BYTES)
    sealed = aead(secrets.cipher, _wrapping_key(secrets.key, salt)).encrypt(nonce, content, name.encode())
    return bytes([_CODES[secrets.cipher]]) + salt + nonce + sealed


def open_value(sealed: bytes, name: str, secrets: Secrets) -> tuple[bytes, bool] | None:
    """(what `seal_value` sealed, whether with the present key and cipher); None when neither key opens it."""
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
    """Raises StoreCorrupt or StoreRefused."""
    body = unpack_envelope(data, FileKind.KEY, identity, what=what)
    if len(body) != _BODY.size:
        raise StoreCorrupt(f"{what}: a key file of {len(body)} bytes")
    code, salt, nonce, key = _BODY.unpack(body)
    kind = next((kind for kind, known in _CODES.items() if known == code), None)
    if kind is None:
        raise StoreNewer(f"{what}: cipher {code} is not known")
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
    """HKDF-Extract with the salt, then Expand."""
    return derived(hmac.digest(salt, secret, "sha256"), b"wrap")


def _owner(kind: CipherKind, identity: Identity) -> bytes:
    return f"{kind} {identity.node_id} {identity.group_id} {identity.incarnation}".encode()


def is_unfinished(name: str) -> bool:
    """Whether a name in a group's directory is a key file that was being written."""
    return name.endswith(TMP_SUFFIX) and name.removesuffix(TMP_SUFFIX) in KEY_NAMES
