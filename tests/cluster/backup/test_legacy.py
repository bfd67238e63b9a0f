"""Archives that nats-server 2.14 wrote are read: messages, removals and consumers; anything else is refused."""

import io
import json
import struct
import tarfile
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from hashlib import sha256
from pathlib import Path

import pytest
import trio
from hypothesis import example, given
from hypothesis import strategies as st

from jetraft.cluster.backup._highway import highway_hash
from jetraft.cluster.backup.archive import ArchiveEntry
from jetraft.cluster.backup.contents import ArchiveEnd, Item, Removal
from jetraft.cluster.backup.legacy import File, LegacyContents, TarReader
from jetraft.cluster.backup.reading import items_of
from jetraft.store.model.config import StreamConfig
from jetraft.store.model.validation.validate import normalise_stream
from jetraft.store.s2.framing import Compressor, CorruptArchiveError, Decompressor
from jetraft.store.stream.consumer_state import ConsumerState

# Written by nats-server 2.14.6: 60 messages, some removed, some erased, and a consumer that was in the middle of them.
ARCHIVE = (Path(__file__).parent / "snapshot-2.14.tar.s2").read_bytes()
CONFIG = normalise_stream(StreamConfig(name="S", subjects=("s.>",), allow_msg_ttl=True))


def read(archive: bytes, config: StreamConfig = CONFIG) -> list[Item]:
    async def pieces() -> AsyncIterator[bytes]:
        for at in range(0, len(archive), 1000):
            yield archive[at : at + 1000]

    async def run() -> list[Item]:
        return [item async for item in items_of(pieces(), config, 1, room_bytes=1 << 20, turn=trio.Lock())]

    return trio.run(run)


def compressed(data: bytes) -> bytes:
    compressor = Compressor()
    return compressor.add(data) + compressor.flush()


def tar_of(*members: tuple[str, bytes], kind: bytes = tarfile.REGTYPE) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, data in members:
            member = tarfile.TarInfo(name)
            member.size, member.type = len(data), kind
            tar.addfile(member, io.BytesIO(data))
    return out.getvalue()


def with_sum(name: str, config: bytes, owner: bytes) -> tuple[tuple[str, bytes], tuple[str, bytes]]:
    """A configuration and the file of its sum."""
    checksum = highway_hash(sha256(owner).digest(), config).hex().encode()
    return (name, config), (name.replace(".inf", ".sum"), checksum)


META = with_sum("meta.inf", json.dumps({"name": "S"}).encode(), b"S")
CONSUMER = with_sum("obs/d/meta.inf", b"{}", b"S/d")


def files_of(archive: bytes) -> dict[str, bytes]:
    """The files, in their order."""
    plain = b"".join(Decompressor().add(archive))
    with tarfile.open(fileobj=io.BytesIO(plain)) as tar:
        return {member.name: file.read() for member in tar if (file := tar.extractfile(member)) is not None}


def test_an_archive_of_2_14_has_its_messages_removals_and_consumer() -> None:
    items = read(ARCHIVE)
    removed = {seq for item in items if isinstance(item, Removal) for seq in item.seqs}
    messages = {item.seq: item for item in items if isinstance(item, ArchiveEntry) and item.seq not in removed}
    assert sorted(messages) == [seq for seq in range(4, 60) if seq not in (20, 21, 40, 45)]
    assert (messages[10].name, messages[10].body) == (b"s.2", b"hello 9 " * 0)
    assert messages[9].body == b"hello 8 " * 8
    assert b"Nats-Msg-Id: 4\r\n" in messages[5].hdr
    (consumer,) = [item for item in items if isinstance(item, ConsumerState)]
    assert (consumer.delivered_consumer, consumer.delivered_stream, consumer.ack_floor[0]) == (8, 10, 2)
    assert [(seq, number, count) for seq, number, _, count in consumer.pending.rows()] == [
        (6, 3, 1),
        (7, 4, 2),
        (10, 8, 1),
    ]
    assert isinstance(items[-1], ArchiveEnd)
    assert items[-1].last_seq == 60


