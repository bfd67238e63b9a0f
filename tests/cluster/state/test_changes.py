"""Only those who wait for a stream are woken when it changes."""

import trio
import trio.testing

from jetraft.cluster.state.assignment import StreamKey
from jetraft.cluster.state.changes import StreamChanges

S, T = StreamKey("$G", "S"), StreamKey("$G", "T")


async def test_who_waits_for_a_stream_looks_when_that_one_changes(nursery: trio.Nursery) -> None:
    changes = StreamChanges()
    looked: list[StreamKey] = []
    here: set[StreamKey] = set()

    async def wait(key: StreamKey) -> None:
        def is_here() -> bool:
            looked.append(key)
            return key in here

        await changes.until(key, is_here)

    for key in (S, S, T):
        nursery.start_soon(wait, key)
    await trio.testing.wait_all_tasks_blocked()
    looked.clear()
    here.add(S)
    changes.notify(S)
    await trio.testing.wait_all_tasks_blocked()
    assert looked == [S, S]
    here.add(T)
    changes.notify_all([S, T])
    await trio.testing.wait_all_tasks_blocked()
    assert looked == [S, S, T]


async def test_who_gives_up_does_not_keep_others_from_being_woken(nursery: trio.Nursery) -> None:
    changes = StreamChanges()
    is_here = False
    ended = trio.Event()

    async def wait() -> None:
        await changes.until(S, lambda: is_here)
        ended.set()

    nursery.start_soon(wait)
    await trio.testing.wait_all_tasks_blocked()
    with trio.CancelScope() as scope:
        scope.cancel()
        await changes.until(S, lambda: is_here)
    is_here = True
    changes.notify(S)
    await ended.wait()
    assert not changes._waiting, "nothing is kept of a stream that nobody waits for"
