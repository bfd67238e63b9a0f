"""Rules whose absence no seed can notice, switched off one at a time: tests of their own must fail then.

They cost bytes, time or availability, not promises, or stand behind another rule. Each entry names the tests; a test
that still passes while the rule is off is no test of it.
"""

import sys
from collections.abc import Callable, Iterable
from typing import Any

import attrs
import pytest
import trio

from jetraft.cluster.membership import reshape
from jetraft.cluster.meta.currency import Currency
from jetraft.cluster.meta.table_lease import TableLease
from jetraft.raft import wire
from jetraft.raft.engine import acceptor, elections, leadership
from jetraft.raft.engine.acceptor import AppendRefused, Verified
from jetraft.raft.engine.handlers import HANDLERS
from jetraft.raft.engine.leadership import Leadership
from jetraft.raft.engine.member import Member
from jetraft.raft.engine.membership import Configuration, ConfigurationHistory
from jetraft.raft.engine.messages import Append, LeaderSeen, PreVoteGrant, PreVoteRequest, TransferNow
from jetraft.raft.engine.ready import Effects
from jetraft.raft.engine.replication import Progress, Replication
from jetraft.raft.group import Group
from jetraft.raft.manager import Manager
from jetraft.raft.mesh import framing, link, peers
from jetraft.raft.mesh.handshake import HandshakeVerdict
from jetraft.raft.recovery import catchup, joining, repair_rules
from jetraft.raft.recovery.snapshot import SnapshotGoneError
from jetraft.raft.turns import Turns
from jetraft.store.frames._frame import crc32c, parse_header, scan
from jetraft.store.log import snapshot
from jetraft.store.model.files.manifest import Part
from jetraft.store.model.files.store_age import KnownAge
from jetraft.store.model.ids import NodeId
from jetraft.store.port import GroupLog
from tests.simulator.mutations import own_vote_counts_at_once, send_at_once
from tests.simulator.unit_runs import Patch, UnitMutation


def everywhere(patch: Patch, found: Callable[..., object], value: Any) -> None:
    """Put `value` in the place of a function in every module that has imported it, of jetraft or of its tests."""
    name = found.__name__
    for module_name, module in list(sys.modules.items()):
        if module_name.startswith(("jetraft.", "tests.")) and getattr(module, name, None) is found:
            patch.setattr(module, name, value)


def promises_leave_at_once(patch: Patch) -> None:
    """Rule 4 has to be off, too: no member leads before its term is durable, so appends never wait for it."""
    patch.setattr(Effects, "send_when_durable", send_at_once)
    patch.setattr(Effects, "send_in_term", send_at_once)
    own_vote_counts_at_once(patch)


def all_founders_lead_at_once(patch: Patch) -> None:
    patch.setattr(Member, "is_founder", property(lambda member: member.configuration.voters == (member.node_id,)))


def the_boundary_is_compared(patch: Patch) -> None:
    real = acceptor.accept

    def careless(log: GroupLog, commit_index: int, append: Append) -> Verified | AppendRefused:
        if append.prev_index < log.boundary[0]:
            return AppendRefused(hint_index=log.boundary[0] + 1)
        return real(log, commit_index, append)

    everywhere(patch, real, careless)


def any_reject_counts(patch: Patch) -> None:
    def careless(_replication: Replication, peer: Progress, _prev_index: int, hint_index: int) -> None:
        peer.probe()
        peer.next_index = max(peer.match_index + 1, hint_index)

    patch.setattr(Replication, "rejected", careless)


def acknowledgements_set_the_pipeline_back(patch: Patch) -> None:
    acknowledge = Progress.acknowledge

    def careless(peer: Progress, verified_index: int) -> None:
        acknowledge(peer, verified_index)
        peer.next_index = peer.match_index + 1

    patch.setattr(Progress, "acknowledge", careless)


def sessions_do_not_matter(patch: Patch) -> None:
    def careless(replication: Replication, node: NodeId, *, up: bool) -> None:
        replication.peers[node].up = up

    patch.setattr(Replication, "set_link", careless)


