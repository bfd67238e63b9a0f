"""A table is current when all that the meta group had committed, asked after the start, is applied here."""

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from jetraft.cluster.meta.currency import Currency, UnprovedError
from tests.doubles.meta_group import AppliedMetaGroup


class Story:
    """Answers of the meta leader, one after the other, and how far this node has applied."""

    def __init__(self, *answers: int | None) -> None:
        self.answers = list(answers)
        self.meta_group = AppliedMetaGroup()
        self.proved = 0
        self.currency = Currency(committed_index=self._ask, wait_applied=self.meta_group.wait_applied)

    async def _ask(self) -> int | None:
        await trio.lowlevel.checkpoint()
        return self.answers.pop(0)

    async def run(self) -> None:
        await self.currency.run()
        assert self.currency.is_proved
        self.proved += 1


async def test_nothing_is_proved_while_no_leader_answers_or_its_entries_are_not_applied(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    del autojump_clock
    story = Story(None, None, 7)
    story.meta_group.apply_to(6)
    nursery.start_soon(story.run)
    await trio.sleep(5)
    assert story.answers == [], "asked until somebody knew"
    assert not story.currency.is_proved
    with pytest.raises(UnprovedError):
        story.currency.require("g1")

    story.meta_group.apply_to(7)
    await trio.sleep(1)
    assert story.proved == 1
    story.currency.require("g1")


async def test_it_is_asked_once_in_a_life() -> None:
    story = Story(3)
    story.meta_group.apply_to(4)
    await story.run()
    await story.run()  # there is no second answer
    await wait_all_tasks_blocked()
    assert story.currency.is_proved
