"""Checkpoints: the state of the state machine after a log index, in a file beside the blocks.

A checkpoint is written under a temporary name, fsynced, renamed, and the directory fsynced. The previous one is kept,
and the log is trimmed at most to the older of the two, so a damaged newest one only makes the replay longer.
"""

import struct
from typing import Final

from jetraft.store.frames.cipher import GroupCipher
from jetraft.store.frames.format import FileKind, Identity, pack_envelope, peek_kind, unpack_envelope
from jetraft.store.port import Checkpoint, StoreCorrupt

CHECKPOINTS_KEPT: Final = 2

_BODY = struct.Struct("<QQQ")  # index, term, bytes of members; members and state follow


def pack(checkpoint: Checkpoint, identity: Identity, cipher: GroupCipher | None = None) -> bytes:
    """The bytes of a checkpoint file; with a cipher, members and state are encrypted."""
    head = _BODY.pack(checkpoint.index, checkpoint.term, len(checkpoint.members))
    if cipher is not None:
        sealed = cipher.seal_file(checkpoint.members + checkpoint.state)
        return pack_envelope(FileKind.SEALED_CHECKPOINT, identity, head, sealed)
    return pack_envelope(FileKind.CHECKPOINT, identity, head, checkpoint.members, checkpoint.state)


def unpack(
    data: bytes, identity: Identity, *, what: str, cipher: GroupCipher | None = None, index: int | None = None
) -> Checkpoint:
    """The checkpoint in a file. `index` is that of the file name, if given; `what` names the file in errors.

    Raises StoreCorrupt, also if the checkpoint has another index, or StoreRefused. An encrypted one that is read
    without a cipher has no members and no state.
    """
    is_sealed = peek_kind(data) == FileKind.SEALED_CHECKPOINT
    kind = FileKind.SEALED_CHECKPOINT if is_sealed else FileKind.CHECKPOINT
    body = unpack_envelope(data, kind, identity, what=what)
    if len(body) < _BODY.size:
        raise StoreCorrupt(f"{what}: a checkpoint has at least {_BODY.size} bytes, found {len(body)}")
    found_index, term, members_bytes = _BODY.unpack_from(body)
    if index is not None and found_index != index:
        raise StoreCorrupt(f"{what}: holds the checkpoint at {found_index}")
    content = body[_BODY.size :]
    if is_sealed:
        if cipher is None:
            return Checkpoint(index=found_index, term=term, members=b"", state=b"")
        content = cipher.open_file(content, what=what)
    if members_bytes > len(content):
        raise StoreCorrupt(f"{what}: {members_bytes} bytes of members, but the file has {len(content)}")
    return Checkpoint(index=found_index, term=term, members=content[:members_bytes], state=content[members_bytes:])
