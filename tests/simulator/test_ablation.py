"""Can the simulator see a missing rule? One rule is switched off, and some seed must notice.

What no random seed notices (terms on acknowledgements, votes counted per member, verified-only acknowledgements) has
scripted tests in tests/raft.
"""

from collections.abc import Callable
from typing import Any

import pytest

from jetraft.raft import acceptor, elections, following
from jetraft.raft.core import Core
from jetraft.raft.engine import Append
from jetraft.raft.group import Group
from jetraft.raft.joining import Admission
from jetraft.store.model.ids import NodeId
from jetraft.store.port import GroupLog
from tests.simulator import joining
from tests.simulator.engines import play
from tests.simulator.host import Host

SEEDS_MAX = 100


def first_violation(mode: str, *, seeds: int = SEEDS_MAX) -> str | None:
    for seed in range(seeds):
        try:
            problem = play(seed, mode).problem
        except (AssertionError, KeyError) as error:
            return f"seed {seed}: {error!r}"
        if problem is not None and problem.startswith("violation"):
            return f"seed {seed}: {problem}"
    return None


def send_at_once(core: Core, to: Any, message: Any) -> None:
    core.sends.append((to, message))


def cut_always(log: GroupLog, commit_index: int, append: Append, *, skip: int) -> acceptor.Verified:
    """What the stock library does: delete everything after the point that matches."""
    entries = append.entries[skip:]
    end_index = append.prev_index + len(append.entries)
    first_index = append.prev_index + skip + 1
    cut_index = first_index if entries and first_index <= log.last_index else None
    if cut_index is not None:
        log.cut_from(cut_index)
    if entries:
        log.append(entries)
    return acceptor.Verified(index=end_index, cut_index=cut_index, appended_from=skip if entries else None)


def believe_any_commit(core: Core, leader_commit: int) -> None:
    core.commit_index = max(core.commit_index, min(leader_commit, core.log.last_index))


def any_log_is_up_to_date(core: Core, request: Any) -> bool:
    return True


def take_part_as_before(host: Host) -> None:
    """With an empty log, and the old vote."""
    host.forgetful = False
    host.begin(host.log)


def call_it_a_learner(group: Group, node: NodeId, done: Callable[[Admission | str], None]) -> None:
    """Without a change of the members: the others go on counting on its vote and its acknowledgements."""
    done(Admission(configuration=group.configuration, term=group.term, vote=group.node_id))


ABLATIONS = {
    "who has lost its disk takes part as before (30)": (Host, "_ask_to_join", take_part_as_before, "forget"),
    "who has lost its disk is not demoted first (30)": (joining, "admit", call_it_a_learner, "forget"),
    "votes and acknowledgements leave before they are durable (2)": (Core, "send", send_at_once, "base"),
    "matching entries are deleted (9)": (acceptor, "_take", cut_always, "chaos"),
    "the commit index of others is not capped by what was verified (10)": (
        following,
        "_learn_commit",
        believe_any_commit,
        "base",
    ),
    "what is applied need not be durable (5)": (
        Core,
        "applicable_index",
        property(lambda core: core.commit_index),
        "base",
    ),
    "votes are given to logs that end earlier": (elections, "is_up_to_date", any_log_is_up_to_date, "base"),
}


@pytest.mark.parametrize("name", ABLATIONS)
def test_a_missing_rule_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, attribute, replacement, mode = ABLATIONS[name]
    monkeypatch.setattr(owner, attribute, replacement)
    assert first_violation(mode) is not None
