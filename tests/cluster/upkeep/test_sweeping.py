"""Data of streams that were deleted while a node was away is looked for, again and again, once the table is current."""

import errno

import trio
import trio.testing

from jetraft.cluster.meta.machine import MetaMachine
from jetraft.cluster.state.assignment import StreamKey
from jetraft.cluster.upkeep.sweeping import SOON_S, SWEEP_S, Sweeper
from tests.cluster.meta.makers import ACCOUNT


class Chores:
    """Notes what the sweeper does; what is in `failing` fails once."""

    def __init__(self, *failing: str) -> None:
        self.machine = MetaMachine()
        self.calls: list[tuple[str, float]] = []
        self.failing = list(failing)
        self.is_current = True
        self.sweeper = Sweeper(self.machine, is_current=self._look, empty_trash=self._empty, sweep=self._sweep)

    async def _look(self) -> bool:
        await trio.lowlevel.checkpoint()
        return self.is_current

    async def _empty(self) -> None:
        await self._note("empty")

    async def _sweep(self) -> None:
        await self._note("sweep")

    async def _note(self, name: str) -> None:
        await trio.lowlevel.checkpoint()
        self.calls.append((name, trio.current_time()))
        if name in self.failing:
            self.failing.remove(name)
            raise OSError(errno.EMFILE, "too many open files")

    def times(self, name: str) -> list[float]:
        return [at_s for called, at_s in self.calls if called == name]


async def test_too_few_descriptors_put_it_off_and_do_not_end_the_server(autojump_clock: trio.testing.MockClock) -> None:
    del autojump_clock
    chores = Chores("empty", "sweep")
    with trio.move_on_after(3.5 * SWEEP_S):
        await chores.sweeper.run()

    assert [name for name, _ in chores.calls][:4] == ["empty", "empty", "sweep", "sweep"]


async def test_nothing_is_looked_for_before_the_meta_leader_has_confirmed_the_table(
    autojump_clock: trio.testing.MockClock,
) -> None:
    del autojump_clock
    chores = Chores()
    chores.is_current = False
    async with trio.open_nursery() as nursery:
        nursery.start_soon(chores.sweeper.run)
        await trio.sleep(2 * SWEEP_S)
        assert not chores.times("sweep")
        chores.is_current = True
        current_s = trio.current_time()
        await trio.sleep(SOON_S)
        assert chores.times("sweep"), "at once, not a minute later"
        assert chores.times("sweep")[0] - current_s <= SOON_S
        nursery.cancel_scope.cancel()


async def test_a_removal_is_followed_by_a_sweep_and_many_by_one(autojump_clock: trio.testing.MockClock) -> None:
    del autojump_clock
    chores = Chores()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(chores.sweeper.run)
        await trio.sleep(SWEEP_S / 2)
        assert len(chores.times("sweep")) == 1
        for number in range(10):
            chores.machine.on_change.emit([StreamKey(ACCOUNT, f"GONE{number}")])
        await trio.sleep(2 * SOON_S)
        assert len(chores.times("sweep")) == 2
        nursery.cancel_scope.cancel()
