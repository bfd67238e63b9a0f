"""Every byte layout and file name on disk. Nothing else knows them; the loops over them are in `_frame.pyx`.

All integers are little endian. A node's directory:

    ledger.0 ledger.1                  what must be there, of all groups, twice: store/ledger_file.py
    node.json                          whose directory it is, for people and for older servers; never believed
    groups/<id>.<incarnation>/         a group's log

A group's directory:

    log-<generation>/                  the ledger says which counts; a snapshot install makes the next one
        <first index>-<serial>.blk     blocks: a head, then frames and marks
        <index>.ckpt                   checkpoints of the state machine, a small file each
        faulty                         which entries are damaged and not yet mended, a small file
        erase                          frames that are being overwritten, a small file
    key.0 key.1                        the group's data key, wrapped, two copies; absent without encryption
    quarantine/<block>.<from>-<to>     copies of damaged bytes
    *.tmp                              unfinished; removed on open

Format 2 had term and vote in `hard-state.0` and `.1`, and the ranges that were dropped in `trimmed`: store/legacy.py.

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

A MESSAGES frame of version 2 ends with count + 1 sums, u32 each: crc32c of bytes 8..48, and then, record by record, of
bytes 8 to the end of that record. So they cost no second pass, and each is bound to all that comes before it. A member
that is alone in its group writes them: it has nobody to get a damaged frame back from. With FRAME_HOLED, records
without a subject stand for damaged ones (store/_holes.pyx).

Mark (local to one block, never replicated), 32 bytes, written after the fsync of what stands before it:

    u32 0xFFFFFFFF                     u32 crc      crc32c of bytes 8..32
    u64 incarnation                    u32 offset   its own place in the block
    u32 tag                            u64 next_index

Skip, 32 bytes, in a block that was compacted: the entries before next_index were dropped on purpose, and the next frame
goes by an offset that leaves room for what the frames before it were:

    u32 0xFFFFFFFE                     u32 crc      crc32c of bytes 8..32, going on from its place
    u64 incarnation                    u32 offset   of the next frame
    u32 tag                            u64 next_index

The tag of both is a random number that the head of their block has too, and that no client gets to see: a payload can
hold the likeness of a frame or of a mark, but not of a mark with the tag. 0: none, in blocks of servers that had no
tags, and in blocks that came from another member.

Small file and block head: an envelope that names its owner and checks itself, see `pack_envelope`.
Ideas: one module knows the format (raft-engine); an identity at the head of every file (TigerBeetle).
"""

import enum
import struct
from typing import Final

import attrs

from jetraft.store._frame import crc32c
from jetraft.store.model.ids import GroupId, NodeId
from jetraft.store.port import StoreCorrupt, StoreMisplaced, StoreNewer

# Of envelopes, and so of a store. 2: the checksum covers version and kind too. 3: block tags, and a ledger that says
# what must be there.
FORMAT_VERSION: Final = 3
FRAME_VERSION: Final = 2  # the newest that is read
FRAME_HEADER_BYTES: Final = 48
RECORD_HEADER_BYTES: Final = 20
FRAME_CRC_AT: Final = 4
FRAME_CRC_FROM: Final = 8  # what the checksum of a frame covers, to its end
MARK_BYTES: Final = 32
FRAME_BYTES_MAX: Final = 1 << 28  # 256 MiB: a batch of the largest messages nats-server admits (64 MiB) fits well

FRAME_KIND_AT: Final = 9
FRAME_FLAGS_AT: Final = 10
FRAME_INCARNATION_AT: Final = 16
FRAME_SEALED: Final = 1  # the body is encrypted: store/cipher.py; on disk only
FRAME_THIN: Final = 2  # without the content of messages that are gone: store/_thin.pyx; in compacted blocks only
FRAME_PACKED: Final = 4  # compressed: store/compression.py; in compacted blocks only
FRAME_HOLED: Final = 8  # some of its records are lost: store/_holes.pyx
FRAME_THIN_LENGTH_AT: Final = FRAME_HEADER_BYTES  # in a thin or packed frame: how long readers see it

RECORD_HAS_MSG_ID: Final = 1  # headers contain Nats-Msg-Id: apply feeds the table of duplicates
RECORD_HAS_ROLLUP: Final = 2  # headers contain Nats-Rollup


