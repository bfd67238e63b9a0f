"""Archives that nats-server 2.14 wrote are read: messages, removals and consumers; anything else is refused."""

import io
import json
import tarfile
from pathlib import Path

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from jetraft.cluster.backup.archive import Entry
from jetraft.cluster.backup.contents import Ending, Item, Removal
from jetraft.cluster.backup.legacy import LegacyContents, TarReader
from jetraft.cluster.backup.reading import items_of
from jetraft.cluster.backup.s2 import Compressor, CorruptArchiveError, Decompressor
from jetraft.store.consumer_state import ConsumerState
from jetraft.store.model.config import StreamConfig
from jetraft.store.model.validate import normalise_stream

# Written by nats-server 2.14.6: 60 messages, some removed, some erased, and a consumer that was in the middle of them.
ARCHIVE = (Path(__file__).parent / "snapshot-2.14.tar.s2").read_bytes()
CONFIG = normalise_stream(StreamConfig(name="S", subjects=("s.>",), allow_msg_ttl=True))


def read(archive: bytes, config: StreamConfig = CONFIG) -> list[Item]:
    async def pieces():  # noqa: ANN202  (a generator of pieces)
        for at in range(0, len(archive), 1000):
            yield archive[at : at + 1000]

    async def run() -> list[Item]:
        return [item async for item in items_of(pieces(), config, 1, room_bytes=1 << 20)]

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


META = ("meta.inf", json.dumps({"name": "S"}).encode())


def test_an_archive_of_2_14_has_its_messages_removals_and_consumer() -> None:
    items = read(ARCHIVE)
    removed = {seq for item in items if isinstance(item, Removal) for seq in item.seqs}
    messages = {item.seq: item for item in items if isinstance(item, Entry) and item.seq not in removed}
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
    assert isinstance(items[-1], Ending)
    assert items[-1].last_seq == 60


def test_a_compressed_block_is_decompressed() -> None:
    plain = b"".join(Decompressor().add(ARCHIVE))
    with tarfile.open(fileobj=io.BytesIO(plain)) as tar:
        members = [(member.name, file.read()) for member in tar if (file := tar.extractfile(member)) is not None]
    block = next(data for name, data in members if name.endswith(".blk"))
    small = b"cmp\x01" + bytes([len(block) & 127 | 128, len(block) >> 7]) + compressed(block[:-8]) + block[-8:]
    again = [(name, small if name.endswith(".blk") else data) for name, data in members]
    assert read(compressed(tar_of(*again))) == read(ARCHIVE)


@pytest.mark.parametrize(
    "tar",
    [
        tar_of(META, ("../../etc/passwd", b"x")),
        tar_of(META, ("/etc/passwd", b"x")),
        tar_of(META, ("msgs/../1.blk", b"x")),
        tar_of(META, ("obs/a/../../x", b"x")),
        tar_of(META, ("obs/" + "a" * 150 + "/../o.dat", b"x")),
        tar_of(META, ("msgs/1.blk", b""), kind=tarfile.SYMTYPE),
        tar_of(META, ("msgs", b""), kind=tarfile.DIRTYPE),
        tar_of(("meta.inf", b'{"name":"T"}')),
        tar_of(("meta.inf", b"[]")),
        tar_of(("msgs/1.blk", b"")),
        tar_of(META, ("msgs/1.blk", b"\xff" * 60)),
        tar_of(META, ("msgs/1.blk", b"cmp\x01\x05short")),
        tar_of(META, ("obs/d/meta.inf", b"{}"), ("obs/d/o.dat", b"\x16\x02")),
        tar_of(META, ("obs/d/meta.inf", b"{}")),
        tar_of(META)[:600],
        b"x" * 2048,
    ],
)
def test_what_is_no_such_archive_is_refused(tar: bytes) -> None:
    with pytest.raises(CorruptArchiveError):
        read(compressed(tar))


def test_a_file_larger_than_any_block_is_refused_before_memory_is_taken() -> None:
    member = tarfile.TarInfo("msgs/1.blk")
    member.size = 1 << 30
    with pytest.raises(CorruptArchiveError, match="invalid tar header"):
        list(TarReader().add(member.tobuf()))


@given(st.binary(max_size=400))
def test_any_bytes_are_a_block_or_refused(data: bytes) -> None:
    contents = LegacyContents("S")
    for name in (b"msgs/1.blk", b"obs/d/o.dat"):
        reader = TarReader()
        for file in reader.add(tar_of((name.decode(), data))):
            try:
                list(contents.take(file))
            except CorruptArchiveError:
                continue
