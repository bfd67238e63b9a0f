"""The rules of Raft (docs/raft.md), switched off one at a time: can the simulator see that one is missing?

Each entry says what is done instead of the rule, where that is looked for and within how many seeds it must be
noticed, and which seed is the first that does: a mode of `run`; `shuffle`, `mend`, `lost-end` or one of `slow`, the
directed generators; or a scenario, where luck does not reach. What no seed can notice stands in `unit_mutations`, with
the reason and the tests that do.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

from jetraft.raft import group, manager, replay
from jetraft.raft.engine import acceptor, answers, ballot, elections, following, leadership
from jetraft.raft.engine.acceptor import Verified
from jetraft.raft.engine.core import Core
from jetraft.raft.engine.election_timer import ElectionTimer
from jetraft.raft.engine.handlers import HANDLERS
from jetraft.raft.engine.leadership import Leadership
from jetraft.raft.engine.member import Member
from jetraft.raft.engine.membership import Configuration, ConfigurationHistory
from jetraft.raft.engine.messages import Append, AppendAccepted, PreVoteRequest, SnapshotOffer
from jetraft.raft.engine.port import Proposal
from jetraft.raft.engine.read_rounds import ReadRounds
from jetraft.raft.engine.ready import Effects
from jetraft.raft.engine.replication import Replication
from jetraft.raft.engine.tempo import Peak
from jetraft.raft.proposals import Proposals
from jetraft.raft.recovery import catchup as fetching
from jetraft.raft.recovery.joining import MemberAdmission
from jetraft.store.frames.format import Kind
from jetraft.store.log import file_log
from jetraft.store.log.durability import Durability
from jetraft.store.log.upkeep import BlockUpkeep
from jetraft.store.model.ids import NodeId
from jetraft.store.port import GroupLog, StoreError
from jetraft.store.stream.dedup import Dedup
from tests.doubles.lossy_disk import LossyDisk
from tests.scenarios.perform import perform
from tests.simulator import host, joining
from tests.simulator import repair_mutations as repairs
from tests.simulator.engines import play
from tests.simulator.host import Host
from tests.simulator.mending import Mending
from tests.simulator.shuffle import Shuffle
from tests.simulator.slow import GENERATORS

Patch = pytest.MonkeyPatch
SHUFFLE = "shuffle"
MEND = "mend"
LOST_END = "lost-end"
SCENARIOS = Path(__file__).parents[1] / "scenarios"


CRASHES = (AssertionError, KeyError, ValueError, IndexError, StoreError)  # a server's own checks notice, too


@attrs.frozen
class Mutation:
    """One rule switched off: `instead` happens. Noticed in `where` within `seeds` seeds, by `first` first."""

    rule: int
    instead: str
    switch: Callable[[Patch], None]
    where: str
    seeds: int
    first: int = 0


def replaced(owner: Any, name: str, value: Any) -> Callable[[Patch], None]:
    """A switch that puts another thing in the place of one."""
    return lambda patch: patch.setattr(owner, name, value)


# Durability.


def everything_is_durable(patch: Patch) -> None:
    """Durability is computed from what was written until now, not from what was handed over (6)."""
    complete = Durability._complete

    def careless(part: Durability, *what: Any) -> None:
        complete(part, *what)
        part._state.durable_token, part._state.durable_index = part._state.token, part._blocks.last_index

    patch.setattr(Durability, "_complete", careless)


def errors_are_forgotten(patch: Patch) -> None:
    batch_done = Durability._batch_done
    patch.setattr(Durability, "_batch_done", lambda part, _error: batch_done(part, None))


def own_vote_counts_at_once(patch: Patch) -> None:
    stand = elections.stand

    def careless(member: Member, now_ns: int, *, transfer: bool) -> None:
        stand(member, now_ns, transfer=transfer)
        if member.ballot is not None:
            member.decider.count_own_vote(member, member.ballot, now_ns)

    patch.setattr(elections, "stand", careless)


def own_entries_count_at_once(patch: Patch) -> None:
    """And what is committed may be told and applied: one of the two rules alone is enough."""
    quorum_index = Replication.quorum_index
    patch.setattr(
        Replication,
        "quorum_index",
        lambda replication, configuration, node, _durable: quorum_index(
            replication, configuration, node, replication._log.last_index
        ),
    )
    patch.setattr(Member, "applicable_index", property(lambda member: member.commit_index))


# Appending.


def any_term_is_heard(member: Member, sender: NodeId, term: int, now_ns: int) -> bool:
    """As `following.hears_leader`, without its first question."""
    if term > member.term or member.leader is None:
        member.decider.follow(member, sender, max(term, member.term), now_ns)
    return True


def cut_always(log: GroupLog, commit_index: int, append: Append, *, skip: int) -> Verified:
    """What the stock library does: delete everything after the point that matches."""
    entries = append.entries[skip:]
    end_index = append.prev_index + len(append.entries)
    first_index = append.prev_index + skip + 1
    cut_index = first_index if entries and first_index <= log.last_index else None
    if cut_index is not None:
        log.cut_from(cut_index)
    if entries:
        log.append(entries)
    return Verified(index=end_index, cut_index=cut_index, appended_from=skip if entries else None)


def believe_any_commit(_core: Core, member: Member, _leader: NodeId, leader_commit: int) -> None:
    member.commit_index = max(member.commit_index, min(leader_commit, member.log.last_index))


def acknowledge_own_end(patch: Patch) -> None:
    send = Effects.send_when_durable

    def careless(effects: Effects, to: NodeId, message: Any) -> None:
        if isinstance(message, AppendAccepted):
            message = attrs.evolve(message, verified_index=effects._log.last_index)
        send(effects, to, message)

    patch.setattr(Effects, "send_when_durable", careless)


def answers_of_any_term(member: Member, _term: int) -> Leadership | None:
    return member.leadership


def count_any_term(leading: Leadership) -> int:
    return leading.replication.quorum_index(
        leading._configurations.current, leading._setup.node_id, leading._log.durable_index
    )


# Elections.


def votes_are_counted(patch: Patch) -> None:
    """A vote that comes twice counts twice (17)."""

    def grant(found: ballot.Ballot, voter: NodeId) -> None:
        found._granted.add(NodeId(f"{voter}+") if voter in found._granted else voter)

    def is_won(found: ballot.Ballot, configuration: Configuration) -> bool:
        return 2 * len(found._granted) > len(configuration.voters)

    patch.setattr(ballot.Ballot, "grant", grant)
    patch.setattr(ballot.Ballot, "silent", lambda _found, configuration: list(configuration.voters))
    patch.setattr(ballot.Ballot, "is_won", is_won)


def any_log_is_up_to_date(_member: Member, _request: Any) -> bool:
    return True


# Elections that end.


def timers_run_meanwhile(patch: Patch) -> None:
    patch.setattr(ElectionTimer, "deadline_ns", property(lambda timer: timer.due_ns))


def pre_votes_are_granted_meanwhile(patch: Patch) -> None:
    """Though the own vote, which may decide the election before, is on its way to disk."""
    on_pre_vote_request = elections.on_pre_vote_request

    def careless(member: Member, sender: NodeId, message: Any, now_ns: int) -> None:
        pending_ns, member.timer.pending_ns = member.timer.pending_ns, None
        on_pre_vote_request(member, sender, message, now_ns)
        member.timer.pending_ns = pending_ns

    patch.setitem(HANDLERS, PreVoteRequest, careless)


def pre_votes_end_ballots(patch: Patch) -> None:
    canvass = elections._canvass

    def careless(member: Member, now_ns: int) -> None:
        member.ballot = None
        canvass(member, now_ns)

    patch.setattr(elections, "_canvass", careless)


def claims_have_no_end(patch: Patch) -> None:
    def may_rest(timer: ElectionTimer, now_ns: int) -> bool:
        timer.due_ns = now_ns + timer._timing.lease_max_ns
        return True

    patch.setattr(ElectionTimer, "may_rest", may_rest)


def the_silent_are_left_alone(patch: Patch) -> None:
    patch.setattr(Replication, "renew", lambda *_: None)
    patch.setattr(Replication, "lose_contact", lambda replication, node: node in replication.peers)


def reads_ask_nobody(patch: Patch) -> None:
    patch.setattr(Member, "confirmed_read_round", property(lambda _core: 1 << 60))


def reads_join_a_round_that_is_over(patch: Patch) -> None:
    begin = ReadRounds.begin

    def careless(rounds: ReadRounds, configuration: Configuration, now_ns: int) -> int:
        earlier = rounds.confirmed(configuration)
        return earlier if earlier and len(configuration.voters) > 1 else begin(rounds, configuration, now_ns)

    patch.setattr(ReadRounds, "begin", careless)


def a_word_is_given_to_the_first_leader(patch: Patch) -> None:
    followed = group.Group.followed

    def careless(found: group.Group) -> tuple[NodeId, int] | None:
        known: tuple[NodeId, int] | None = found.__dict__.setdefault("said", followed(found))
        return known

    patch.setattr(group.Group, "followed", careless)


# Messages.


def reads_end_in_silence(patch: Patch) -> None:
    end = Proposals.end

    def careless(found: Proposals) -> None:
        found.reads.clear()
        end(found)

    patch.setattr(Proposals, "end", careless)


# Members.


def members_of_the_caller(patch: Patch) -> None:
    """After a restart the founders are the members again (27)."""
    recover = replay.recover

    def careless(log: GroupLog, machine: Any, configuration: Configuration) -> replay.Replayed:
        found = recover(log, machine, configuration)
        return attrs.evolve(found, configurations=ConfigurationHistory(configuration, found.applied_index))

    patch.setattr(manager, "recover", careless)


def changes_do_not_wait(patch: Patch) -> None:
    """Several voters at a time, whether the change before is committed or not (28)."""

    def change_members(leading: Leadership, configuration: Configuration, _commit: int, now_ns: int) -> int:
        if leading._setup.node_id not in configuration.voters:
            raise leadership.MembershipChangeRefusedError("a leader is removed last")
        index = leading.propose([Proposal(kind=Kind.RAFT_CONFIG, body=configuration.encode())])
        leading._configurations.append(index, leading.term, configuration)
        leading._follow_members(next_index=index + 1)
        return index

    patch.setattr(Leadership, "change_members", change_members)


def take_part_as_before(host: Host) -> None:
    """With an empty log, and the old vote."""
    host.forgetful = False
    host.begin(host.log)


def call_it_a_learner(found: group.Group, _node: NodeId, done: Callable[[MemberAdmission | str], None]) -> None:
    """Without a change of the members: the others go on counting on its vote and its acknowledgements."""
    done(MemberAdmission(configuration=found.configuration, term=found.term, vote=found.node_id))


# Checkpoints.


def trim_at_once(patch: Patch) -> None:
    """What is applied is trimmed, whatever a durable checkpoint covers (33)."""

    def trim(upkeep: BlockUpkeep, _first_live_seq: int, _index: int) -> int:
        blocks = upkeep._blocks.droppable(1 << 62, upkeep._state.durable_index)
        upkeep._blocks.drop(blocks)
        for block in blocks:
            upkeep._tail.remove(block)
        upkeep._state.token += 1
        return len(blocks)

    patch.setattr(BlockUpkeep, "trim", trim)


def any_snapshot_is_taken(patch: Patch) -> None:
    """An old snapshot takes the place of a log that has come further (35)."""

    def on_snapshot_offer(member: Member, sender: NodeId, message: SnapshotOffer, now_ns: int) -> None:
        if following.hears_leader(member, sender, message.term, now_ns):
            member.effects.fetch(sender, message)

    patch.setitem(HANDLERS, SnapshotOffer, on_snapshot_offer)
    patch.setattr(fetching, "is_behind", lambda *_: True)
    _log_is_not_asked(patch)


def _log_is_not_asked(patch: Patch) -> None:
    """Neither by the replica nor by the store's own last check."""
    for asker in (host, file_log):
        patch.setattr(asker, "covers", lambda *_: False)


