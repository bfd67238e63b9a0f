"""So many verifications fit into a turn; the others wait, in their order."""

import trio

from jetraft.api.auth.verifying import PER_TURN, Verifications
from tests.harness.patience import PATIENCE_S


def test_a_turn_has_room_for_a_few_and_the_next_one_again() -> None:
    line = Verifications()
    assert [line.may_now(1) for _ in range(PER_TURN + 1)] == [True] * PER_TURN + [False]
    assert line.may_now(2)


async def test_what_waits_is_done_in_its_order_a_few_between_turns() -> None:
    line, done, turns = Verifications(), list[int](), list[int]()
    for number in range(2 * PER_TURN + 1):
        line.put(lambda number=number: done.append(number))  # type: ignore[misc]  # a default holds the number
    assert not line.may_now(1)

    def end_turn() -> None:
        turns.append(len(done))
        if len(done) > 2 * PER_TURN:
            nursery.cancel_scope.cancel()

    with trio.fail_after(PATIENCE_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(line.run, end_turn)
    assert done == sorted(done)
    assert turns == [PER_TURN, 2 * PER_TURN, 2 * PER_TURN + 1]
    assert line.may_now(1)
    assert line.statistics() == {"verified": len(done) + 1, "verified_later": len(done), "verifying": 0}
