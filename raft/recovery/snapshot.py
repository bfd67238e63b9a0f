"""Catching up a member that is behind the log: what is fetched, in which pieces, in which order. Pure.

A snapshot is the newest durable checkpoint of another member and the parts of its blocks that hold live messages up to
it. They are fetched by calls, a small piece at a time, so writers are not held up and a broken link costs one piece:
the fetch goes on where it was when the same checkpoint is offered by the same member again. The pieces gather in a
`Staging` of the log (store/log/snapshot.py), which verifies every frame and replaces the log, whole or not at all, when
everything is there (rule 34).

    request (msgpack): group, incarnation, index of the checkpoint, "open" | "state" | "chunk" | "spoilt", block,
        offset, size
    answer: open: msgpack [manifest, members, bytes of the state, crc32c of the state]; else the bytes asked for

A block that is damaged where it comes from cannot be installed anywhere. So who finds a part spoilt says so; the sender
then looks at its block as it sends it, and stops when the damage is its own: it is repaired, and another member leads.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

import attrs

from jetraft.raft.engine.messages import SnapshotOffer
from jetraft.raft.mesh.errors import RemoteProtocolError
from jetraft.raft.mesh.messages import Message, member_of, number, octets, protocol
from jetraft.raft.recovery import bounds
from jetraft.store.frames._frame import crc32c
from jetraft.store.frames.format import BLOCK_HEAD_BYTES
from jetraft.store.log.snapshot import verify_part
from jetraft.store.model.files.manifest import Manifest, Part
from jetraft.store.model.ids import GroupId, NodeId
from jetraft.store.port import Checkpoint, GroupLog, Staging

PIECE_BYTES_MAX: Final = 1 << 20  # whatever is asked for, an answer is not larger
STATE_BYTES_MAX: Final = 1 << 30  # bounds the memory that a peer can make this node take
MANIFEST_BYTES_MAX: Final = 64 << 20  # some ten thousand blocks are known; a part has less than 64 bytes
OPEN, STATE, CHUNK = "open", "state", "chunk"
SPOILT = "spoilt"  # asks for no bytes: `block` did not hold what the manifest says


@protocol("a request for a piece of a snapshot", bytes_max=1024)
@attrs.frozen(kw_only=True, slots=True)
class SnapshotRequest(Message):
    """One piece that is wanted; `block` counts for chunks only, as the sender numbers them."""

    group_id: GroupId = attrs.field(metadata=bounds.group_name())
    incarnation: int = attrs.field(metadata=bounds.incarnation())
    index: int = attrs.field(metadata=number())
    what: str = attrs.field(metadata=member_of({what: what for what in (OPEN, STATE, CHUNK, SPOILT)}))
    block: int = attrs.field(default=0, metadata=number())
    offset: int = attrs.field(default=0, metadata=number())
    size: int = attrs.field(default=0, metadata=number())


@protocol("the opening of a snapshot", bytes_max=MANIFEST_BYTES_MAX + bounds.CONFIGURATION_BYTES_MAX + 1024)
@attrs.frozen(kw_only=True, slots=True)
class SnapshotOpening(Message):
    """The sender's first word: what it has, and how long the state is."""

    manifest: bytes = attrs.field(metadata=octets(MANIFEST_BYTES_MAX))
    members: bytes = attrs.field(metadata=bounds.configuration())
    state_bytes: int = attrs.field(metadata=number(high=STATE_BYTES_MAX))
    state_crc: int = attrs.field(metadata=number(high=(1 << 32) - 1))


class SnapshotGoneError(Exception):
    """The snapshot asked for is not there any more; the leader will offer the one that is."""


def answer(log: GroupLog, manifest: Manifest, checkpoint: Checkpoint, request: SnapshotRequest) -> bytes:
    """The piece asked for, of the snapshot that the caller holds for this transfer. Raises SnapshotGoneError."""
    if request.index != checkpoint.index:
        raise SnapshotGoneError(f"the checkpoint is at {checkpoint.index}, not {request.index}")
    if request.what == OPEN:
        return SnapshotOpening(
            manifest=manifest.to_bytes(),
            members=checkpoint.members,
            state_bytes=len(checkpoint.state),
            state_crc=crc32c(checkpoint.state),
        ).pack()
    size = min(request.size, PIECE_BYTES_MAX)
    if request.what == STATE:
        return checkpoint.state[request.offset : request.offset + size]
    part = _part_of(manifest, request)
    size = max(0, min(size, part.body_bytes - request.offset))
    try:
        return log.read_chunk(part.block, request.offset, size)
    except KeyError as error:
        raise SnapshotGoneError(f"block {part.block} was trimmed") from error


def _part_of(manifest: Manifest, request: SnapshotRequest) -> Part:
    """The block asked for. Numbers of blocks change with each opening: an old one may name another, unwritten block."""
    part = next((part for part in manifest.parts if part.block == request.block), None)
    if part is None:
        raise SnapshotGoneError(f"block {request.block} is not in the snapshot")
    return part


