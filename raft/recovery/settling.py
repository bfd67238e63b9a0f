"""Waits until nothing of a log is on its way to the disk, so that it can be opened again."""

import trio

from jetraft.store.ledger.ledger import Ledger
from jetraft.store.log.file_log import FileLog
from jetraft.store.model.ids import GroupId


async def until_settled(log: FileLog) -> None:
    """Wait until everything is on disk, or the log has failed and nothing of it is on its way any more.

    Until then the log must not be opened again: the ledger may still learn of its changes. No other task waits for it,
    so its `on_durable` is free.
    """
    moved = trio.Event()
    log.on_durable = lambda: moved.set()  # noqa: PLW0108  (the event is another one each time)
    while log.durability.is_busy or (log.failed is None and log.durable_token < log.token()):
        moved = trio.Event()
        log.submit()
        if log.durability.is_busy:
            await moved.wait()
    log.on_durable = None


async def until_left(ledger: Ledger, key: tuple[GroupId, int]) -> None:
    """Wait until nothing of the log that was open before is on its way: it would land in the next one's blocks.

    That one is closed. It is only known while the writer still has something of it.
    """
    log = ledger.logs.get(key)
    if log is None:
        return
    while log.is_busy:
        moved = trio.Event()
        log.on_durable = moved.set
        await moved.wait()