class Kind(enum.IntEnum):
    """What an entry is; Raft looks at the first two, the state machine at the others."""

    NOOP = 1
    RAFT_CONFIG = 2  # msgpack
    MESSAGES = 3  # records
    STREAM_OP = 4  # msgpack
    CONSUMER_OP = 5  # msgpack
    META = 6  # msgpack


class Stop(enum.IntEnum):
    """Why `_frame.scan` stopped."""

    END = 0  # the end of the data, or the last index asked for
    ZERO = 1  # never written
    DAMAGED = 2  # a length that cannot be, or a wrong checksum
    ORDER = 3  # a sound frame that does not continue the log
    VERSION = 4  # a sound frame of a newer format


@attrs.frozen(kw_only=True, slots=True)
class Identity:
    """Whose file it is; at the head of every file, so that a foreign one is refused."""

    node_id: NodeId
    group_id: GroupId
    incarnation: int


class FileKind(enum.IntEnum):
    """What an envelope holds."""

    BLOCK_HEAD = 1
    HARD_STATE = 2
    CHECKPOINT = 3
    TRIMMED = 4
    FAULTY = 5
    ERASE = 6
    KEY = 7
    SEALED_CHECKPOINT = 8


_MAGIC: Final = b"jetraft\n"
# magic, version, file kind, crc of everything else, node id, group id, incarnation, body length
_ENVELOPE: Final = struct.Struct("<8sHHI16s32sQQ")
_CRC_AT: Final = 12
_CRC_END: Final = 16
_UNSUMMED_HEAD_VERSION: Final = 1  # its checksum is of what follows it alone
ENVELOPE_BYTES: Final = _ENVELOPE.size


def pack_envelope(kind: FileKind, identity: Identity, body: bytes) -> bytes:
    """`body` with its owner, length and checksum in front."""
    node_id = identity.node_id.encode()
    group_id = identity.group_id.encode()
    assert len(node_id) <= 16  # noqa: PLR2004  (the widths of _ENVELOPE)
    assert len(group_id) <= 32  # noqa: PLR2004
    fields = (node_id, group_id, identity.incarnation, len(body))
    unsummed = _ENVELOPE.pack(_MAGIC, FORMAT_VERSION, kind, 0, *fields) + body
    crc = _checksum(memoryview(unsummed), FORMAT_VERSION)
    return _ENVELOPE.pack(_MAGIC, FORMAT_VERSION, kind, crc, *fields) + body


def _checksum(data: memoryview, version: int) -> int:
    """Of an envelope and its body, by the rule of a version: a flipped bit of the version finds the other rule."""
    seed = 0 if version == _UNSUMMED_HEAD_VERSION else crc32c(data[:_CRC_AT])
    return crc32c(data[_CRC_END:], seed)


def unpack_envelope(data: bytes | memoryview, kind: FileKind, identity: Identity, *, what: str) -> bytes:
    """The body of an envelope; bytes after it are ignored. `what` names the file in errors.

    Raises StoreCorrupt when it is damaged, StoreNewer, or StoreMisplaced when it is another owner's or of another kind.
    """
    found_kind, owner, body = _open_envelope(data, what)
    if found_kind != kind:
        raise StoreMisplaced(f"{what}: file kind {found_kind}, expected {kind}")
    if owner != identity:
        raise StoreMisplaced(f"{what}: belongs to {owner}, not to {identity}")
    return body


def peek_kind(data: bytes | memoryview) -> int:
    """What an envelope says that it holds, checksum unseen; 0 when the bytes are too short for one."""
    return int(_ENVELOPE.unpack_from(data)[2]) if len(data) >= ENVELOPE_BYTES else 0


def peek_identity(data: bytes | memoryview, *, what: str) -> Identity:
    """Whose file it is, for readers that do not know yet. Raises StoreCorrupt, StoreMisplaced or StoreNewer."""
    return _open_envelope(data, what)[1]