def check_part(log: GroupLog, manifest: Manifest, request: SnapshotRequest) -> Callable[[], object]:
    """Read a block as it is sent, now; what is returned verifies it, in any thread. Both raise StoreCorrupt.

    Raises SnapshotGoneError when the block is in the snapshot no more.
    """
    part = _part_of(manifest, request)
    try:
        data = bytes(BLOCK_HEAD_BYTES) + log.read_chunk(part.block, 0, part.body_bytes)
    except KeyError as error:
        raise SnapshotGoneError(f"block {part.block} was trimmed") from error
    what = f"{request.group_id}, as it is sent"
    return partial(verify_part, data, part, offset=BLOCK_HEAD_BYTES, incarnation=request.incarnation, what=what)


class SnapshotFetch:
    """One snapshot on its way here: `next_request` and `received` take turns until there is no next request."""

    def __init__(  # noqa: PLR0913  (what is fetched, from whom, for which log)
        self,
        *,
        group_id: GroupId,
        incarnation: int,
        sender: NodeId,
        offer: SnapshotOffer,
        members: bytes,
        log: GroupLog,
    ) -> None:
        """`members` are those that the log is to begin with here; mostly those of the offer."""
        self.group_id = group_id
        self.incarnation = incarnation
        self.sender = sender
        self.offer = offer
        self._members = members
        self.staging: Staging | None = None
        self.log = log
        self._opening: bytes | None = None  # the manifest and what else the sender said first
        self._manifest: Manifest | None = None
        self._state = bytearray()
        self._state_bytes = self._state_crc = 0
        self._is_resuming = False
        self.asked: SnapshotRequest | None = None

    def continues(self, sender: NodeId, offer: SnapshotOffer) -> bool:
        """Whether a new offer is of the same snapshot, so that what was fetched is still good."""
        mine = self.offer
        return (self.sender, mine.index, mine.index_term) == (sender, offer.index, offer.index_term)

    def resume(self) -> None:
        """Go on after an interruption: if the sender was restarted since, its numbers may be those of other blocks."""
        self._is_resuming = True

    def next_request(self) -> SnapshotRequest | None:
        """The next piece to ask for; None when everything is here."""
        if self._manifest is None or self._is_resuming:
            self.asked = self._request(OPEN)
        elif self.staging is None:
            self.asked = self._request(STATE, offset=len(self._state), size=PIECE_BYTES_MAX)
        else:
            missing = self.staging.missing()
            if missing is None:
                return None
            block, offset, size = missing
            self.asked = self._request(CHUNK, block=block, offset=offset, size=size)
        return self.asked

    def _request(self, what: str, *, block: int = 0, offset: int = 0, size: int = 0) -> SnapshotRequest:
        return SnapshotRequest(
            group_id=self.group_id,
            incarnation=self.incarnation,
            index=self.offer.index,
            what=what,
            block=block,
            offset=offset,
            size=size,
        )

    def spoilt(self, block: int) -> SnapshotRequest:
        """The message that a block did not arrive as the manifest promises."""
        return self._request(SPOILT, block=block)

    def received(self, data: bytes) -> None:
        """Take the answer to the last request. Raises RemoteProtocolError, StoreError, OSError."""
        asked = self.asked
        assert asked is not None, "an answer follows a request"
        if asked.what == OPEN:
            self._take_opening(data)
        elif asked.what == STATE:
            self._take_state(data)
        else:
            self._take_chunk(asked, data)

    def _take_opening(self, data: bytes) -> None:
        self._is_resuming = False
        if data == self._opening:
            return  # what is here is of this very snapshot
        self.abandon()
        self.staging = self._manifest = self._opening = None
        self._state.clear()
        try:
            opening = SnapshotOpening.unpack(data)
            manifest = Manifest.from_bytes(opening.manifest)
        except ValueError as error:
            raise RemoteProtocolError(f"a snapshot that does not parse: {error}") from error
        found = (manifest.index, manifest.term, opening.members)
        if found != (self.offer.index, self.offer.index_term, self.offer.members):
            raise RemoteProtocolError("a snapshot that is not the one that was offered")
        self._manifest, self._opening = manifest, data
        self._state_bytes, self._state_crc = opening.state_bytes, opening.state_crc
        self._stage_when_complete()

    def _take_state(self, data: bytes) -> None:
        if not data or len(self._state) + len(data) > self._state_bytes:
            raise RemoteProtocolError("a state that does not have its length")
        self._state += data
        self._stage_when_complete()

    def _stage_when_complete(self) -> None:
        if len(self._state) < self._state_bytes:
            return
        if crc32c(self._state) != self._state_crc:
            raise RemoteProtocolError("a state with a wrong checksum")
        offer, manifest = self.offer, self._manifest
        assert manifest is not None
        checkpoint = Checkpoint(
            index=offer.index, term=offer.index_term, members=self._members, state=bytes(self._state)
        )
        self.staging = self.log.begin_install(manifest, checkpoint)

    def _take_chunk(self, asked: SnapshotRequest, data: bytes) -> None:
        assert self.staging is not None
        try:
            self.staging.put_chunk(asked.block, asked.offset, data)
        except ValueError as error:
            raise RemoteProtocolError(str(error)) from error

    def abandon(self) -> None:
        """Forget what was fetched."""
        if self.staging is not None:
            self.staging.abandon()