def hints_go_back_by_one(patch: Patch) -> None:
    patch.setattr(acceptor, "_first_index_of_term", lambda _log, _term, _low, high: high - 1)


def windows_have_no_end(patch: Patch) -> None:
    append = Replication._append

    def careless(replication: Replication, peer: Progress, now_ns: int, commit_index: int) -> bool:
        sent = append(replication, peer, now_ns, commit_index)
        peer.inflight_bytes = 0
        return sent

    patch.setattr(Replication, "_append", careless)


def links_queue_twice_as_much(patch: Patch) -> None:
    send = link.Link.send

    def careless(self: link.Link, channel: int, payload: bytes) -> bool:
        with pytest.MonkeyPatch.context() as during:
            during.setattr(self, "queue_bytes_max", 2 * self.queue_bytes_max)
            return send(self, channel, payload)

    patch.setattr(link.Link, "send", careless)


def pre_votes_raise_the_term(patch: Patch) -> None:
    def careless(member: Member, sender: NodeId, message: PreVoteRequest, now_ns: int) -> None:
        member.decider.follow(member, None, message.term, now_ns)
        member.effects.send_now(sender, PreVoteGrant(term=message.term))

    patch.setitem(HANDLERS, PreVoteRequest, careless)


def votes_are_given_under_a_leader(patch: Patch) -> None:
    patch.setattr(Member, "has_leader", property(lambda _member: False))


def leaders_need_nobody(patch: Patch) -> None:
    patch.setattr(Leadership, "_step_down_ns", lambda _leadership: None)


def targets_are_told_at_once(patch: Patch) -> None:
    begin = Leadership.begin_transfer

    def careless(
        leading: Leadership, target: NodeId | None, now_ns: int, *, waits_for_disk: bool = True
    ) -> NodeId | None:
        found = begin(leading, target, now_ns, waits_for_disk=waits_for_disk)
        if found is not None:
            leading._send(found, TransferNow(term=leading.term))
        return found

    patch.setattr(Leadership, "begin_transfer", careless)


def anybody_may_hand_over(patch: Patch) -> None:
    def careless(member: Member, _sender: NodeId, _message: TransferNow, now_ns: int) -> None:
        elections.stand(member, now_ns, transfer=True)

    patch.setitem(HANDLERS, TransferNow, careless)


def frames_of_entries_are_believed(patch: Patch) -> None:
    def careless(frame: bytes, index: int, incarnation: int) -> tuple[int, int, int] | None:
        header = parse_header(frame)
        is_in_place = header.log_index == index and header.incarnation == incarnation
        return (header.term, header.kind, header.version) if is_in_place else None

    patch.setattr(wire, "sound_entry", careless)


def frames_of_links_are_believed(patch: Patch) -> None:

    def careless(data: Any, seed: int = 0) -> int:
        """What the reader compares with; the writer's side is left alone."""
        caller = sys._getframe(1)
        return int(caller.f_locals["checksum"]) if caller.f_code.co_name == "received" else int(crc32c(data, seed))

    patch.setattr(framing, "crc32c", careless)


def frames_overtake_each_other(patch: Patch) -> None:
    send = link.Link.send

    def careless(self: link.Link, channel: int, payload: bytes) -> bool:
        sent = send(self, channel, payload)
        queue = self._queues[channel]
        if channel and len(queue) >= 4:
            last = [queue.pop(), queue.pop()]
            before = [queue.pop(), queue.pop()]
            queue.extend([*reversed(last), *reversed(before)])
        return sent

    patch.setattr(link.Link, "send", careless)


def every_route_is_a_session(patch: Patch) -> None:
    patch.setattr(peers.Mesh, "judge", lambda _mesh, _hello: HandshakeVerdict.KEEP)


def apply_may_raise(patch: Patch) -> None:
    fail = Turns.fail

    def careless(turns: Turns, error: Exception, now_ns: int) -> None:
        if isinstance(error, OSError):
            fail(turns, error, now_ns)

    patch.setattr(Turns, "fail", careless)