def test_a_compressed_block_is_decompressed() -> None:
    members = files_of(ARCHIVE).items()
    block = files_of(ARCHIVE)["msgs/1.blk"]
    small = b"cmp\x01" + bytes([len(block) & 127 | 128, len(block) >> 7]) + compressed(block[:-8]) + block[-8:]
    again = [(name, small if name.endswith(".blk") else data) for name, data in members]
    assert read(compressed(tar_of(*again))) == read(ARCHIVE)


@pytest.mark.parametrize(
    "tar",
    [
        tar_of(*META, ("../../etc/passwd", b"x")),
        tar_of(*META, ("/etc/passwd", b"x")),
        tar_of(*META, ("msgs/../1.blk", b"x")),
        tar_of(*META, ("obs/a/../../x", b"x")),
        tar_of(*META, ("obs/" + "a" * 150 + "/../o.dat", b"x")),
        tar_of(*META, ("msgs/1.blk", b""), kind=tarfile.SYMTYPE),
        tar_of(*META, ("msgs", b""), kind=tarfile.DIRTYPE),
        tar_of(*with_sum("meta.inf", b'{"name":"T"}', b"S")),
        tar_of(*with_sum("meta.inf", b"[]", b"S")),
        tar_of(("msgs/1.blk", b"")),
        tar_of(*META, ("msgs/1.blk", b"\xff" * 60)),
        tar_of(*META, ("msgs/1.blk", b"cmp\x01\x05short")),
        tar_of(*META, *CONSUMER, ("obs/d/o.dat", b"\x16\x02")),
        tar_of(*META, *CONSUMER),
        tar_of(META[0]),
        tar_of(META[1], META[0]),
        tar_of(*with_sum("meta.inf", b'{"name":"S"}', b"T")),
        tar_of(*META, *with_sum("obs/d/meta.inf", b"{}", b"S/e")),
        tar_of(*META, *((f"obs/{number}/meta.inf", b"{}") for number in range(20))),
        tar_of(*META, ("meta.inf", META[0][1] + b" " * (9 << 20))),
        tar_of(*META, ("msgs/index.db", b"short")),
        tar_of(*META)[:600],
        b"x" * 2048,
    ],
)
def test_what_is_no_such_archive_is_refused(tar: bytes) -> None:
    with pytest.raises(CorruptArchiveError):
        read(compressed(tar))


def damaged(name: str, at: int) -> bytes:
    """The archive of 2.14.6 with one bit of one file flipped, and all that S2 says of it right."""
    files = files_of(ARCHIVE)
    data = bytearray(files[name])
    data[at] ^= 1 << at % 8
    return compressed(tar_of(*{**files, name: bytes(data)}.items()))


def test_an_archive_that_is_packed_again_is_the_same() -> None:
    assert read(compressed(tar_of(*files_of(ARCHIVE).items()))) == read(ARCHIVE)


@pytest.mark.parametrize(
    ("name", "at", "why"),
    [
        ("meta.inf", 16, "configuration of b'S'"),  # the time of creation
        ("meta.sum", 3, "configuration of b'S'"),
        ("msgs/index.db", 0, "index"),
        ("msgs/index.db", 200, "index"),
        ("msgs/index.db", -1, "index"),
        ("msgs/1.blk", 14, "sequence 1 "),  # the time of an erased message
        ("msgs/1.blk", -12, "sequence 60 "),  # the time of a removal, which is the last record
        ("msgs/1.blk", -1, "sequence 60 "),  # its sum
        ("msgs/1.blk", 600, "sequence "),
        ("msgs/1.blk", 3000, "sequence "),
        ("obs/d/meta.inf", 100, "configuration of b'S/d'"),
        ("obs/d/meta.sum", 0, "configuration of b'S/d'"),
    ],
)
def test_one_flipped_bit_is_noticed_by_nats_servers_own_sums(name: str, at: int, why: str) -> None:
    with pytest.raises(CorruptArchiveError, match=why):
        read(damaged(name, at))


