"""Byte layouts and file names on disk, except those of the ledger. The loops over them are in `_frame.pyx`.

All integers are little endian. A node's directory:

    ledger.0 ledger.1                  what must exist for each group, two copies: store/ledger/file.py
    node.json                          the owner, for people and older servers, and the number of the ledger
    groups/<id>.<incarnation>/         a group's log

A group's directory:

    log-<generation>/                  the ledger has the current generation; a snapshot install makes the next one
        <first index>-<serial>.blk     blocks: a head, then frames and marks
        <first index>-<serial>.parity  of a compacted block: store/blocks/parity.py
        <index>.ckpt                   checkpoints of the state machine, a small file each
        faulty                         damaged entries that are not repaired yet, a small file
        erase                          frames that are being overwritten, a small file
    key.0 key.1                        the group's data key, wrapped, two copies; absent without encryption
    quarantine/<block>.<from>-<to>     copies of damaged bytes
    *.tmp                              unfinished; removed on open

Format 2 had term and vote in `hard-state.0` and `.1`, and the dropped ranges in `trimmed`: store/ledger/legacy.py.

Frame (one Raft entry; the same bytes in every log and on every link), 48 bytes and a body:

    u32 length   whole frame           u32 crc      crc32c of bytes 8..length
    u8  version  1 or 2                u8  kind     Kind
    u16 flags    FRAME_*               u32 count    records in a MESSAGES body
    u64 incarnation                    u64 log_index
    u64 term                           u64 first_stream_seq

Record (one message in a MESSAGES body), 20 bytes and three parts:

    u32 length  whole record           u32 hdr_len
    u16 subject_len                    u16 flags    RECORD_*
    i64 ts_ns   since the Unix epoch   subject, hdr (a NATS/1.0 block), payload

The stream sequence of the i-th record is first_stream_seq + i.

A MESSAGES frame of version 2 ends with count + 1 sums, u32 each: crc32c of bytes 8..48, and then, for each record, of
bytes 8 to the end of the record. They are computed in the same pass as the checksum of the frame, and each covers all
bytes before it. A member that is alone in its group writes them, because it cannot fetch a damaged frame from another
member (decision 51). With FRAME_HOLED, records without a subject replace damaged ones (store/frames/_holes.pyx).

Mark (local to one block, never replicated), 32 bytes, written after the fsync of the bytes before it:

    u32 0xFFFFFFFF                     u32 crc      crc32c of bytes 8..32
    u64 incarnation                    u32 offset   place of the mark in the block
    u32 tag                            u64 next_index

Skip, 32 bytes, in a compacted block: the entries before next_index were dropped on purpose, and the logical offset of
the next frame is given, because the frames before it were longer:

    u32 0xFFFFFFFE                     u32 crc      crc32c of bytes 8..32, starting from the place of the skip
    u64 incarnation                    u32 offset   logical, of the next frame
    u32 tag                            u64 next_index

The tag of marks and skips is a random number in the head of their block, which clients never see: a payload can contain
a copy of a frame or of a mark, but not of a mark with the tag. It is 0 in blocks of servers that had no tags, and in
blocks that came from another member.

Small file and block head: an envelope with the owner and a checksum, see `pack_envelope`. Sources: one module knows the
format (raft-engine); an identity at the head of every file (TigerBeetle).
"""

import enum
import struct
from typing import Final

import attrs

from jetraft.store.frames._frame import crc32c
from jetraft.store.model.ids import GroupId, NodeId
from jetraft.store.port import StoreCorrupt, StoreMisplaced, StoreNewer

# Of envelopes, and so of a store. 2: the checksum covers version and kind too. 3: block tags and the ledger.
FORMAT_VERSION: Final = 3
FRAME_VERSION: Final = 2  # the newest that is understood
FRAME_HEADER_BYTES: Final = 48
RECORD_HEADER_BYTES: Final = 20
FRAME_CRC_AT: Final = 4
FRAME_CRC_FROM: Final = 8  # start of the bytes that the checksum covers, up to the end of the frame
MARK_BYTES: Final = 32
FRAME_BYTES_MAX: Final = 1 << 28  # 256 MiB: a batch of the largest messages that nats-server admits (64 MiB) fits

