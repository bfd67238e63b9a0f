"""Is every part of the guard needed? Without it PySyncObj's holes are open again, and some seed must notice."""

from collections.abc import Callable

import pytest

from jetraft.raft.engine.acceptor import AppendRefused
from jetraft.raft.engine.member import Member
from jetraft.raft.engine.messages import Append
from jetraft.raft.engine.ready import Effects
from jetraft.raft.pysyncobj import guard as guarding
from jetraft.raft.pysyncobj.compare import News, news_of
from jetraft.raft.pysyncobj.guard import Guard
from jetraft.raft.pysyncobj.replica import OWN_DISK
from jetraft.store.model.ids import NodeId
from jetraft.store.port import GroupLog
from tests.simulator.engines import play
from tests.simulator.mutations import CRASHES, send_at_once

SEEDS_MAX = 500
Patch = Callable[[pytest.MonkeyPatch], None]


def answers_leave_before_they_are_durable(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Effects, "send_when_durable", send_at_once)


def a_leader_counts_itself_at_once(patch: pytest.MonkeyPatch) -> None:
    def count_commit(guard: Guard, member: Member) -> None:
        member.commit_index = max(member.commit_index, guard.replica.commit_index)

    patch.setattr(Guard, "count_commit", count_commit)
    patch.setattr(Member, "applicable_index", property(lambda member: member.commit_index))


def what_was_not_compared_is_committed(patch: pytest.MonkeyPatch) -> None:
    def tell(guard: Guard, member: Member, leader: NodeId, news: News, leader_commit: int) -> None:
        reached = min(leader_commit, member.log.last_index)
        guard.replica.take(leader, prev_index=news.prev_index, entries=news.entries, commit_index=reached)
        member.commit_index = max(member.commit_index, min(reached, guard.replica.commit_index))

    patch.setattr(Guard, "_tell", tell)


def appends_reach_the_library_as_they_come(patch: pytest.MonkeyPatch) -> None:
    def compare(log: GroupLog, commit_index: int, append: Append) -> News | AppendRefused:
        news = news_of(log, commit_index, append)
        if isinstance(news, AppendRefused) or append.prev_index < log.boundary[0]:
            return news
        return News(
            verified_index=news.verified_index, prev_index=append.prev_index, entries=append.entries, cuts=False
        )

    patch.setattr(guarding, "news_of", compare)


def the_disk_of_a_group_of_one_is_not_asked(patch: pytest.MonkeyPatch) -> None:
    start = Member.start

    def start_leading(member: Member, now_ns: int) -> None:
        start(member, now_ns)
        member.decider.count_vote(member, OWN_DISK, now_ns)

    patch.setattr(Member, "start", start_leading)


@pytest.mark.parametrize(
    ("without", "mode", "first"),
    [
        (answers_leave_before_they_are_durable, "base", 30),
        (a_leader_counts_itself_at_once, "base", 0),
        (what_was_not_compared_is_committed, "base", 2),
        (appends_reach_the_library_as_they_come, "chaos", 5),
        (the_disk_of_a_group_of_one_is_not_asked, "one", 0),
    ],
)
def test_a_hole_that_is_open_again_is_noticed(
    without: Patch, mode: str, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the seed that did at first, or, when other changes have moved that, by another one."""
    without(monkeypatch)
    assert is_noticed(first, mode) or any(is_noticed(seed, mode) for seed in range(SEEDS_MAX))


def is_noticed(seed: int, mode: str) -> bool:
    try:
        problem = play(seed, mode, "pysyncobj").problem
    except CRASHES:
        return True
    return problem is not None and problem.startswith("violation")
