"""Checkpoints: the state machine after a log index, in a file of its own beside the blocks.

A checkpoint is written under another name, fsynced, renamed, and the directory fsynced; the one before it is kept, and
the log is never trimmed beyond the older of the two, so a damaged newest one costs a longer replay and nothing else.
"""

import struct
from typing import Final

from jetraft.store.format import FileKind, Identity, pack_envelope, unpack_envelope
from jetraft.store.port import Checkpoint, StoreCorrupt

CHECKPOINTS_KEPT: Final = 2

_BODY = struct.Struct("<QQQ")  # index, term, bytes of members; members and state follow


def pack(checkpoint: Checkpoint, identity: Identity) -> bytes:
    """The bytes of a checkpoint file."""
    head = _BODY.pack(checkpoint.index, checkpoint.term, len(checkpoint.members))
    return pack_envelope(FileKind.CHECKPOINT, identity, b"".join((head, checkpoint.members, checkpoint.state)))


def unpack(data: bytes, identity: Identity, *, what: str) -> Checkpoint:
    """Raises StoreCorrupt or StoreRefused."""
    body = unpack_envelope(data, FileKind.CHECKPOINT, identity, what=what)
    if len(body) < _BODY.size:
        raise StoreCorrupt(f"{what}: a checkpoint of {len(body)} bytes")
    index, term, members_bytes = _BODY.unpack_from(body)
    state_at = _BODY.size + members_bytes
    if state_at > len(body):
        raise StoreCorrupt(f"{what}: the members reach beyond the file")
    return Checkpoint(index=index, term=term, members=body[_BODY.size : state_at], state=body[state_at:])
