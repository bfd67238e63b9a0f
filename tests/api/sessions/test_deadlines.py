from jetraft.api.plane.reasons import Reason
from jetraft.api.sessions.deadlines import HEAP_SLACK, AuthDeadlines
from jetraft.store.model.clock import NS_PER_S, ManualClock

Closed = list[tuple[int, int, bytes]]


def made() -> tuple[AuthDeadlines, ManualClock, Closed]:
    clock = ManualClock()
    return AuthDeadlines(2 * NS_PER_S, clock), clock, []


def test_who_does_not_name_itself_in_time_is_closed_and_nobody_else() -> None:
    deadlines, clock, closed = made()
    for cid in (1, 2, 3):
        deadlines.begin(cid)
    deadlines.named(2)
    clock.advance(2 * NS_PER_S)
    deadlines.begin(4)
    assert deadlines.run_due(lambda *row: closed.append(row)) == 2
    text = b"-ERR 'Authentication Timeout'\r\n"
    assert closed == [(cid, Reason.AUTHENTICATION_TIMEOUT, text) for cid in (1, 3)]
    assert deadlines.statistics() == {"unnamed": 1, "expiring": 0}


def test_a_user_that_expires_is_told_so() -> None:
    deadlines, clock, closed = made()
    deadlines.expire(1, clock.unix_ns() + NS_PER_S)
    deadlines.expire(2, clock.unix_ns() + NS_PER_S)
    deadlines.gone(2)
    assert deadlines.run_due(lambda *row: closed.append(row)) == 0
    clock.advance(NS_PER_S)
    deadlines.run_due(lambda *row: closed.append(row))
    assert closed == [(1, Reason.AUTHENTICATION_EXPIRED, b"-ERR 'User Authentication Expired'\r\n")]


def test_connections_that_have_gone_leave_nothing_behind() -> None:
    deadlines, clock, _ = made()
    for cid in range(10 * HEAP_SLACK):
        deadlines.expire(cid, clock.unix_ns() + NS_PER_S)
        deadlines.gone(cid)
    assert len(deadlines._expiring) <= HEAP_SLACK + 1
