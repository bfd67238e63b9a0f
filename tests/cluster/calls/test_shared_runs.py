"""Equal questions share a run; no answer is older than its question; errors stay with who asked."""

import pytest
import trio
import trio.testing

from jetraft.cluster.calls.shared_runs import SharedRuns


class Source:
    """Takes a second to answer with the number of the run; fails where it is told to."""

    def __init__(self, at_once: int = 4) -> None:
        self.runs: SharedRuns[int] = SharedRuns(at_once)
        self.begun = self.under_way = self.most = 0
        self.fails: set[int] = set()

    async def ask(self) -> int:
        self.begun += 1
        number = self.begun
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        await trio.sleep(1)
        self.under_way -= 1
        if number in self.fails:
            raise LookupError(number)
        return number

    async def note(self, question: str, answers: list[int], after_s: float = 0.0) -> None:
        await trio.sleep(after_s)
        try:
            answers.append(await self.runs.answer(question, self.ask))
        except LookupError:
            answers.append(-1)


async def test_those_who_ask_while_it_is_answered_share_the_next_answer(
    autojump_clock: trio.testing.MockClock,
) -> None:
    source, answers = Source(), list[int]()
    async with trio.open_nursery() as nursery:
        for number in range(9):
            nursery.start_soon(source.note, "q", answers, 0.1 * number)
    assert answers == [1, *[2] * 8]
    assert trio.current_time() == pytest.approx(2.0)
    assert len(source.runs) == 0


async def test_an_error_is_of_one_who_asked_and_the_next_asks_again(autojump_clock: trio.testing.MockClock) -> None:
    source, answers = Source(), list[int]()
    source.fails = {2}
    async with trio.open_nursery() as nursery:
        for number in range(4):
            nursery.start_soon(source.note, "q", answers, 0.1 * number)
    assert answers == [1, -1, 3, 3]


async def test_one_who_gives_up_does_not_take_the_answer_from_the_others(
    autojump_clock: trio.testing.MockClock,
) -> None:
    source, answers = Source(), list[int]()
    async with trio.open_nursery() as nursery:
        for number in range(3):
            nursery.start_soon(source.note, "q", answers, 0.1 * number)
        with trio.move_on_after(0.5):
            await source.runs.answer("q", source.ask)
    assert answers == [2, 2, 2]
    assert len(source.runs) == 0


async def test_different_questions_are_in_work_few_at_a_time(autojump_clock: trio.testing.MockClock) -> None:
    source, answers = Source(at_once=2), list[int]()
    async with trio.open_nursery() as nursery:
        for number in range(6):
            nursery.start_soon(source.note, str(number), answers)
    assert source.most == 2
    assert trio.current_time() == pytest.approx(3.0)