FRAME_KIND_AT: Final = 9
FRAME_FLAGS_AT: Final = 10
FRAME_COUNT_AT: Final = 12
FRAME_COUNT_AND_FIRST_SEQ: Final = struct.Struct("<I24xQ")  # from FRAME_COUNT_AT on
FRAME_INCARNATION_AT: Final = 16
FRAME_SEALED: Final = 1  # the body is encrypted: store/frames/cipher.py; on disk only
FRAME_THIN: Final = 2  # without the content of removed messages: store/frames/_thin.pyx; in compacted blocks only
FRAME_PACKED: Final = 4  # compressed: store/frames/compression.py; in compacted blocks only
FRAME_HOLED: Final = 8  # some of its records are lost: store/frames/_holes.pyx
FRAME_THIN_LENGTH_AT: Final = FRAME_HEADER_BYTES  # of the expanded length, in a thin or packed frame

MARK_OFFSET_AT: Final = 16  # in a skip too, like the following
MARK_TAG_AT: Final = 20
MARK_TAG_BYTES: Final = 4
MARK_NEXT_INDEX_AT: Final = 24

RECORD_START: Final = struct.Struct("<IIHH")  # length, hdr_len, subject_len, flags
RECORD_HAS_MSG_ID: Final = 1  # headers contain Nats-Msg-Id: apply adds it to the table of duplicates
RECORD_HAS_ROLLUP: Final = 2  # headers contain Nats-Rollup: apply removes the messages that this one replaces
RECORD_HAS_TTL: Final = 4  # headers contain Nats-TTL: apply records when the message expires
RECORD_HAS_SCHEDULE: Final = 8  # it is a schedule, or says when one is due next: apply keeps the table of schedules
RECORD_HAS_ACK: Final = 32  # headers contain Jetraft-Acked: apply acknowledges the delivery that it names
RECORD_IS_SOURCED: Final = 16  # headers contain Nats-Stream-Source: apply notes how far that source has been read


class Kind(enum.IntEnum):
    """The kind of an entry; Raft handles the first two, the state machine the others."""

    NOOP = 1
    RAFT_CONFIG = 2  # msgpack
    MESSAGES = 3  # records
    STREAM_OP = 4  # msgpack
    CONSUMER_OP = 5  # msgpack
    META = 6  # msgpack


class Stop(enum.IntEnum):
    """Why `_frame.scan` stopped."""

    END = 0  # the end of the data, or the last index requested
    ZERO = 1  # never written
    DAMAGED = 2  # an impossible length, or a wrong checksum
    ORDER = 3  # a sound frame that does not continue the log
    VERSION = 4  # a sound frame of a newer format


@attrs.frozen(kw_only=True, slots=True)
class Identity:
    """The owner of a file, at the head of every file, so that a file of another node or group is refused."""

    node_id: NodeId
    group_id: GroupId
    incarnation: int


class FileKind(enum.IntEnum):
    """The kind of file that an envelope contains."""

    BLOCK_HEAD = 1
    HARD_STATE = 2
    CHECKPOINT = 3
    TRIMMED = 4
    DAMAGED_ENTRIES = 5
    ERASE = 6
    KEY = 7
    SEALED_CHECKPOINT = 8
    PARITY = 9


_MAGIC: Final = b"jetraft\n"
# magic, version, file kind, crc of everything else, node id, group id, incarnation, body length
_ENVELOPE: Final = struct.Struct("<8sHHI16s32sQQ")
_CRC_AT: Final = 12
_CRC_END: Final = 16
_UNSUMMED_HEAD_VERSION: Final = 1  # its checksum covers only the bytes after it
ENVELOPE_BYTES: Final = _ENVELOPE.size