def test_every_byte_of_a_block_is_under_a_sum_but_the_lengths_of_parts() -> None:
    """Where a subject or a header ends is in no sum; what they are then is still checked as what a stranger sends."""
    block, outside, at = files_of(ARCHIVE)["msgs/1.blk"], set(), 0
    while at < len(block):
        length, subject_bytes = struct.unpack_from("<I16xH", block, at)
        outside |= {at + 20, at + 21} if not length >> 31 else {at + 22 + subject_bytes, at + 23 + subject_bytes}
        at += length & ~(1 << 31)
    for place in range(len(block)):
        flipped = bytearray(block)
        flipped[place] ^= 1 << place % 8
        if place not in outside:
            with pytest.raises(CorruptArchiveError):
                list(LegacyContents("S").take(File(b"msgs/1.blk", bytes(flipped))))


def test_a_block_of_another_place_or_stream_is_refused() -> None:
    block = files_of(ARCHIVE)["msgs/1.blk"]
    assert list(LegacyContents("S").take(File(b"msgs/1.blk", block)))
    for stream, name in (("S", b"msgs/2.blk"), ("T", b"msgs/1.blk")):
        with pytest.raises(CorruptArchiveError, match="sequence 1 "):
            list(LegacyContents(stream).take(File(name, block)))


def test_a_file_larger_than_any_block_is_refused_before_memory_is_taken() -> None:
    member = tarfile.TarInfo("msgs/1.blk")
    member.size = 1 << 30
    with pytest.raises(CorruptArchiveError, match="invalid tar header"):
        list(TarReader().add(member.tobuf()))


@given(st.binary(max_size=400))
@example(b"cmp")
def test_any_bytes_are_a_block_or_refused(data: bytes) -> None:
    contents = LegacyContents("S")
    for name in (b"msgs/1.blk", b"obs/d/o.dat"):
        reader = TarReader()
        for file in reader.add(tar_of((name.decode(), data))):
            try:
                if file is not None:
                    list(contents.take(file))
            except CorruptArchiveError:
                continue


NOTHING = b"".join(tar_of((f"{number}", b""), kind=b"x")[:512] for number in range(4))
BOMBS = {
    "gigabytes of heads that say nothing": compressed(NOTHING * 20_000),
    "chunks to skip": compressed(b"") + b"\xff\x06\x00\x00S2sTwO" + b"\x80\x00\x00\x00" * 50_000,
    "a file of zeros": compressed(tar_of(("msgs/1.blk", bytes(32 << 20)))),
    "many empty files": compressed(tar_of(*[("msgs/1.blk", b"")] * 20_000)),
}


@pytest.mark.parametrize("archive", BOMBS.values(), ids=BOMBS)
def test_a_small_archive_with_much_in_it_lets_others_have_their_turns(archive: bytes) -> None:
    async def pieces() -> AsyncGenerator[bytes, None]:
        yield archive

    async def read_all() -> None:
        async with (
            aclosing(pieces()) as given,
            aclosing(items_of(given, CONFIG, 1, room_bytes=1 << 20, turn=trio.Lock())) as items,
        ):
            async for _ in items:
                pass

    async def run() -> int:
        turns = 0

        async def take_turns() -> None:
            nonlocal turns
            while True:
                await trio.lowlevel.checkpoint()
                turns += 1

        async with trio.open_nursery() as nursery:
            nursery.start_soon(take_turns)
            with pytest.raises(CorruptArchiveError):
                await read_all()
            nursery.cancel_scope.cancel()
        return turns

    assert trio.run(run) > 20


def test_a_consumer_that_says_that_it_waits_for_too_much_is_refused() -> None:
    head = b"\x16\x02" + b"\x00" * 4 + b"\xff\xff\xff\x7f\x00"
    with pytest.raises(CorruptArchiveError, match="more than 1000000 messages"):
        list(LegacyContents("S").take(File(b"obs/c/o.dat", head)))
