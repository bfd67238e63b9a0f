import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetraft.raft.engine.acceptor import AppendRefused, LogDivergedError
from jetraft.raft.engine.messages import Append
from jetraft.raft.pysyncobj.compare import News, news_of
from jetraft.store.log.mem_log import MemLog
from tests.raft.rig import entries

TERMS = st.lists(st.integers(1, 4), max_size=8).map(sorted)


def log_of(terms: list[int]) -> MemLog:
    log = MemLog()
    if terms:
        log.append(entries(*terms))
    return log


def append_of(leader: list[int], prev_index: int, count: int) -> Append:
    prev_term = leader[prev_index - 1] if prev_index else 0
    sent = entries(*leader)[prev_index : prev_index + count]
    return Append(term=9, prev_index=prev_index, prev_term=prev_term, commit_index=0, entries=sent)


def take(log: MemLog, news: News) -> None:
    """What PySyncObj does with a message: delete everything after the point, then append."""
    if log.last_index > news.prev_index:
        log.cut_from(news.prev_index + 1)
    log.append(news.entries)


@given(common=TERMS, own=TERMS, leads=TERMS, data=st.data())
def test_the_log_equals_the_leaders_up_to_what_is_verified(
    common: list[int], own: list[int], leads: list[int], data: st.DataObject
) -> None:
    """Tails begin with different terms, as they do in Raft: a term has one leader."""
    first = max(common, default=0)
    mine = [*common, *[first + 2 * term for term in own]]
    leader = [*common, *[first + 2 * term + 1 for term in leads]]
    prev_index = data.draw(st.integers(0, len(leader)))
    message = append_of(leader, prev_index, data.draw(st.integers(0, 8)))
    log = log_of(mine)
    news = news_of(log, len(common), message)
    if isinstance(news, AppendRefused):
        assert prev_index > len(common)
        assert len(common) < news.hint_index <= min(prev_index, len(mine) + 1)
        return
    take(log, news)
    assert news.verified_index == prev_index + len(message.entries)
    assert [log.term_at(index) for index in range(1, news.verified_index + 1)] == leader[: news.verified_index]
    if news.verified_index <= len(common):
        assert log.last_index == len(mine), "a part that is equal costs nothing"


def test_a_hint_jumps_over_a_whole_term() -> None:
    log = log_of([1, 1, 2, 2, 2, 3])
    message = Append(term=9, prev_index=5, prev_term=1, commit_index=0, entries=())
    assert news_of(log, 1, message) == AppendRefused(hint_index=3)
    assert news_of(log, 4, message) == AppendRefused(hint_index=5), "not below what is committed"


def test_a_committed_entry_is_never_cut() -> None:
    log = log_of([1, 1, 1])
    message = Append(term=9, prev_index=1, prev_term=1, commit_index=0, entries=entries(2, first=2))
    with pytest.raises(LogDivergedError, match="index 2 is committed"):
        news_of(log, 2, message)
    assert log.last_index == 3


def test_what_lies_below_the_boundary_is_passed_over() -> None:
    log = MemLog(block_bytes=100)
    log.append(entries(*[1] * 8))
    log.submit()
    for _ in range(2):
        log.save_checkpoint(6, 1, b"", b"")
    log.submit()
    log.trim(2**63, 6)
    boundary = log.boundary[0]
    assert boundary > 2
    short, long = append_of([1] * 9, 0, 2), append_of([1] * 9, 1, 8)
    assert news_of(log, 6, short) == News(verified_index=boundary, prev_index=8, entries=(), cuts=False)
    news = news_of(log, 6, long)
    assert isinstance(news, News)
    assert (news.verified_index, news.prev_index, [each.index for each in news.entries]) == (9, 8, [9])