def pack_envelope(kind: FileKind, identity: Identity, *body: bytes) -> bytes:
    """The parts of a body, preceded by its owner, length and checksum."""
    node_id = identity.node_id.encode()
    group_id = identity.group_id.encode()
    assert len(node_id) <= 16  # noqa: PLR2004  (the widths of _ENVELOPE)
    assert len(group_id) <= 32  # noqa: PLR2004
    fields = (node_id, group_id, identity.incarnation, sum(map(len, body)))
    crc = _checksum(memoryview(_ENVELOPE.pack(_MAGIC, FORMAT_VERSION, kind, 0, *fields)), FORMAT_VERSION)
    for part in body:
        crc = crc32c(part, crc)
    return b"".join((_ENVELOPE.pack(_MAGIC, FORMAT_VERSION, kind, crc, *fields), *body))


def _checksum(data: memoryview, version: int) -> int:
    """The crc of an envelope and its body as its version defines it, so a damaged version field is detected too."""
    seed = 0 if version == _UNSUMMED_HEAD_VERSION else crc32c(data[:_CRC_AT])
    return crc32c(data[_CRC_END:], seed)


def unpack_envelope(data: bytes | memoryview, kind: FileKind, identity: Identity, *, what: str) -> bytes:
    """The body of an envelope; bytes after it are ignored. `what` names the file in errors.

    Raises StoreCorrupt when it is damaged, StoreNewer, or StoreMisplaced for another owner or kind.
    """
    found_kind, owner, body = _open_envelope(data, what)
    if found_kind != kind:
        raise StoreMisplaced(f"{what}: file kind {found_kind}, expected {kind}")
    if owner != identity:
        raise StoreMisplaced(f"{what}: belongs to {owner}, not to {identity}")
    return body


def peek_kind(data: bytes | memoryview) -> int:
    """The file kind of an envelope, without verifying it; 0 when the data is too short."""
    return int(_ENVELOPE.unpack_from(data)[2]) if len(data) >= ENVELOPE_BYTES else 0


def peek_identity(data: bytes | memoryview, *, what: str) -> Identity:
    """The owner of a file, for readers that do not know it. Raises StoreCorrupt, StoreMisplaced or StoreNewer."""
    return _open_envelope(data, what)[1]


def _open_envelope(data: bytes | memoryview, what: str) -> tuple[int, Identity, bytes]:
    """(kind, owner, body) of a sound envelope."""
    data = memoryview(data)
    if len(data) < ENVELOPE_BYTES:
        raise StoreCorrupt(f"{what}: expected a head of {ENVELOPE_BYTES} bytes, found {len(data)}")
    magic, version, kind, crc, node_id, group_id, incarnation, length = _ENVELOPE.unpack_from(data)
    if magic != _MAGIC:
        raise StoreCorrupt(f"{what}: does not start as a jetraft file")
    if length > len(data) - ENVELOPE_BYTES or _checksum(data[: ENVELOPE_BYTES + length], version) != crc:
        raise StoreCorrupt(f"{what}: wrong checksum or length")
    if version > FORMAT_VERSION:
        raise StoreNewer(f"{what}: format version {version} is newer than {FORMAT_VERSION}")
    if version == 0:
        raise StoreCorrupt(f"{what}: format version 0 does not exist")
    owner = Identity(
        node_id=NodeId(node_id.rstrip(b"\0").decode()),
        group_id=GroupId(group_id.rstrip(b"\0").decode()),
        incarnation=incarnation,
    )
    return kind, owner, bytes(data[ENVELOPE_BYTES : ENVELOPE_BYTES + length])


@attrs.frozen(kw_only=True, slots=True)
class BlockHead:
    """The head of a block. It voids entries at or above `first_index` in blocks of lower serial: they were cut."""

    serial: int
    first_index: int
    boundary_term: int  # term of the entry before first_index, 0 when first_index is 1
    reserved_bytes: int = attrs.field(default=0, eq=False)  # length of the file while it is the newest; 0: unspecified
    tag: int = attrs.field(default=0, eq=False, repr=False)  # of its marks and skips; 0: none


