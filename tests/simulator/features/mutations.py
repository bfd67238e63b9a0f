"""The rules of features, switched off one at a time: is each one noticed?

Each entry says what happens instead, in which mode that is looked for, within how many seeds it must be noticed, and
which seed is the first that does. Noticed is a violation or a run that does not come to what it should be.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import attrs

from jetraft.cluster.consumers import dispatcher, letter_form, runner
from jetraft.cluster.consumers.dead_letters import DeadLetters
from jetraft.cluster.consumers.dispatcher import ConsumerDispatcher
from jetraft.cluster.consumers.key_lanes import KeyedPending
from jetraft.cluster.consumers.runner import ConsumerRunner
from jetraft.cluster.origins.deliveries import Arrived, Deliveries, numbers_of
from jetraft.cluster.origins.mirror import MirrorIntake
from jetraft.cluster.origins.reader import OriginReader
from jetraft.cluster.origins.source import SourceIntake
from jetraft.cluster.state import machine as machine_module
from jetraft.cluster.state.machine import StreamMachine
from jetraft.cluster.state.schedules import ScheduleTable
from jetraft.cluster.state.source_header import SourcePosition
from jetraft.cluster.streams.admission.admit import PublishAdmission
from jetraft.cluster.streams.batches import atomic, batching
from jetraft.cluster.streams.batches.atomic import AtomicBatches, Declined
from jetraft.cluster.streams.batches.batch_members import Members
from jetraft.cluster.streams.batches.batching import Batching
from jetraft.cluster.streams.batches.fast import FastBatches, Place
from jetraft.cluster.streams.gets import chain_reading
from jetraft.cluster.streams.publishing.candidate import Candidate
from jetraft.cluster.streams.publishing.publish import Known
from jetraft.cluster.streams.rules.counters import Counters
from jetraft.cluster.streams.schedules.scheduler import Scheduler
from jetraft.cluster.streams.stamps import StampClock
from jetraft.store.frames._frame import records
from jetraft.store.stream import chain as chain_module
from jetraft.store.stream._merkle import MerkleTree
from jetraft.store.stream.chain import Chain, message_leaf
from jetraft.store.stream.stream_store import StoredMessage
from tests.simulator.engines import play
from tests.simulator.mutations import CRASHES

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

SEEDS = 200


@attrs.frozen
class FeatureMutation:
    """One rule switched off: `instead` happens. Noticed in `mode` within `seeds` seeds, by `first` first."""

    rule: str
    instead: str
    switch: Callable[[pytest.MonkeyPatch], None]
    mode: str
    first: int = 0
    seeds: int = SEEDS


def replaced(owner: Any, name: str, value: Any) -> Callable[[pytest.MonkeyPatch], None]:
    """A switch that puts another thing in the place of one."""
    return lambda patch: patch.setattr(owner, name, value)


def nothing(*_args: object, **_kwargs: object) -> None:
    """What is done instead of a duty."""


# Batches.


def an_entry_for_each_member(
    batches: Batching, admission: Any, turn: Any, whole: Any, _reply: bytes, now_ns: int
) -> None:
    for record in whole.records:
        publish = admission.begin_alone(turn)
        member = Candidate.at(record, 0)
        Members(admission, batches._config, publish, now_ns=now_ns).check(member)
        admission.add(publish, member, record, 0, acked=False)
        admission.end_alone(turn, publish)


def gaps_do_not_matter(patch: pytest.MonkeyPatch) -> None:
    why_refused = atomic._why_refused

    def careless(batch: Any, _seq: int, headers: Any, size: int, most: Any) -> Declined | None:
        return why_refused(batch, len(batch.records) + 1, headers, size, most)

    patch.setattr(atomic, "_why_refused", careless)


def size_does_not_matter(patch: pytest.MonkeyPatch) -> None:
    why_refused = atomic._why_refused

    def careless(batch: Any, seq: int, headers: Any, size: int, most: Any) -> Declined | None:
        found = why_refused(batch, seq, headers, size, most)
        return None if found is not None and found.abandoned == atomic.TOO_LARGE else found

    patch.setattr(atomic, "_why_refused", careless)


def members_may_be_known(patch: pytest.MonkeyPatch) -> None:
    check = Members.check

    def careless(members: Members, message: Candidate) -> None:
        before: Any = members._before
        with_ids, before.duplicate_of = before.duplicate_of, lambda _message: None
        try:
            check(members, message)
        finally:
            before.duplicate_of = with_ids

    patch.setattr(Members, "check", careless)


def flow_acks_at_once(patch: pytest.MonkeyPatch) -> None:
    stored_fast = Batching._stored_fast

    def careless(batches: Batching, admission: Any, turn: Any, *others: Any) -> Any:
        stored_fast(batches, admission, turn, *others)
        one = turn.open.in_fast.pop() if turn.open is not None else None
        if one is None:
            return []
        return [answer for _, answer in batches._fast.stored(one.batch, one.seq, one.stream_seq, one.reply)]

    patch.setattr(batching.Batching, "_stored_fast", careless)


def batches_may_have_gaps(patch: pytest.MonkeyPatch) -> None:
    parse = Place.parse

    def careless(reply: bytes) -> Place | None:
        found = parse(reply)
        return None if found is None else attrs.evolve(found, may_have_gaps=True)

    patch.setattr(Place, "parse", careless)


def known_when_applied(admission: PublishAdmission, message: Candidate) -> Known | None:
    """As `duplicate_of`, without what is in flight."""
    if not message.msg_id:
        return None
    seq = admission._applied.seq_of_msg_id(message.msg_id, admission._last_ts_ns)
    return None if seq is None else Known(seq, publish=None)


# Counters.


def sums_stay(counters: Counters) -> None:
    counters._replaced = None


# Schedules.


def rows_stay(table: ScheduleTable, scheduler: bytes, next_text: bytes) -> None:
    if next_text == b"purge":
        table.rows.pop(scheduler, None)


def by_the_wall(clock: StampClock) -> int:
    steady: Any = clock._clock
    return max(clock._told_ns, int(steady._machine.unix_ns()))


def looks_at_what_comes(scheduler: Scheduler) -> None:
    scheduler._machine.schedules.changed = []


# Resets.


def the_first_lets_go(found: ConsumerRunner) -> None:
    found._holds = 0
    found.step(found._dispatcher.now())


def acks_of_before_count(patch: pytest.MonkeyPatch) -> None:
    make_core = runner.make_core

    def careless(*args: Any) -> Any:
        core = make_core(*args)
        core.takes_acks_ahead = True
        return core

    patch.setattr(runner, "make_core", careless)
    patch.setattr(dispatcher, "make_core", careless)


def flushed_later(found: ConsumerDispatcher) -> None:
    """The reset is proposed, and what was noted before it stays behind."""
    del found


# Dead letters, order of keys, strict acks.


def done_when_published(patch: pytest.MonkeyPatch) -> None:
    publish = DeadLetters._publish

    def careless(letters: DeadLetters, seq: int, letter: Any) -> bool:
        publish(letters, seq, letter)
        return False

    patch.setattr(DeadLetters, "_publish", careless)


def any_id(patch: pytest.MonkeyPatch) -> None:
    numbers = itertools.count()
    patch.setattr(letter_form, "letter_id", lambda *_: b"%d" % next(numbers))


def letters_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    restore = StreamMachine.restore

    def careless(machine: StreamMachine, state: bytes) -> None:
        restore(machine, state)
        for consumer in machine.consumers.values():
            consumer.dead = {}

    patch.setattr(StreamMachine, "restore", careless)


def every_message_has_a_lane(found: KeyedPending, seq: int, key: bytes) -> bool:
    found._keys[seq] = key
    return True


# Copies.


def any_number_is_the_next(patch: pytest.MonkeyPatch) -> None:
    take = Deliveries.take

    def careless(deliveries: Deliveries, captured: Any) -> Any:
        numbers = numbers_of(captured.reply)
        if numbers is None:
            return take(deliveries, captured)
        deliveries.consumer_seq, deliveries.num_pending = numbers.consumer_seq, numbers.num_pending
        if numbers.stream_seq <= deliveries.last_seq:
            return None
        deliveries.last_seq = numbers.stream_seq
        return Arrived(
            numbers.stream_seq, numbers.ts_ns, captured.subject, captured.hdr, captured.payload, captured.reply
        )

    patch.setattr(Deliveries, "take", careless)
    patch.setattr(MirrorIntake, "take_plain", lambda _intake, _batch, start, _deliveries: start)


def heartbeats_say_nothing(patch: pytest.MonkeyPatch) -> None:
    status = Deliveries._status

    def careless(deliveries: Deliveries, captured: Any) -> Any:
        found = status(deliveries, captured)
        deliveries.is_broken = False
        return found

    patch.setattr(Deliveries, "_status", careless)


def applied_source_position(intake: SourceIntake) -> int:
    return intake._machine.sources.get(intake._key, SourcePosition(0)).seq


def positions_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    restore = StreamMachine.restore

    def careless(machine: StreamMachine, state: bytes) -> None:
        restore(machine, state)
        machine.sources = {}

    patch.setattr(StreamMachine, "restore", careless)


# Chains.


class WithoutHeaders(MerkleTree):
    """Leaves out entries whose messages have headers."""

    def append(self, frame: bytes) -> None:
        if not any(hdr for *_, hdr, _payload in records(frame)):
            super().append(frame)


def without_its_time(found: StoredMessage) -> bytes:
    return message_leaf(
        StoredMessage(seq=found.seq, ts_ns=0, subject=found.subject, hdr=found.hdr, payload=found.payload)
    )


MUTATIONS = [
    FeatureMutation(
        "a whole batch is one entry",
        "each member is an entry",
        replaced(Batching, "_admit", an_entry_for_each_member),
        "batches",
    ),
    FeatureMutation("a batch has no gaps", "members are counted, not compared", gaps_do_not_matter, "batches"),
    FeatureMutation("a batch has a limit", "members beyond the limit are staged", size_does_not_matter, "batches"),
    FeatureMutation(
        "a known member refuses its batch", "members' ids are not looked up", members_may_be_known, "batches", 0
    ),
    FeatureMutation(
        "what is staged ends with the term", "it is kept", replaced(AtomicBatches, "end", nothing), "batches", 0
    ),
    FeatureMutation(
        "fast batches end with the term", "they are kept", replaced(FastBatches, "end", nothing), "batches", 0
    ),
    FeatureMutation(
        "what is in flight counts for an expected sequence",
        "only what is applied counts",
        replaced(PublishAdmission, "last_seq_before", lambda found, pattern: found._applied.last_for(pattern)),
        "batches",
    ),
    FeatureMutation("a flow ack waits for the commit", "it leaves at once", flow_acks_at_once, "batches"),
    FeatureMutation("a fast batch ends at a gap", "it goes on", batches_may_have_gaps, "batches"),
    FeatureMutation(
        "a sum in flight counts", "sums are those that are applied", replaced(Counters, "note", nothing), "counters"
    ),
    FeatureMutation(
        "a refused batch takes its sums back", "they stay", replaced(Counters, "take_back", sums_stay), "counters"
    ),
    FeatureMutation(
        "an id in flight is known",
        "an id is known when it is applied",
        replaced(PublishAdmission, "duplicate_of", known_when_applied),
        "counters",
    ),
    FeatureMutation(
        "what is produced moves its schedule on",
        "it does not",
        replaced(ScheduleTable, "produced", rows_stay),
        "schedules",
    ),
    FeatureMutation(
        "what is replaced produces nothing",
        "what is in flight is not looked at",
        replaced(PublishAdmission, "is_last", lambda *_: True),
        "schedules",
    ),
    FeatureMutation(
        "times are those that passed", "the wall clock's", replaced(StampClock, "now_ns", by_the_wall), "schedules"
    ),
    FeatureMutation(
        "a leader looks at all schedules",
        "at those that come",
        replaced(Scheduler, "start", looks_at_what_comes),
        "schedules",
    ),
    FeatureMutation(
        "schedules are in the checkpoint",
        "they are not",
        replaced(ScheduleTable, "to_list", lambda *_: []),
        "schedules",
        3,
    ),
    FeatureMutation(
        "a consumer is held while a reset is on its way",
        "it goes on",
        replaced(ConsumerRunner, "hold", nothing),
        "resets",
    ),
    FeatureMutation(
        "the last of several resets lets go",
        "the first does",
        replaced(ConsumerRunner, "release", the_first_lets_go),
        "resets",
        1,
    ),
    FeatureMutation("acks of before a reset do not count", "they do", acks_of_before_count, "resets", 0),
    FeatureMutation(
        "what was decided before a reset is before it",
        "it is noted later",
        replaced(ConsumerDispatcher, "propose_noted", flushed_later),
        "resets",
        1,
    ),
    FeatureMutation("no consumer sees what waits", "it does", replaced(machine_module, "hidden_by", nothing), "delays"),
    FeatureMutation(
        "what is due takes the place of what has waited",
        "both are there",
        replaced(machine_module, "PURGE", b"never"),
        "delays",
    ),
    FeatureMutation(
        "a new leader looks at all that waits",
        "at what comes",
        replaced(Scheduler, "start", looks_at_what_comes),
        "delays",
    ),
    FeatureMutation(
        "what waits comes by the time that has passed",
        "by the wall clock",
        replaced(StampClock, "now_ns", by_the_wall),
        "delays",
    ),
    FeatureMutation(
        "a letter is done with when a stream has it", "when it is published", done_when_published, "letters"
    ),
    FeatureMutation("every leader publishes a letter under the same id", "each under its own", any_id, "letters"),
    FeatureMutation("letters are in the checkpoint", "they are not", letters_are_forgotten, "letters"),
    FeatureMutation(
        "a letter that is not confirmed is published again",
        "it is not",
        replaced(DeadLetters, "_failed", nothing),
        "letters",
    ),
    FeatureMutation(
        "of each key one message is in flight",
        "all are",
        replaced(KeyedPending, "_takes_lane", every_message_has_a_lane),
        "letters",
    ),
    FeatureMutation(
        "a new leader holds what was not sent", "it sends it", replaced(KeyedPending, "arrange", nothing), "letters"
    ),
    FeatureMutation(
        "the ack of the newest delivery counts",
        "every ack does",
        replaced(KeyedPending, "is_newest", lambda *_: True),
        "letters",
    ),
    FeatureMutation(
        "the chain is in the checkpoint",
        "it begins again",
        replaced(Chain, "restore", classmethod(lambda cls, _state: cls())),
        "chain",
        1,
    ),
    FeatureMutation(
        "each message is a leaf",
        "those of entries with headers are none",
        replaced(chain_module, "MerkleTree", WithoutHeaders),
        "chain",
    ),
    FeatureMutation(
        "a leaf that is read again has all of its message",
        "not its time",
        replaced(chain_reading, "message_leaf", without_its_time),
        "chain",
    ),
    FeatureMutation("a number that is missing ends deliveries", "any is the next", any_number_is_the_next, "mirror", 1),
    FeatureMutation("a heartbeat tells what was lost", "it says nothing", heartbeats_say_nothing, "mirror", 2),
    FeatureMutation("silence is asked about", "it is borne", replaced(OriginReader, "_due", nothing), "mirror"),
    FeatureMutation(
        "a mirror goes on behind what is proposed",
        "behind what is applied",
        replaced(MirrorIntake, "position", property(lambda intake: intake._machine.last_seq)),
        "mirror",
        2,
    ),
    FeatureMutation(
        "a mirror skips what its origin lacks", "it does not", replaced(MirrorIntake, "_skip_to", nothing), "mirror", 3
    ),
    FeatureMutation(
        "the entry of a copy moves the position",
        "nothing does",
        replaced(StreamMachine, "_note_source", nothing),
        "source",
    ),
    FeatureMutation(
        "a source goes on behind what is proposed",
        "behind what is applied",
        replaced(SourceIntake, "position", property(applied_source_position)),
        "source",
        2,
    ),
    FeatureMutation("positions are in the checkpoint", "they are not", positions_are_forgotten, "source", 5),
]


def is_noticed(mutation: FeatureMutation) -> bool:
    """Whether the seed that the table names notices, or, when other changes have moved that, one of the first ones."""
    return is_seen(mutation, mutation.first) or first_noticed(mutation) is not None


def first_noticed(mutation: FeatureMutation) -> int | None:
    """The first seed that notices."""
    return next((seed for seed in range(mutation.seeds) if is_seen(mutation, seed)), None)


def is_seen(mutation: FeatureMutation, seed: int) -> bool:
    """Whether a seed notices; a crash of the server's own assertions is noticing, too."""
    try:
        return play(seed, mutation.mode).problem is not None
    except CRASHES:
        return True
