"""The lines of each kind have a limit, and what was left out is counted."""

from jetraft.api.logs.log_budget import KINDS_MAX, LEFT_OUT_NS, NS_PER_HOUR, LogBudget
from jetraft.api.logs.log_forms import formed
from jetraft.store.model.clock import NS_PER_S, ManualClock
from jetraft.store.model.events import KINDS, LINES_LEFT_OUT, EventKind

DAY_S = 24 * 3600
BYTES_A_DAY_MAX = 10_000_000
AT_ONCE = 12  # kinds of a busy cluster that come without end; the longest ones are taken


def test_a_burst_is_written_then_so_many_an_hour() -> None:
    clock = ManualClock()
    budget = LogBudget(clock)
    assert [budget.admits("a", 3, 60) for _ in range(5)] == [True] * 3 + [False] * 2
    assert budget.admits("b", 3, 60), "each kind has its own"
    clock.advance(NS_PER_HOUR // 60)
    assert [budget.admits("a", 3, 60) for _ in range(2)] == [True, False]
    clock.advance(NS_PER_HOUR)
    assert [budget.admits("a", 3, 60) for _ in range(4)] == [True] * 3 + [False]
    assert budget.left_out == 4


def test_what_was_left_out_is_told_once_in_a_while() -> None:
    clock = ManualClock()
    budget = LogBudget(clock)
    for _ in range(8):
        budget.admits("a", 1, 0)
    assert list(budget.take_left_out()) == [("a", 7)]
    assert list(budget.take_left_out()) == []
    budget.admits("a", 1, 0)
    assert list(budget.take_left_out()) == [], "it was told just now"
    clock.advance(LEFT_OUT_NS)
    assert list(budget.take_left_out()) == [("a", 1)]


def test_kinds_without_number_do_not_fill_the_memory() -> None:
    budget = LogBudget(ManualClock())
    admitted = sum(budget.admits(f"kind {number}", 1, 0) for number in range(10 * KINDS_MAX))
    assert admitted == KINDS_MAX + 1
    assert len(budget._kinds) == KINDS_MAX + 1


def test_a_day_of_a_busy_cluster_is_below_ten_megabytes() -> None:
    """The kinds with the most bytes come without end, all of them at once, in the longest form."""

    def sample(kind: EventKind) -> int:
        fields = dict.fromkeys(kind.fields, "a-value-of-usual-length")
        return len(formed("json", "WRN", kind.text.format_map(fields), kind.name, fields)) + 1

    def day(kind: EventKind) -> int:
        clock = ManualClock()
        budget, count, told = LogBudget(clock), 0, 0
        for _ in range(DAY_S // 10):
            for _ in range(5):
                count += budget.admits(kind.name, kind.burst, kind.per_hour)
            told += len(list(budget.take_left_out()))
            clock.advance(10 * NS_PER_S)
        return count * sample(kind) + told * sample(LINES_LEFT_OUT)

    days = sorted((day(kind) for kind in KINDS if kind is not LINES_LEFT_OUT), reverse=True)
    assert sum(days[:AT_ONCE]) < BYTES_A_DAY_MAX
