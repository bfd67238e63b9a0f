"""Is every part of the guard needed? Without it PySyncObj's holes are open again, and some seed must notice."""

from collections.abc import Callable
from typing import Any

import pytest

from jetraft.raft import pysyncobj_following, pysyncobj_leading
from jetraft.raft.engine import Append
from jetraft.raft.pysyncobj_compare import Mismatch, News, news_of
from jetraft.raft.pysyncobj_guard import Guard
from jetraft.raft.pysyncobj_replica import OWN_DISK
from jetraft.store.model.ids import NodeId
from jetraft.store.port import GroupLog
from tests.simulator.engines import play
from tests.simulator.mutations import CRASHES

SEEDS_MAX = 500
Patch = Callable[[pytest.MonkeyPatch], None]


def answers_leave_before_they_are_durable(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Guard, "send", lambda guard, to, message: guard.sends.append((to, message)))


def a_leader_counts_itself_at_once(patch: pytest.MonkeyPatch) -> None:
    def count_commit(guard: Guard) -> None:
        guard.commit_index = max(guard.commit_index, guard.replica.commit_index)

    patch.setattr(Guard, "count_commit", count_commit)
    patch.setattr(Guard, "applicable_index", property(lambda guard: guard.commit_index))


def what_was_not_compared_is_committed(patch: pytest.MonkeyPatch) -> None:
    def take(guard: Guard, leader: NodeId, news: News, leader_commit: int) -> None:
        reached = min(leader_commit, guard.log.last_index)
        guard.replica.take(leader, prev_index=news.prev_index, entries=news.entries, commit_index=reached)
        guard.commit_index = max(guard.commit_index, min(reached, guard.replica.commit_index))

    patch.setattr(pysyncobj_following, "_take", take)


def appends_reach_the_library_as_they_come(patch: pytest.MonkeyPatch) -> None:
    def compare(log: GroupLog, commit_index: int, append: Append) -> News | Mismatch:
        news = news_of(log, commit_index, append)
        if isinstance(news, Mismatch) or append.prev_index < log.boundary[0]:
            return news
        return News(
            verified_index=news.verified_index, prev_index=append.prev_index, entries=append.entries, cuts=False
        )

    patch.setattr(pysyncobj_following, "news_of", compare)


def the_disk_of_a_group_of_one_is_not_asked(patch: pytest.MonkeyPatch) -> None:
    start = Guard.start

    def start_leading(guard: Guard, now_ns: int) -> None:
        start(guard, now_ns)
        guard.replica.count_vote(OWN_DISK)
        pysyncobj_leading.lead_if_won(guard, now_ns)

    patch.setattr(Guard, "start", start_leading)


@pytest.mark.parametrize(
    ("without", "mode"),
    [
        (answers_leave_before_they_are_durable, "base"),
        (a_leader_counts_itself_at_once, "base"),
        (what_was_not_compared_is_committed, "base"),
        (appends_reach_the_library_as_they_come, "chaos"),
        (the_disk_of_a_group_of_one_is_not_asked, "one"),
    ],
)
def test_a_hole_that_is_open_again_is_noticed(without: Patch, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch)
    noticed: Any = None
    for seed in range(SEEDS_MAX):
        try:
            noticed = play(seed, mode, "pysyncobj").problem
        except CRASHES as error:
            noticed = f"violation: {error}"
        if noticed is not None and noticed.startswith("violation"):
            return
    pytest.fail(f"{SEEDS_MAX} seeds notice nothing")