def send_at_once(effects: Effects, to: NodeId, message: Any) -> None:
    effects.send_now(to, message)


MUTATIONS = [
    Mutation(1, "an fsync keeps nothing in order", replaced(LossyDisk, "_do_sync", lambda *_: None), "base", 40),
    Mutation(
        2,
        "votes and acknowledgements leave at once",
        replaced(Effects, "send_when_durable", send_at_once),
        "base",
        250,
        5,
    ),
    Mutation(4, "a candidate counts its own vote at once", own_vote_counts_at_once, "one", 60, 13),
    Mutation(4, "a leader counts, tells and applies what is not durable here", own_entries_count_at_once, "base", 20),
    Mutation(
        5,
        "what is not durable is applied",
        replaced(Member, "applicable_index", property(lambda member: member.commit_index)),
        "base",
        20,
    ),
    Mutation(6, "all that was written counts as durable", everything_is_durable, "base", 20),
    Mutation(7, "a failed fsync is forgotten", errors_are_forgotten, "base", 500, 14),
    Mutation(
        8, "leaders of lower terms are heard", replaced(following, "hears_leader", any_term_is_heard), SHUFFLE, 800, 57
    ),
    Mutation(9, "matching entries are deleted", replaced(acceptor, "_take", cut_always), SHUFFLE, 2600, 2059),
    Mutation(
        10,
        "the commit index of others is believed",
        replaced(Core, "learn_commit", believe_any_commit),
        "base",
        80,
        4,
    ),
    Mutation(10, "a follower acknowledges its own last index", acknowledge_own_end, "own-end.txt", 1),
    Mutation(
        12,
        "answers of other terms count",
        replaced(answers, "_leads", answers_of_any_term),
        "late-acknowledgement.txt",
        1,
    ),
    Mutation(
        16,
        "entries of earlier terms are committed by counting",
        replaced(Leadership, "quorum_index", count_any_term),
        "figure-8.txt",
        1,
    ),
    Mutation(17, "a vote that comes twice counts twice", votes_are_counted, SHUFFLE, 1600, 191),
    Mutation(
        17, "a vote is given to every candidate", replaced(Member, "vote", property(lambda _: None)), SHUFFLE, 200, 2
    ),
    Mutation(
        17,
        "votes go to logs that end earlier",
        replaced(elections, "is_up_to_date", any_log_is_up_to_date),
        SHUFFLE,
        800,
        23,
    ),
    Mutation(21, "reads ask no member", reads_ask_nobody, "base", 80, 3),
    Mutation(21, "a round that was confirmed serves later reads", reads_join_a_round_that_is_over, "base", 120, 11),
    Mutation(
        21, "a member gives its word to whom it followed before", a_word_is_given_to_the_first_leader, "base", 160, 131
    ),
    Mutation(24, "a retry is not recognised", replaced(Dedup, "check", lambda *_, **__: None), "base", 20, 1),
    Mutation(25, "reads of a deposed leader end in silence", reads_end_in_silence, "base", 120, 2),
    Mutation(27, "after a restart the founders are the members", members_of_the_caller, "member", 80, 2),
    Mutation(28, "several voters change at a time", changes_do_not_wait, "member", 120, 5),
    Mutation(
        30,
        "who has lost its disk takes part as before",
        replaced(Host, "_ask_to_join", take_part_as_before),
        "forget",
        60,
        5,
    ),
    Mutation(
        30,
        "who has lost its disk is not demoted first",
        replaced(joining, "admit", call_it_a_learner),
        "forget",
        600,
        64,
    ),
    Mutation(33, "what is applied is trimmed", trim_at_once, "snap", 10),
    Mutation(35, "old snapshots are installed", any_snapshot_is_taken, "forget", 500, 44),
    Mutation(39, "a damaged entry is taken for one of the term before it", repairs.terms_are_guessed, MEND, 20),
    Mutation(39, "a log begins with the lowest term possible", repairs.boundaries_are_guessed, MEND, 40, 7),
    Mutation(39, "any entry is taken for a lost one", repairs.any_frames_are_taken, MEND, 40, 7),
    Mutation(39, "an end that fits is taken from any member", repairs.uncommitted_ends_are_taken, MEND, 100, 26),
    Mutation(39, "what follows a lost entry does not matter", repairs.other_futures_do_not_matter, MEND, 500, 388),
    Mutation(39, "what others have trimmed is replaced", repairs.trimmed_is_lost, MEND, 200, 84),
    Mutation(40, "silence is a no", repairs.silence_is_a_no, MEND, 60, 9),
    Mutation(40, "each member decides what is lost", repairs.one_no_is_enough, MEND, 120, 36),
    Mutation(40, "the promise that goes with a no is not kept", repairs.promises_are_not_kept, MEND, 250, 96),
    Mutation(43, "a log went as far as the ledger has noted", repairs.a_noted_end_is_the_end, "damage", 160, 109),
    Mutation(43, "a noted end is the end", repairs.a_noted_end_is_the_end, LOST_END, 60, 2),
    Mutation(41, "timers run while a member's own vote is not durable", timers_run_meanwhile, "disks", 40, 1),
    Mutation(41, "pre-votes are granted while a vote is not durable", pre_votes_are_granted_meanwhile, "disks", 40, 5),
    Mutation(41, "a pre-vote ends the ballot of the term", pre_votes_end_ballots, "disks", 40, 6),
    Mutation(41, "nothing is measured", replaced(Peak, "read", lambda *_: 0), "disks", 160, 65),
    Mutation(41, "a claim has no end", claims_have_no_end, "lost-words", 12),
    Mutation(41, "who is silent is never asked again", the_silent_are_left_alone, "lost-words", 12, 2),
]


def is_noticed(mutation: Mutation) -> bool:
    """Whether the seed that the table names notices, or, when other changes have moved that, one of the first ones."""
    return is_seen(mutation.where, mutation.first) or first_noticed(mutation) is not None


def first_noticed(mutation: Mutation) -> int | None:
    """The first seed that notices."""
    return next((seed for seed in range(mutation.seeds) if is_seen(mutation.where, seed)), None)


def is_seen(where: str, seed: int) -> bool:
    """Whether a seed notices; a crash of the server's own assertions is noticing, too."""
    try:
        problem = _problem(where, seed)
    except CRASHES:
        return True
    return problem is not None and problem.startswith("violation")


def _problem(where: str, seed: int) -> str | None:
    if where == SHUFFLE:
        return Shuffle(seed).run()
    if where in {MEND, LOST_END}:
        return Mending(seed, loses_end=where == LOST_END).run()
    if where in GENERATORS:
        return GENERATORS[where](seed)
    if where.endswith(".txt"):
        found = perform((SCENARIOS / where).read_text())
        return "violation" if "VIOLATION" in found else None
    return play(seed, where).problem
