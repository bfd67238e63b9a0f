from hypothesis import given
from hypothesis import strategies as st

from jetraft.raft.mesh.log_limiter import LINES_MAX, PERIOD_NS, TEXT_CHARS_MAX, LogLimiter


def test_the_same_thing_is_said_once_in_a_period_and_the_next_line_counts_the_rest() -> None:
    complaints = LogLimiter()
    said = [complaints.line("key", f"text {n}", n) for n in range(5)]
    assert said == ["text 0", None, None, None, None]
    assert complaints.line("key", "again", PERIOD_NS) == "again (4 more complaints were not logged)"
    assert complaints.unsaid == 4


def test_different_things_are_said_beside_each_other() -> None:
    complaints = LogLimiter()
    assert [complaints.line(key, key, 0) for key in ("a", "b", "a")] == ["a", "b", None]


@given(st.lists(st.tuples(st.integers(0, PERIOD_NS // 3), st.integers(0, 200)), max_size=300))
def test_whoever_complains_of_whatever_there_are_never_many_lines(moments: list[tuple[int, int]]) -> None:
    complaints, now_ns = LogLimiter(), 0
    lines = 0
    for later_ns, key in moments:
        now_ns += later_ns
        lines += complaints.line(key, "x", now_ns) is not None
        assert len(complaints._said_ns) <= 2 * LINES_MAX
    assert lines <= LINES_MAX * (1 + now_ns // PERIOD_NS)


def test_a_strangers_words_are_one_line_of_bounded_length() -> None:
    line = LogLimiter().line("key", "a\n2026 [INF] all is well\x1b[2J" + "x" * 10_000, 0)
    assert line is not None
    assert line.isprintable()
    assert len(line) == TEXT_CHARS_MAX
