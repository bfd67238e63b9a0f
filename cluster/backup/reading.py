"""From the bytes of an upload to what they say: decompressed, taken apart, checked. Others have turns in between."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from jetraft.cluster.backup.archive import EntryReader, cut_off
from jetraft.cluster.backup.contents import Contents
from jetraft.cluster.backup.s2 import Decompressor

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from jetraft.cluster.backup.contents import Item
    from jetraft.store.model.config import StreamConfig

ITEMS_AT_ONCE: Final = 256  # a turn waits for so many: about a millisecond


async def items_of(pieces: AsyncIterator[bytes], config: StreamConfig, now_unix_ns: int) -> AsyncGenerator[Item, None]:
    """Yield state, consumers and messages. It ends without CorruptArchiveError only if the archive is whole."""
    decompressor, reader, contents = Decompressor(), EntryReader(), Contents(config, now_unix_ns)
    count = 0
    async for piece in pieces:
        for block in decompressor.add(piece):
            for entry in reader.add(block):
                item = contents.take(entry)
                if item is not None:
                    yield item
                count += 1
                if count % ITEMS_AT_ONCE == 0:
                    await trio.lowlevel.checkpoint()
    decompressor.finish()
    contents.finish()
    if not reader.is_at_an_end:
        raise cut_off()
