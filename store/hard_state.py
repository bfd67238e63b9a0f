"""Term and vote on disk: two copies, each checked, each fsynced before the other is touched.

A torn write can hurt only the copy being written; the other still holds the previous state, which is right, because the
new one was not durable yet. Damage to one copy later does no harm either. With both gone the member cannot know for
whom it voted: it must not vote again (Protocol-Aware Recovery, FAST'18).
"""

import struct
from collections.abc import Sequence

import attrs

from jetraft.store.format import FileKind, Identity, pack_envelope, unpack_envelope
from jetraft.store.model.ids import NodeId
from jetraft.store.port import HardState, HardStateLost, StoreCorrupt

_BODY = struct.Struct("<QQ16s")


@attrs.frozen(kw_only=True, slots=True)
class Copy:
    """What one file holds. The copy with the higher counter is the newer."""

    counter: int
    hard_state: HardState


def pack(copy: Copy, identity: Identity) -> bytes:
    """The bytes of one file."""
    vote = (copy.hard_state.vote or "").encode()
    return pack_envelope(FileKind.HARD_STATE, identity, _BODY.pack(copy.counter, copy.hard_state.term, vote))


def unpack(data: bytes, identity: Identity, *, what: str) -> Copy:
    """Raises StoreCorrupt or StoreRefused."""
    body = unpack_envelope(data, FileKind.HARD_STATE, identity, what=what)
    if len(body) != _BODY.size:
        raise StoreCorrupt(f"{what}: a hard state of {len(body)} bytes")
    counter, term, vote = _BODY.unpack(body)
    name = vote.rstrip(b"\0").decode()
    return Copy(counter=counter, hard_state=HardState(term=term, vote=NodeId(name) if name else None))


def newest(files: Sequence[tuple[str, bytes]], identity: Identity) -> Copy:
    """The newest sound copy of those found. Raises HardStateLost when none is, StoreRefused when one is foreign."""
    found: list[Copy] = []
    damage: list[str] = []
    for what, data in files:
        try:
            found.append(unpack(data, identity, what=what))
        except StoreCorrupt as error:
            damage.append(str(error))
    if not found:
        raise HardStateLost("; ".join(damage) or "no copy of term and vote beside the log")
    return max(found, key=lambda copy: copy.counter)