_BLOCK_HEAD: Final = struct.Struct("<QQQ")
_RESERVED: Final = struct.Struct("<Q")  # follows in the heads of preallocated blocks
BLOCK_HEAD_BYTES: Final = 128
_TAG: Final = struct.Struct("<Q")  # follows in the heads of blocks with a tag
assert ENVELOPE_BYTES + _BLOCK_HEAD.size + _RESERVED.size + _TAG.size <= BLOCK_HEAD_BYTES


def pack_block_head(head: BlockHead, identity: Identity, *, reserved_bytes: int = 0) -> bytes:
    """BLOCK_HEAD_BYTES bytes. `reserved_bytes`: the length to which the file is preallocated, 0 if it is not."""
    body = _BLOCK_HEAD.pack(head.serial, head.first_index, head.boundary_term)
    if reserved_bytes or head.tag:
        body += _RESERVED.pack(reserved_bytes)
    if head.tag:
        body += _TAG.pack(head.tag)
    return pack_envelope(FileKind.BLOCK_HEAD, identity, body).ljust(BLOCK_HEAD_BYTES, b"\0")


def unpack_block_head(data: bytes | memoryview, identity: Identity, *, what: str) -> BlockHead:
    """The head at the start of `data`. Raises StoreCorrupt, StoreMisplaced or StoreNewer."""
    body = unpack_envelope(data, FileKind.BLOCK_HEAD, identity, what=what)
    reserved_at, tag_at = _BLOCK_HEAD.size, _BLOCK_HEAD.size + _RESERVED.size
    if len(body) not in {reserved_at, tag_at, tag_at + _TAG.size}:
        raise StoreCorrupt(f"{what}: a block head cannot have {len(body)} bytes")
    serial, first_index, boundary_term = _BLOCK_HEAD.unpack_from(body)
    reserved = _RESERVED.unpack_from(body, reserved_at)[0] if len(body) > reserved_at else 0
    tag = _TAG.unpack_from(body, tag_at)[0] if len(body) > tag_at else 0
    return BlockHead(
        serial=serial, first_index=first_index, boundary_term=boundary_term, reserved_bytes=reserved, tag=tag
    )


INDEX_RANGE: Final = struct.Struct("<QQ")  # first and last index, in the file of damaged entries
ERASE_ITEM: Final = struct.Struct("<HIQ")  # bytes of the block's name and of the frame, offset; name and frame follow

KEY_NAMES: Final = ("key.0", "key.1")
DAMAGED_ENTRIES_NAME: Final = "faulty"
ERASE_NAME: Final = "erase"
QUARANTINE_NAME: Final = "quarantine"  # in a group's directory: copies of damaged bytes
UNRECORDED_NAME: Final = "unrecorded"  # likewise: a log that the ledger did not know
BLOCK_SUFFIX: Final = ".blk"
PARITY_SUFFIX: Final = ".parity"
CHECKPOINT_SUFFIX: Final = ".ckpt"
GENERATION_PREFIX: Final = "log-"


def block_name(head: BlockHead) -> str:
    """The file name of a block."""
    return f"{head.first_index:020d}-{head.serial:08d}{BLOCK_SUFFIX}"


def parity_name(name: str) -> str:
    """The file name of the parity of a block (store/blocks/parity.py)."""
    return name.removesuffix(BLOCK_SUFFIX) + PARITY_SUFFIX


def checkpoint_name(index: int) -> str:
    """The file name of the checkpoint at a log index."""
    return f"{index:020d}{CHECKPOINT_SUFFIX}"


def generation_name(generation: int) -> str:
    """The name of the directory of blocks and checkpoints."""
    return f"{GENERATION_PREFIX}{generation:08d}"


def serial_of(name: str) -> int:
    """The serial in the file name of a block; 0 for other names."""
    serial = name.removesuffix(BLOCK_SUFFIX).rpartition("-")[2]
    return int(serial) if name.endswith(BLOCK_SUFFIX) and serial.isdigit() else 0