def learners_count(patch: Patch) -> None:
    def careless(configuration: Configuration, nodes: Iterable[NodeId]) -> bool:
        return 2 * len(set(nodes).intersection(configuration.members)) > len(configuration.members)

    def quorum_index(replication: Replication, now: Configuration, node_id: NodeId, durable_index: int) -> int:
        indexes = [durable_index if each == node_id else replication.peers[each].match_index for each in now.members]
        return sorted(indexes)[(len(indexes) - 1) // 2]

    patch.setattr(Configuration, "has_quorum", careless)
    patch.setattr(Replication, "quorum_index", quorum_index)


def learners_stand(patch: Patch) -> None:
    patch.setattr(Configuration, "voters", property(lambda configuration: configuration.members))


def learners_vote_at_once(patch: Patch) -> None:
    patch.setattr(leadership, "NEARLY_CAUGHT_UP_ENTRIES", 1 << 62)


def nothing_is_settled(patch: Patch) -> None:
    def append(history: ConfigurationHistory, index: int, _term: int, configuration: Configuration) -> None:
        history._entries.append((index, configuration))

    patch.setattr(ConfigurationHistory, "append", append)


def the_filled_vote(patch: Patch) -> None:
    patch.setattr(elections, "_is_filled", lambda _member: True)


def older_copies_fit(patch: Patch) -> None:
    patch.setattr(KnownAge, "is_after", lambda _known, _age: False)


def members_leave_before_others_come(patch: Patch) -> None:
    def careless(
        node_id: NodeId, wanted: Iterable[NodeId], now: Configuration, contact: reshape.Contact
    ) -> reshape.Step:
        if now.voters != (node_id,):
            return reshape._shrink(node_id, set(wanted), now, contact)
        return real(node_id, wanted, now, contact)

    real = reshape.next_step
    everywhere(patch, real, careless)


def removals_ask_for_no_majority(patch: Patch) -> None:
    real = reshape._shrink

    def careless(node: NodeId, targets: set[NodeId], now: Configuration, contact: reshape.Contact) -> reshape.Step:
        return real(node, targets, now, attrs.evolve(contact, online=frozenset(now.members)))

    patch.setattr(reshape, "_shrink", careless)


def members_are_always_in_contact(patch: Patch) -> None:
    patch.setattr(Replication, "in_contact", lambda replication: list(replication.peers))


def demotions_ask_for_no_majority(patch: Patch) -> None:
    real = Configuration.has_quorum

    def careless(configuration: Configuration, nodes: Iterable[NodeId]) -> bool:
        return sys._getframe(1).f_code is joining.admit.__code__ or real(configuration, nodes)

    patch.setattr(Configuration, "has_quorum", careless)
    members_are_always_in_contact(patch)  # the engine would refuse it, too


def parts_are_believed(patch: Patch) -> None:
    def careless(data: bytes | bytearray, part: Part, *, offset: int, incarnation: int, what: str) -> Any:
        assert what
        return scan(
            data,
            offset=offset,
            incarnation=incarnation,
            next_index=part.first_index,
            term=part.boundary_term,
        )

    everywhere(patch, snapshot.verify_part, careless)


def what_is_fetched_is_not_held(patch: Patch) -> None:
    def careless(_catchup: catchup.Catchup, group: Group, index: int) -> catchup._Held:
        found = group.snapshot()
        if found is None or found[1].index > index:
            raise SnapshotGoneError("gone")
        return catchup._Held(*found, 0)

    patch.setattr(catchup.Catchup, "_hold", careless)


def a_wanted_snapshot_stays_wanted(patch: Patch) -> None:
    patch.setattr(catchup.Catchup, "_is_wanted", lambda *_: True)
    everywhere(patch, snapshot.covers, lambda *_: False)


def any_table_is_current(patch: Patch) -> None:
    patch.setattr(
        Currency, "is_proved", property(lambda _currency: True, lambda _currency, _value: None), raising=False
    )


def the_meta_leader_is_not_asked(patch: Patch) -> None:
    async def careless(_lease: TableLease, _age_ns: int) -> bool:
        await trio.lowlevel.checkpoint()
        return True

    patch.setattr(TableLease, "is_fresh", careless)


def a_leader_of_before_may_go_on(patch: Patch) -> None:
    real = repair_rules.electable
    everywhere(patch, real, lambda answers, **_: real(answers, above_term=-1))


def the_unsure_are_not_heard(patch: Patch) -> None:
    real = repair_rules.term_of_lost
    everywhere(patch, real, lambda log, index, found: real(log, index, [one for one in found if one.term_before]))


def who_does_not_lead_is_silent(patch: Patch) -> None:
    def silent(member: Member, sender: NodeId, message: LeaderSeen, now_ns: int) -> None:
        if member.leadership is not None and message.term == member.term:
            member.leadership.on_seen(sender, now_ns)

    patch.setitem(HANDLERS, LeaderSeen, silent)
    patch.setattr(Manager, "_disclaim", lambda *_: None)


REASONS = {  # why no seed can notice that a rule is missing
    3: "no member leads before its term is durable (4), so appends never wait for it",
    4: "an exception of the only member; seeds meet the rule itself",
    11: "without it a late append is refused instead of skipped, which is safe too",
    13: "costs bytes and time, not promises",
    14: "costs questions, not promises",
    15: "bounds memory",
    18: "keeps leaders in office",
    19: "ends waiting: a stale leader commits nothing, and its reads ask a majority (21)",
    20: "an early or uninvited transfer is an election like any other",
    22: "the simulated peers are honest",
    23: "is off in half of the runs: `chaos` lets old frames arrive late and twice; only an admission rests on it",
    26: "the stream's machine does not raise",
    29: "costs availability, not promises",
    30: "takes a fill that breaks off between configurations without a common voter, or a store that is put back",
    31: "is an order of steps, each safe by itself (28)",
    32: "is an order of steps, each safe by itself (28)",
    34: "the simulated links damage nothing",
    36: "costs another transfer, not promises",
    37: "the window is a queue of starts with a change of leader inside: hundreds of seeds do not meet it",
    38: "the streams of the other modes have one row, which never changes hands",
    39: "two members lose one entry, one of them the entry before, too, and only that one knows the term of the other",
    42: "the other modes have no meta group, and mode `node` restarts by it without asking what it rests on",
    43: "a late append has to come in one moment: `lost-end` meets that in one seed of a thousand",
    44: "costs half a minute: a lease ends such a claim (41)",
}

UNIT_MUTATIONS = [
    UnitMutation(
        3,
        "requests and appends leave before term and vote are durable (and a member's own vote counts at once)",
        promises_leave_at_once,
        ("raft/engine/test_elections.py::test_a_real_election_waits_for_the_durable_own_term_and_vote",),
    ),
    UnitMutation(
        4,
        "a member that is the only voter leads before its vote is durable, also with entries or a learner",
        all_founders_lead_at_once,
        (
            "raft/engine/test_elections.py::test_a_group_of_one_leads_as_soon_as_its_vote_is_durable",
            "raft/engine/test_elections.py::test_an_empty_group_with_a_learner_has_a_leader_when_the_vote_is_durable",
        ),
    ),
    UnitMutation(
        11,
        "an append from below the boundary is refused",
        the_boundary_is_compared,
        ("raft/engine/test_acceptor.py::test_what_the_boundary_covers_is_skipped",),
    ),
    UnitMutation(
        13,
        "any reject counts",
        any_reject_counts,
        ("raft/engine/test_leadership.py::test_a_reject_counts_only_for_the_outstanding_probe",),
    ),
    UnitMutation(
        13,
        "an acknowledgement sets the pipeline back",
        acknowledgements_set_the_pipeline_back,
        ("raft/engine/test_leadership.py::test_nothing_is_sent_twice_in_a_session",),
    ),
    UnitMutation(
        13,
        "a new session goes on where the last one ended",
        sessions_do_not_matter,
        ("raft/engine/test_leadership.py::test_a_new_session_is_probed_before_the_pipeline_continues",),
    ),
    UnitMutation(
        14,
        "a hint goes back by one entry",
        hints_go_back_by_one,
        ("raft/engine/test_acceptor.py::test_the_hint_jumps_over_the_whole_conflicting_term",),
    ),
    UnitMutation(
        15,
        "a window has no end",
        windows_have_no_end,
        ("raft/engine/test_leadership.py::test_a_peer_is_paused_when_its_window_is_full",),
    ),
    UnitMutation(
        15,
        "a link queues more than its bound",
        links_queue_twice_as_much,
        ("raft/mesh/test_link.py::test_a_peer_that_does_not_read_ends_the_session_at_a_bound",),
    ),
    UnitMutation(
        18,
        "a pre-vote raises the voter's term",
        pre_votes_raise_the_term,
        ("raft/engine/test_elections.py::test_a_pre_vote_changes_nothing_at_the_voter",),
    ),
    UnitMutation(
        18,
        "votes are given while a leader is alive",
        votes_are_given_under_a_leader,
        ("raft/engine/test_elections.py::test_votes_are_refused_while_a_leader_claims_the_group",),
    ),
    UnitMutation(
        19,
        "a leader without contact to a majority stays",
        leaders_need_nobody,
        (
            "raft/engine/test_elections.py::test_a_leader_without_contact_to_a_majority_steps_down_after_a_second",
            "raft/test_group.py::test_a_leader_that_is_cut_off_answers_unknown",
        ),
    ),
    UnitMutation(
        20,
        "the target of a transfer is told before it has everything",
        targets_are_told_at_once,
        ("raft/engine/test_leadership.py::test_transfer_tells_the_target_when_it_has_everything_and_all_is_answered",),
    ),
    UnitMutation(
        20,
        "any member's transfer is accepted",
        anybody_may_hand_over,
        ("raft/engine/test_elections.py::test_transfer_is_accepted_from_the_current_leader_only",),
    ),
    UnitMutation(
        22,
        "the checksum of an entry is not looked at",
        frames_of_entries_are_believed,
        ("raft/test_wire.py::test_any_flipped_bit_of_an_entry_is_refused",),
    ),
    UnitMutation(
        22,
        "the checksum of a frame between nodes is not looked at",
        frames_of_links_are_believed,
        ("raft/mesh/test_framing.py::test_no_frame_that_was_changed_comes_out",),
    ),
    UnitMutation(
        23,
        "a frame overtakes another one",
        frames_overtake_each_other,
        ("raft/mesh/test_peers.py::test_frames_arrive_in_order_and_whole",),
    ),
    UnitMutation(
        23,
        "each route of a pair of nodes becomes a session",
        every_route_is_a_session,
        ("raft/mesh/test_peers.py::test_routes_in_both_directions_and_to_itself_give_one_session",),
    ),
    UnitMutation(
        26,
        "a group goes on behind an entry that could not be applied",
        apply_may_raise,
        ("raft/test_group.py::test_an_exception_of_apply_stops_the_group_and_another_node_leads",),
    ),
    UnitMutation(29, "learners count", learners_count, ("raft/engine/test_leadership.py::test_learners_do_not_count",)),
    UnitMutation(
        29,
        "learners stand for election",
        learners_stand,
        ("raft/engine/test_elections.py::test_a_learner_never_stands_for_election",),
    ),
    UnitMutation(
        29,
        "a learner votes before it has caught up",
        learners_vote_at_once,
        ("raft/engine/test_leadership.py::test_a_learner_that_is_far_behind_does_not_vote_yet",),
    ),
    UnitMutation(
        30,
        "a configuration of before an admission is in force while the log is filled",
        nothing_is_settled,
        (
            "raft/recovery/test_joining.py::test_who_had_a_group_alone_before_does_not_lead_by_what_it_is_filled_with",
            "raft/recovery/test_joining.py::test_who_had_a_group_alone_before_does_not_lead_it_alone_as_one_of_a_pair",
            "raft/engine/test_membership.py::test_what_is_older_than_an_admission_changes_nothing_while_the_log_is_filled",
        ),
    ),
    UnitMutation(
        30,
        "who is being filled votes",
        the_filled_vote,
        ("raft/engine/test_elections.py::test_a_learner_gives_no_vote_before_it_has_what_has_admitted_it",),
    ),
    UnitMutation(
        30,
        "an older copy of a store is linked",
        older_copies_fit,
        (
            "raft/mesh/test_store_ages.py::test_a_node_with_an_older_copy_of_its_store_is_told_so_and_links_with_no_other",
        ),
    ),
    UnitMutation(
        31,
        "members go before others have come",
        members_leave_before_others_come,
        ("cluster/membership/test_reshape.py::test_any_members_become_any_others_in_safe_steps",),
    ),
    UnitMutation(
        32,
        "a member is removed though no majority is left",
        removals_ask_for_no_majority,
        ("cluster/membership/test_reshape.py::test_the_next_step",),
    ),
    UnitMutation(
        32,
        "the engine removes a member though no majority is left",
        members_are_always_in_contact,
        ("raft/engine/test_leadership.py::test_nobody_is_removed_when_those_that_remain_are_no_majority",),
    ),
    UnitMutation(
        32,
        "a member is demoted though no majority is left",
        demotions_ask_for_no_majority,
        ("raft/recovery/test_joining.py::test_nobody_is_admitted_where_that_would_leave_no_majority",),
    ),
    UnitMutation(
        34,
        "blocks that were fetched are not verified",
        parts_are_believed,
        ("raft/recovery/test_snapshot.py::test_a_damaged_block_is_refused_before_the_old_log_is_touched",),
    ),
    UnitMutation(
        36,
        "what is being fetched is not held",
        what_is_fetched_is_not_held,
        ("raft/recovery/test_catchup_guard.py::test_what_is_being_fetched_stays_until_nobody_asks_for_it_any_more",),
    ),
    UnitMutation(
        37,
        "a decision to install is not taken again after a wait",
        a_wanted_snapshot_stays_wanted,
        (
            "raft/recovery/test_catchup_guard.py::test_a_group_that_comes_further_while_its_owner_is_busy_keeps_its_log",
            "raft/recovery/test_catchup_guard.py::test_a_log_that_came_further_before_it_stopped_is_started_again_as_it_is",
            "cluster/test_swapping.py::test_a_snapshot_does_not_take_the_place_of_a_log_that_has_gone_further",
        ),
    ),
    UnitMutation(
        38,
        "a row is gone by at once after a restart",
        any_table_is_current,
        ("cluster/test_stale_rows.py::test_a_majority_of_those_that_a_stream_has_left_do_not_found_it_again",),
    ),
    UnitMutation(
        39,
        "who does not know the entry before is not heard",
        the_unsure_are_not_heard,
        (
            "raft/recovery/test_repair_rules.py::test_a_member_without_the_entry_before_is_waited_for_where_it_contradicts",
        ),
    ),
    UnitMutation(
        42,
        "the meta leader of now is not asked",
        the_meta_leader_is_not_asked,
        ("cluster/test_readiness.py::test_a_table_that_lags_behind_the_leader_of_now_is_not_current",),
    ),
    UnitMutation(
        43,
        "those that say how far their logs go may get more from a leader of before",
        a_leader_of_before_may_go_on,
        ("raft/recovery/test_repair_end.py::test_where_one_is_away_the_others_promise_to_hear_no_leader_of_before",),
    ),
    UnitMutation(
        44,
        "who is taken for a leader and is none says nothing",
        who_does_not_lead_is_silent,
        (
            "raft/engine/test_claims.py::test_who_is_followed_in_a_term_that_it_does_not_lead_says_so",
            "raft/engine/test_claims.py::test_a_late_word_of_a_leader_that_is_none_any_more_delays_an_election_by_a_moment",
        ),
    ),
]
