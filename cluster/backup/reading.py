"""From the bytes of an upload to what they say: decompressed, taken apart, checked. Others have turns in between."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

import trio

from jetraft.cluster.backup.archive import MAGIC, ArchiveEntry, ArchiveReader, cut_off
from jetraft.cluster.backup.contents import Contents, Removal
from jetraft.cluster.backup.legacy import LegacyContents, TarReader
from jetraft.store.s2.framing import Decompressor

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Iterator

    from jetraft.cluster.backup.contents import Item
    from jetraft.store.model.config import StreamConfig

ITEMS_AT_ONCE: Final = 256  # a turn waits for so many: about a millisecond


class Format(Protocol):
    """One version of the archive: decompressed bytes in, items out. Both raise CorruptArchiveError."""

    def add(self, block: bytes) -> Iterator[Item]:
        """Yield what is complete now."""

    def finish(self) -> Iterator[Item]:
        """Yield what the end says, if the archive was whole."""


class SecondVersion:
    """The form that nats-server 2.15 and this server write."""

    def __init__(self, contents: Contents) -> None:
        self._reader, self._contents = ArchiveReader(), contents

    def add(self, block: bytes) -> Iterator[Item]:
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

    def add(self, block: bytes) -> Iterator[Item]:
        """Yield what is complete now."""
        for file in self._tar.add(block):
            if self._contents.state is None:
                yield self._contents.begin_first_version(self._room_bytes)
            for found in self._files.take(file):
                if isinstance(found, ArchiveEntry):
                    yield self._contents.take(found)
                elif isinstance(found, Removal):
                    yield found
                else:
                    yield self._contents.consumer(*found)

    def finish(self) -> Iterator[Item]:
        """The end of the stream."""
        if not self._tar.ended:
            raise cut_off()
        yield self._files.finish()


async def items_of(
    pieces: AsyncIterator[bytes], config: StreamConfig, now_unix_ns: int, *, room_bytes: int
) -> AsyncGenerator[Item, None]:
    """Yield state, consumers, messages and the ending; at the latest instead of that raise CorruptArchiveError."""
    decompressor, contents = Decompressor(), Contents(config, now_unix_ns)
    archive: Format | None = None
    start = b""
    count = 0
    async for piece in pieces:
        for plain in decompressor.add(piece):
            start += plain
            if archive is None and len(start) < len(MAGIC):
                continue
            if archive is None:
                is_second = start.startswith(MAGIC)
                archive = SecondVersion(contents) if is_second else FirstVersion(contents, config.name, room_bytes)
            block, start = start, b""
            for item in archive.add(block):
                yield item
                count += 1
                if count % ITEMS_AT_ONCE == 0:
                    await trio.lowlevel.checkpoint()
    decompressor.finish()
    if archive is None:
        raise cut_off()
    for item in archive.finish():
        yield item
