"""The core's tests, with the other engine: what they say of elections, following and leading is said of both.

Left out is what the engines do differently on purpose; a name here that is no test any more is an error.
"""

from types import ModuleType

import pytest

from jetraft.raft.pysyncobj.engine import create_engine
from tests.raft import rig
from tests.raft.engine import test_elections, test_following, test_leadership

DIFFERENT = {
    "test_a_real_election_waits_for_the_durable_own_term_and_vote": "the request waits for it, so a grant proves it",
    "test_a_commit_beyond_the_own_disk_is_neither_applied_nor_told": "such a commit is not counted at all",
    "test_a_peer_behind_the_log_is_offered_a_snapshot": "gives the core another log while it runs",
    "test_a_configuration_is_in_force_when_appended_and_rolled_back_when_cut": "fixed membership",
    "test_a_member_that_is_removed_stops_standing_for_election": "fixed membership",
    "test_members_change_one_voter_at_a_time_after_a_caught_up_learner": "fixed membership",
    "test_a_learner_that_is_far_behind_does_not_vote_yet": "fixed membership",
    "test_a_learner_votes_when_it_has_the_configuration_that_made_it_one": "fixed membership",
    "test_impossible_changes_are_refused": "fixed membership",
    "test_nobody_is_removed_when_those_that_remain_are_no_majority": "fixed membership",
    "test_a_change_waits_for_an_entry_of_the_own_term": "fixed membership",
    "test_a_change_of_members_waits_for_an_entry_of_the_own_term_and_asks_for_it": "fixed membership",
    "test_who_is_removed_is_told_that_nobody_leads_it_any_more": "fixed membership",
    "test_a_leader_that_has_nothing_to_find_out_writes_nothing": "the library appends its no-op whatever is committed",
    "test_the_only_member_of_an_empty_group_leads_at_once_and_writes_no_no_op": "its disk is a second voter",
    "test_only_a_leader_that_is_alone_gives_each_message_a_checksum_of_its_own": "it writes none",
    "test_a_transfer_to_a_member_that_is_removed_meanwhile_ends_too": "fixed membership",
}


@pytest.fixture(autouse=True)
def _other_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rig, "create_engine", create_engine)


def rules_of(module: ModuleType) -> dict[str, object]:
    return {name: value for name, value in vars(module).items() if name.startswith("test_")}


SHARED = rules_of(test_elections) | rules_of(test_following) | rules_of(test_leadership)
globals().update({name: test for name, test in SHARED.items() if name not in DIFFERENT})


def test_every_difference_is_one_of_a_test_that_exists() -> None:
    assert DIFFERENT.keys() <= SHARED.keys()
