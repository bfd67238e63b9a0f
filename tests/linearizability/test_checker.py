"""The checker itself: it refuses what no register does, accepts what one may do, and says when it does not know."""

import itertools
from random import Random

import pytest

from tests.linearizability.checker import ABSENT, NEVER, Action, Judgement, Operation, judge
from tests.linearizability.lists import Append, Look, wrong_in_list


def op(action: Action, value: str, begin_ns: int, end_ns: int = NEVER, *, expected: str = ABSENT) -> Operation:
    return Operation(action=action, value=value, expected=expected, begin_ns=begin_ns, end_ns=end_ns)


READ, WRITE, SWAP, REFUSED = Action.READ, Action.WRITE, Action.SWAP, Action.REFUSED


@pytest.mark.parametrize(
    "history",
    [
        [],
        [op(READ, ABSENT, 1, 2)],
        [op(WRITE, "a", 1, 2), op(READ, "a", 3, 4)],
        [op(WRITE, "a", 1, 9), op(READ, ABSENT, 2, 3), op(READ, "a", 4, 5)],
        [op(WRITE, "a", 1), op(READ, ABSENT, 2, 3), op(READ, "a", 40, 50)],
        [op(WRITE, "a", 1), op(READ, ABSENT, 2, 3)],
        [op(SWAP, "a", 1, 2), op(SWAP, "b", 3, 4, expected="a"), op(READ, "b", 5, 6)],
        [op(SWAP, "a", 1, 2), op(REFUSED, "b", 3, 4, expected=ABSENT), op(READ, "a", 5, 6)],
        [op(SWAP, "a", 1, 9), op(REFUSED, "b", 2, 3, expected=ABSENT)],
        [op(SWAP, "a", 1, 2), op(SWAP, "b", 3, expected=ABSENT), op(READ, "a", 4, 5)],
        [op(WRITE, "a", 1, 2), op(READ, "b", 3)],
    ],
    ids=str,
)
def test_what_a_register_may_do_is_accepted(history: list[Operation]) -> None:
    assert judge(history) is Judgement.LINEARIZABLE


@pytest.mark.parametrize(
    "history",
    [
        [op(READ, "a", 1, 2)],
        [op(WRITE, "a", 1, 2), op(READ, ABSENT, 3, 4)],
        [op(WRITE, "a", 1, 2), op(WRITE, "b", 3, 4), op(READ, "a", 5, 6)],
        [op(WRITE, "a", 1, 9), op(READ, "a", 2, 3), op(READ, ABSENT, 4, 5)],
        [op(WRITE, "a", 1), op(READ, "a", 2, 3), op(READ, ABSENT, 4, 5)],
        [op(SWAP, "a", 1, 2), op(SWAP, "b", 3, 4, expected=ABSENT)],
        [op(SWAP, "a", 1, 5), op(SWAP, "b", 2, 6)],
        [op(REFUSED, "b", 1, 2, expected=ABSENT)],
        [op(SWAP, "a", 3, 4), op(REFUSED, "b", 1, 2, expected=ABSENT)],
        [op(WRITE, "a", 5, 6), op(READ, "a", 1, 2)],
    ],
    ids=str,
)
def test_what_no_register_does_is_refused(history: list[Operation]) -> None:
    assert judge(history) is Judgement.REFUSED


def played(random: Random, count: int) -> list[Operation]:
    """A history of a real register: each operation takes place at a moment within its time."""
    moments = sorted(random.sample(range(10, 10 * count), count))
    state, found = ABSENT, []
    for number, moment in enumerate(moments):
        begin_ns, end_ns = moment - random.randint(0, 30), moment + random.randint(0, 30)
        action, value = random.choice([READ, WRITE, SWAP]), f"v{number}"
        expected = random.choice([state, "other"])
        if action is READ:
            found.append(op(READ, state, begin_ns, end_ns))
        elif action is WRITE or expected == state:
            found.append(op(action, value, begin_ns, random.choices([end_ns, NEVER], [9, 1])[0], expected=expected))
            state = value
        else:
            found.append(op(REFUSED, value, begin_ns, end_ns, expected=expected))
    return found


def order_exists(history: list[Operation]) -> bool:
    """The definition, tried out."""
    known = [one for one in history if one.is_known]
    lost = [one for one in history if not one.is_known]
    for count in range(len(lost) + 1):
        for some in itertools.combinations(lost, count):
            for order in itertools.permutations([*known, *some]):
                state: str | None = ABSENT
                for place, one in enumerate(order):
                    if any(later.end_ns < one.begin_ns for later in order[place + 1 :]):
                        break
                    applies = one.action is not SWAP or one.expected == state
                    if one.action is READ and one.value != state:
                        break
                    if one.action is REFUSED and one.expected == state:
                        break
                    if not applies and one.is_known:
                        break
                    state = one.value if one.action is WRITE or (one.action is SWAP and applies) else state
                else:
                    return True
    return False


@pytest.mark.parametrize("seed", range(40))
def test_histories_of_a_register_are_accepted(seed: int) -> None:
    assert judge(played(Random(seed), 150)) is Judgement.LINEARIZABLE


@pytest.mark.parametrize("seed", range(60))
def test_it_agrees_with_the_definition(seed: int) -> None:
    random = Random(seed)
    history = played(random, 6)
    values = [one.value for one in history]
    bent = [
        op(one.action, random.choice(values), one.begin_ns, one.end_ns, expected=one.expected)
        if one.action is READ and random.random() < 0.7
        else one
        for one in history
    ]
    assert judge(bent) is (Judgement.LINEARIZABLE if order_exists(bent) else Judgement.REFUSED)


def test_a_search_that_is_too_long_decides_nothing() -> None:
    together = [op(WRITE, f"v{number}", 1, 100) for number in range(30)]
    assert judge([*together, op(READ, "none", 200, 300)], steps_max=1_000) is Judgement.UNDECIDED


def test_a_list_in_the_order_of_its_appends_is_accepted() -> None:
    appends = [Append("a", 1, 2, 1), Append("b", 3, NEVER, 0), Append("c", 5, 6, 3)]
    assert wrong_in_list(appends, [Look(7, 8, 3), Look(2, 9, 1)], {1: "a", 2: "b", 3: "c"}) == []


@pytest.mark.parametrize(
    ("appends", "looks", "held", "what"),
    [
        ([Append("a", 1, 2, 1)], [], {}, "is lost"),
        ([Append("a", 1, 2, 1)], [], {1: "a", 2: "a"}, "twice"),
        ([Append("a", 1, 2, 1)], [], {1: "a", 2: "x"}, "never sent"),
        ([Append("a", 1, 2, 2), Append("b", 3, 4, 1)], [], {1: "b", 2: "a"}, "before"),
        ([Append("a", 1, 2, 1), Append("b", 3, 4, 2)], [Look(5, 6, 1)], {1: "a", 2: "b"}, "was acknowledged before"),
        ([Append("a", 1, NEVER, 0)], [Look(2, 3, 1), Look(4, 5, 0)], {1: "a"}, "was seen before"),
        ([Append("a", 5, 6, 1)], [Look(2, 3, 1)], {1: "a"}, "before it was sent"),
    ],
)
def test_what_is_wrong_in_a_list_is_named(
    appends: list[Append], looks: list[Look], held: dict[int, str], what: str
) -> None:
    assert [text for text in wrong_in_list(appends, looks, held) if what in text]
