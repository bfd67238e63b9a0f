"""From the bytes of an upload to what they say: decompressed, taken apart, checked. Others have turns in between."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

import trio

from jetraft.cluster.backup.archive import MAGIC, ArchiveEntry, ArchiveReader, cut_off
from jetraft.cluster.backup.consumers import UnfinishedConsumer
from jetraft.cluster.backup.contents import Contents, Removal
from jetraft.cluster.backup.large_bodies import worked_on
from jetraft.cluster.backup.legacy import LegacyContents, TarReader
from jetraft.store.s2.framing import Decompressor

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Iterator

    from jetraft.cluster.backup.contents import Found, Item
    from jetraft.store.model.config import StreamConfig
    from jetraft.store.stream.consumer_state import ConsumerState

ITEMS_AT_ONCE: Final = 256  # a turn waits for so many: about a millisecond
BYTES_PER_ITEM: Final = 4096  # to decompress that many costs as much as an item


class Format(Protocol):
    """One version of the archive: decompressed bytes in, what they say out. Both raise CorruptArchiveError."""

    def add(self, block: bytes) -> Iterator[Found | None]:
        """Yield what is complete now, and None for work without an item that has taken about a millisecond."""

    def finish(self) -> Iterator[Item]:
        """Yield what the end says, if the archive was whole."""


class SecondVersion:
    """The form that nats-server 2.15 and this server write."""

    def __init__(self, contents: Contents) -> None:
        self._reader, self._contents = ArchiveReader(), contents

    def add(self, block: bytes) -> Iterator[Found]:
        """Yield what is complete now."""
        return map(self._contents.take, self._reader.add(block))

    def finish(self) -> Iterator[Item]:
        """Nothing comes after the last entry."""
        self._contents.finish()
        if not self._reader.is_at_an_end:
            raise cut_off()
        return iter(())


class FirstVersion:
    """The form of nats-server 2.14 and before: a tar of files. `room_bytes` is what all messages may have together."""

    def __init__(self, contents: Contents, stream: str, room_bytes: int) -> None:
        self._tar, self._files, self._contents = TarReader(), LegacyContents(stream), contents
        self._room_bytes = room_bytes

    def add(self, block: bytes) -> Iterator[Found | None]:
        """Yield what is complete now, and None for work without an item."""
        for file in self._tar.add(block):
            if file is None:
                yield None
                continue
            if self._contents.state is None:
                yield self._contents.begin_first_version(self._room_bytes)
            for found in self._files.take(file):
                if isinstance(found, ArchiveEntry):
                    yield self._contents.take(found)
                elif found is None or isinstance(found, Removal):
                    yield found
                else:
                    name, parts = found
                    yield self._contents.consumer(name, b"", parts)

    def finish(self) -> Iterator[Item]:
        """The end of the stream."""
        if not self._tar.ended:
            raise cut_off()
        yield self._files.finish()


async def items_of(
    pieces: AsyncIterator[bytes], config: StreamConfig, now_unix_ns: int, *, room_bytes: int, turn: trio.Lock
) -> AsyncGenerator[Item, None]:
    """Yield state, consumers, messages and the ending; at the latest instead of that raise CorruptArchiveError.

    Those that share a `turn` work one at a time.
    """
    decompressor, contents, work = Decompressor(), Contents(config, now_unix_ns), _Work(turn)
    archive: Format | None = None
    start = b""
    async for piece in pieces:
        for plain in decompressor.add(piece):
            await work.add(1 + len(plain) // BYTES_PER_ITEM)  # a few bytes may become gigabytes without an item
            start += plain
            if archive is None and len(start) < len(MAGIC):
                continue
            if archive is None:
                is_second = start.startswith(MAGIC)
                archive = SecondVersion(contents) if is_second else FirstVersion(contents, config.name, room_bytes)
            block, start = start, b""
            for found in archive.add(block):
                item = await _finished(found, work) if isinstance(found, UnfinishedConsumer) else found
                if item is not None:
                    yield item
                await work.add(1 if item is not None else ITEMS_AT_ONCE)
    decompressor.finish()
    if archive is None:
        raise cut_off()
    for item in archive.finish():
        yield item


async def _finished(consumer: UnfinishedConsumer, work: _Work) -> ConsumerState:
    """Read and make a consumer, which may take seconds, in turns of about a millisecond."""
    for _ in consumer.parse():
        await work.add(ITEMS_AT_ONCE)
    await worked_on(consumer.parts.config_json, consumer.configure)
    for _ in consumer.build():
        await work.add(ITEMS_AT_ONCE)
    return consumer.state


class _Work:
    """Counts what one upload has done, in items, and lets others have their turns."""

    def __init__(self, turn: trio.Lock) -> None:
        self._turn = turn
        self._done = 0

    async def add(self, items: int) -> None:
        """So much is done; beyond ITEMS_AT_ONCE, all uploads together about a millisecond of each round."""
        self._done += items
        if self._done >= ITEMS_AT_ONCE:
            self._done = 0
            async with self._turn:
                await trio.lowlevel.checkpoint()