def _open_envelope(data: bytes | memoryview, what: str) -> tuple[int, Identity, bytes]:
    """(kind, owner, body) of a sound envelope."""
    data = memoryview(data)
    if len(data) < ENVELOPE_BYTES:
        raise StoreCorrupt(f"{what}: {len(data)} bytes are too short for a head")
    magic, version, kind, crc, node_id, group_id, incarnation, length = _ENVELOPE.unpack_from(data)
    if magic != _MAGIC:
        raise StoreCorrupt(f"{what}: does not start as a jetraft file")
    if length > len(data) - ENVELOPE_BYTES or _checksum(data[: ENVELOPE_BYTES + length], version) != crc:
        raise StoreCorrupt(f"{what}: checksum does not hold")
    if version > FORMAT_VERSION:
        raise StoreNewer(f"{what}: format version {version} is newer than {FORMAT_VERSION}")
    if version == 0:
        raise StoreCorrupt(f"{what}: format version 0 never was")
    owner = Identity(
        node_id=NodeId(node_id.rstrip(b"\0").decode()),
        group_id=GroupId(group_id.rstrip(b"\0").decode()),
        incarnation=incarnation,
    )
    return kind, owner, bytes(data[ENVELOPE_BYTES : ENVELOPE_BYTES + length])


@attrs.frozen(kw_only=True, slots=True)
class BlockHead:
    """The head of a block. Entries at or above `first_index` in blocks of lower serial are void: they were cut."""

    serial: int
    first_index: int
    boundary_term: int  # term of the entry before first_index, 0 when first_index is 1
    reserved_bytes: int = attrs.field(default=0, eq=False)  # how long the file is while it is the newest; 0: any length
    tag: int = attrs.field(default=0, eq=False, repr=False)  # of its marks and skips; 0: they have none


_BLOCK_HEAD: Final = struct.Struct("<QQQ")
_RESERVED: Final = struct.Struct("<Q")  # follows in the heads of blocks that grow
BLOCK_HEAD_BYTES: Final = 128
_TAG: Final = struct.Struct("<Q")  # follows that in the heads of blocks whose marks have one
assert ENVELOPE_BYTES + _BLOCK_HEAD.size + _RESERVED.size + _TAG.size <= BLOCK_HEAD_BYTES


def pack_block_head(head: BlockHead, identity: Identity, *, reserved_bytes: int = 0) -> bytes:
    """BLOCK_HEAD_BYTES bytes. `reserved_bytes` when the file has that length before the first mark is in it."""
    body = _BLOCK_HEAD.pack(head.serial, head.first_index, head.boundary_term)
    if reserved_bytes or head.tag:
        body += _RESERVED.pack(reserved_bytes)
    if head.tag:
        body += _TAG.pack(head.tag)
    return pack_envelope(FileKind.BLOCK_HEAD, identity, body).ljust(BLOCK_HEAD_BYTES, b"\0")


def unpack_block_head(data: bytes | memoryview, identity: Identity, *, what: str) -> BlockHead:
    """Raises StoreCorrupt, StoreMisplaced or StoreNewer."""
    body = unpack_envelope(data, FileKind.BLOCK_HEAD, identity, what=what)
    reserved_at, tag_at = _BLOCK_HEAD.size, _BLOCK_HEAD.size + _RESERVED.size
    if len(body) not in {reserved_at, tag_at, tag_at + _TAG.size}:
        raise StoreCorrupt(f"{what}: a block head of {len(body)} bytes")
    serial, first_index, boundary_term = _BLOCK_HEAD.unpack_from(body)
    reserved = _RESERVED.unpack_from(body, reserved_at)[0] if len(body) > reserved_at else 0
    tag = _TAG.unpack_from(body, tag_at)[0] if len(body) > tag_at else 0
    return BlockHead(
        serial=serial, first_index=first_index, boundary_term=boundary_term, reserved_bytes=reserved, tag=tag
    )


KEY_NAMES: Final = ("key.0", "key.1")
FAULTY_NAME: Final = "faulty"
ERASE_NAME: Final = "erase"
QUARANTINE_NAME: Final = "quarantine"
BLOCK_SUFFIX: Final = ".blk"
CHECKPOINT_SUFFIX: Final = ".ckpt"
TMP_SUFFIX: Final = ".tmp"
GENERATION_PREFIX: Final = "log-"


def block_name(head: BlockHead) -> str:
    """The file name of a block."""
    return f"{head.first_index:020d}-{head.serial:08d}{BLOCK_SUFFIX}"


def checkpoint_name(index: int) -> str:
    """The file name of the checkpoint at a log index."""
    return f"{index:020d}{CHECKPOINT_SUFFIX}"


def generation_name(generation: int) -> str:
    """The name of the directory of blocks and checkpoints."""
    return f"{GENERATION_PREFIX}{generation:08d}"
