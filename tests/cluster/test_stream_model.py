"""One stream with its consumers in real files, against a naive model in Python.

Rules publish (also batches, rollups, schedules, repetitions by message id, copies of an origin), pull (also by the
policies of priority groups), ack, nak, terminate, reset, let time pass, delete, purge, change filters and limits,
exchange the leader and restart from disk. After each one the stream's state and every consumer's num_pending, floor and
pending acks are the model's; each pull delivers what the model says, as often as it says, to whom it says; and a
restart changes not a byte of the state.
"""

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import attrs
import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from jetraft.cluster.capture._capture import encode_capture
from jetraft.cluster.streams.replica.replica import StreamReplica
from jetraft.cluster.streams.schedules.scheduler import ROUND_NS_MIN
from jetraft.store.blocks.cache import BlockCache
from jetraft.store.disk.io import Batch, Done, LocalDisk, Writer
from jetraft.store.frames.format import Identity
from jetraft.store.ledger.ledger import Ledger
from jetraft.store.log.file_log import FileLog
from jetraft.store.log.opening import open_log
from jetraft.store.log.start import LogOptions
from jetraft.store.model.clock import ManualClock
from jetraft.store.model.config import AckPolicy, PriorityPolicy
from jetraft.store.model.gotime import format_time
from jetraft.store.model.ids import GroupId
from jetraft.store.model.requests import JSApiStreamPurgeRequest
from jetraft.store.model.subject import matches
from tests.cluster.lab import NODE, Node, Sent, add_consumer, assignment_of, finish, info_of, stream_config
from tests.harness.forms import examples

S = 10**9
ACK_WAIT = 2 * S
SUBJECTS = (b"s.a", b"s.b", b"s.c")
SCHEDULERS = (b"s.later.1", b"s.later.2")  # what schedules are published to
LATE_NS = ROUND_NS_MIN  # how late a message of a schedule may be
GROUP = "g"
CONSUMERS: dict[str, dict[str, Any]] = {
    "all": {},
    "some": {"filter_subjects": ("s.a", "s.b"), "max_deliver": 2},
    "floor": {"ack_policy": AckPolicy.ALL, "filter_subject": "s.c"},
    "over": {"priority_policy": PriorityPolicy.OVERFLOW, "priority_groups": (GROUP,), "max_deliver": 3},
    "ranks": {"priority_policy": PriorityPolicy.PRIORITIZED, "priority_groups": (GROUP,)},
}
FILTERS = ((), ("s.a", "s.b"), ("s.*",), ("s.c", "s.later.>"))
OPTIONS = LogOptions(block_bytes_first=2000, block_bytes_max=6000)
ORIGIN = b"O > >"
IDENTITY_KEY = GroupId("S-R1F-S"), 7
IDENTITY = Identity(node_id=NODE, group_id=IDENTITY_KEY[0], incarnation=IDENTITY_KEY[1])


class InlineDisk(LocalDisk):
    """Real files, written when `drain` is called and not by threads."""

    def __init__(self) -> None:
        self._idle = Writer(threads=1)
        super().__init__(self._idle)
        self._queue: list[tuple[Batch, Done]] = []

    def submit(self, batch: Batch, done: Done, *, background: bool = False, ahead: bool = False) -> None:
        del background, ahead
        self._queue.append((batch, done))

    def follow(self, batch: Batch, done: Done, before: Batch) -> None:
        del before
        self._queue.append((batch, done))

    def drain(self) -> bool:
        """Perform what was submitted; False when there was nothing."""
        queue, self._queue = self._queue, []
        for batch, done in queue:
            self.perform(batch)
            done(None)
        return bool(queue)

    def stop(self) -> None:
        """End the thread that has nothing to do."""
        self._idle.stop()


class DiskNode(Node):
    """A node whose turns end when its files are written."""

    def __init__(self, disk: InlineDisk, clock: ManualClock) -> None:
        super().__init__(clock)
        self.disk = disk

    def turn(self) -> list[Sent]:
        sent = super().turn()
        while self.disk.drain():
            sent += super().turn()
        return sent


@attrs.define
class Waiting:
    """A delivery that is not acknowledged."""

    count: int
    delivered_ns: int
    due_ns: int


@attrs.frozen
class Planned:
    """A schedule: when it is due, and where its message goes then."""

    due_ns: int
    target: bytes
    payload: bytes


@attrs.define
class Model:
    """A consumer, naively."""

    filters: tuple[bytes, ...]
    max_deliver: int
    cursor: int = 0
    pending: dict[int, Waiting] = attrs.Factory(dict)

    policy: PriorityPolicy = PriorityPolicy.NONE

    def wants(self, subject: bytes) -> bool:
        """Whether its filters match."""
        return not self.filters or any(matches(pattern, subject) for pattern in self.filters)


class StreamModel(RuleBasedStateMachine):
    """See the module."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="model-"))
        self.disk = InlineDisk()
        self.clock = ManualClock(now_ns=100 * S)
        self.live: dict[int, tuple[bytes, bytes]] = {}
        self.last_seq = 0
        self.first_floor = 1  # what the first sequence is in an empty stream
        self.ids: dict[bytes, int] = {}
        self.planned: dict[int, Planned] = {}  # by the sequence of the schedule
        self.led_since_ns = 0
        self.config = stream_config(
            allow_atomic=True, allow_msg_schedules=True, allow_rollup_hdrs=True, max_msgs_per_subject=-1
        )
        self.revision = 7
        self.origin_seq = 0
        self.numbers = 0
        self.models = {
            name: Model(
                _filters(fields),
                fields.get("max_deliver", -1),
                policy=fields.get("priority_policy", PriorityPolicy.NONE),
            )
            for name, fields in CONSUMERS.items()
        }
        self.replies: dict[tuple[str, int], bytes] = {}  # the newest ack subject of a delivery
        self.log = self._opened()
        self._start()
        for name, fields in CONSUMERS.items():
            add_consumer(self.node, self.replica, durable_name=name, ack_wait=ACK_WAIT, **fields)

    def teardown(self) -> None:
        self.replica.stop()
        self.log.close()
        self.disk.stop()
        shutil.rmtree(self.directory)

    def _opened(self) -> FileLog:
        group = self.directory / "groups" / "S-R1F-S"
        self.ledger = Ledger.open(self.disk, self.directory, [IDENTITY_KEY] if group.exists() else [])
        return open_log(self.ledger, group, IDENTITY, BlockCache(1 << 20), OPTIONS)

    def _start(self) -> None:
        self.node = DiskNode(self.disk, self.clock)
        assignment = attrs.evolve(assignment_of(self.node, self.config), revision=self.revision)
        self.replica = StreamReplica.start(assignment=assignment, log=self.log, site=self.node.site)
        while not self.replica.is_leader:
            self.node.sleep(S // 100)
        self.led_since_ns = self.clock.now_ns

    def _digest(self) -> bytes:
        return self.replica.machine.snapshot()

    # Publishing.

    def _stored(self, subject: bytes, payload: bytes) -> None:
        self.last_seq += 1
        self.live[self.last_seq] = subject, payload
        self._limit(subject)

    def _limit(self, subject: bytes) -> None:
        """No subject has more messages than the stream's limit."""
        seqs = [seq for seq, (found, _) in sorted(self.live.items()) if found == subject]
        limit = self.config.max_msgs_per_subject
        for seq in seqs[: max(0, len(seqs) - limit)] if limit > 0 else ():
            del self.live[seq]
        self._note_first()

    def _next_payload(self) -> bytes:
        self.numbers += 1
        return b"%d" % self.numbers

    @rule(subjects=st.lists(st.sampled_from(SUBJECTS), min_size=1, max_size=6))
    def publish(self, subjects: list[bytes]) -> None:
        for subject in subjects:
            payload = self._next_payload()
            self.node.publish(subject, payload)
            self._stored(subject, payload)
        self.node.turn()

    @rule(subject=st.sampled_from(SUBJECTS), msg_id=st.sampled_from([b"1", b"2", b"3"]))
    def publish_with_id(self, subject: bytes, msg_id: bytes) -> None:
        payload, hdr = self._next_payload(), b"NATS/1.0\r\nNats-Msg-Id: %s\r\n\r\n" % msg_id
        if msg_id not in self.ids:
            self._stored(subject, payload)
            self.ids[msg_id] = self.last_seq
        self.node.publish(subject, payload, hdr=hdr, reply=b"_INBOX.p")
        (ack,) = self.node.turn()
        assert b'"seq":%d' % self.ids[msg_id] in ack.payload

    @rule(
        subjects=st.lists(st.sampled_from(SUBJECTS), min_size=1, max_size=5),
        end=st.sampled_from(["whole", "whole", "gap", "open"]),
    )
    def publish_batch(self, subjects: list[bytes], end: str) -> None:
        batch_id, bodies = b"b%d" % self.numbers, [self._next_payload() for _ in subjects]
        for place, (subject, payload) in enumerate(zip(subjects, bodies, strict=True), 1):
            shown = place + (end == "gap" and place == len(subjects))
            commit = b"Nats-Batch-Commit: 1\r\n" if place == len(subjects) and end != "open" else b""
            hdr = b"NATS/1.0\r\nNats-Batch-Id: %s\r\nNats-Batch-Sequence: %d\r\n%s\r\n" % (batch_id, shown, commit)
            self.node.publish(subject, payload, hdr=hdr, reply=b"_INBOX.p")
        if end == "whole":
            for subject, payload in zip(subjects, bodies, strict=True):
                self._stored(subject, payload)
        self.node.turn()

    @rule(subject=st.sampled_from(SUBJECTS), step=st.integers(1, 3))
    def copy(self, subject: bytes, step: int) -> None:
        """A message of an origin, as a source's reader has it stored."""
        self.origin_seq += step
        payload = self._next_payload()
        hdr = b"NATS/1.0\r\nNats-Stream-Source: O %d > > %s\r\n\r\n" % (self.origin_seq, subject)
        leadership = self.replica._leadership
        assert leadership is not None
        assert leadership.admit_copies(encode_capture(subject, hdr=hdr, payload=payload)) == (0, None)
        self._stored(subject, payload)
        self.node.turn()

    def _roll_up(self, subject: bytes) -> None:
        self.live = {seq: found for seq, found in self.live.items() if found[0] != subject}

    @rule(subject=st.sampled_from(SUBJECTS))
    def roll_up(self, subject: bytes) -> None:
        payload = self._next_payload()
        self.node.publish(subject, payload, hdr=b"NATS/1.0\r\nNats-Rollup: sub\r\n\r\n")
        self.node.turn()
        self._roll_up(subject)
        self._stored(subject, payload)

    @rule(
        scheduler=st.sampled_from(SCHEDULERS),
        produces=st.sampled_from(SUBJECTS),
        wait_ns=st.sampled_from([S // 2, S, 2 * S, 60 * S]),
    )
    def schedule(self, scheduler: bytes, produces: bytes, wait_ns: int) -> None:
        """Due between two moments at which others look."""
        due_ns, payload = self.clock.now_ns + wait_ns + S // 20, self._next_payload()
        moment = format_time(self.clock.unix_ns() + due_ns - self.clock.now_ns).encode()
        hdr = b"NATS/1.0\r\nNats-Schedule: @at %s\r\nNats-Schedule-Target: %s\r\n\r\n" % (moment, produces)
        self.node.publish(scheduler, payload, hdr=hdr)
        self.node.turn()
        self._roll_up(scheduler)
        self._stored(scheduler, payload)
        self.planned[self.last_seq] = Planned(due_ns, produces, payload)

    def _produce(self) -> None:
        """What is due is in the stream by now; what has been for a moment only may be."""
        self.planned = {seq: one for seq, one in self.planned.items() if seq in self.live}
        now_ns = self.clock.now_ns
        due = sorted((one.due_ns, seq) for seq, one in self.planned.items() if one.due_ns <= now_ns)
        surely = [due_ns for due_ns, _ in due if max(due_ns, self.led_since_ns) + LATE_NS <= now_ns]
        count = self.replica.machine.store.last_seq - self.last_seq
        assert len(surely) <= count <= len(due)
        for _, seq in due[:count]:
            one = self.planned.pop(seq)
            del self.live[seq]
            self._stored(one.target, one.payload)

    # Removing.

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        seq = data.draw(st.sampled_from(sorted(self.live)))
        assert finish(self.node, lambda: self.replica.delete_message(seq, erase=False))
        del self.live[seq]
        self._note_first()

    @rule(subject=st.sampled_from([*SUBJECTS, None]), keep=st.sampled_from([None, 2]))
    def purge(self, subject: bytes | None, keep: int | None) -> None:
        request = JSApiStreamPurgeRequest(filter="" if subject is None else subject.decode(), keep=keep or 0)
        gone = [seq for seq, (found, _) in sorted(self.live.items()) if subject in (None, found)]
        gone = gone[: len(gone) - (keep or 0)] if keep else gone
        assert finish(self.node, lambda: self.replica.purge(request)) == len(gone)
        for seq in gone:
            del self.live[seq]
        self._note_first()
        for model in self.models.values():
            model.pending = {seq: one for seq, one in model.pending.items() if seq >= self.first_seq}
            model.cursor = max(model.cursor, self.first_seq - 1)

    @rule(ahead=st.integers(1, 5), while_publishing=st.booleans())
    def move(self, ahead: int, *, while_publishing: bool) -> None:
        """A purge up to a sequence that no message has yet; what is published behind it comes behind it in the log."""
        moved_to = self.last_seq + 1 + ahead

        async def purge() -> int:
            removed = self.replica.purge(JSApiStreamPurgeRequest(seq=moved_to))
            if while_publishing:
                self.node.publish(b"s.a", b"moved", reply=b"_INBOX.p")
            return await removed

        assert finish(self.node, purge) == len(self.live)
        self.live.clear()
        self.last_seq = moved_to - 1
        self._note_first()
        for model in self.models.values():
            model.pending.clear()
            model.cursor = max(model.cursor, self.last_seq)
        if while_publishing:
            self._stored(b"s.a", b"moved")
            self.node.turn()

    def _note_first(self) -> None:
        self.first_floor = max(self.first_floor, min(self.live, default=self.last_seq + 1))

    @property
    def first_seq(self) -> int:
        return min(self.live, default=self.last_seq + 1)

    @rule(limit=st.sampled_from([-1, 1, 3]))
    def change_limit(self, limit: int) -> None:
        self.config = attrs.evolve(self.config, max_msgs_per_subject=limit)
        self.revision += 1
        self.replica.reconfigure(attrs.evolve(self.replica.assignment, config=self.config, revision=self.revision))
        self.node.turn()
        for subject in (*SUBJECTS, *SCHEDULERS):
            self._limit(subject)

    # Consuming.

    @rule(filters=st.sampled_from(FILTERS))
    def change_filters(self, filters: tuple[str, ...]) -> None:
        fields = {**CONSUMERS["some"], "filter_subjects": filters}
        add_consumer(self.node, self.replica, durable_name="some", ack_wait=ACK_WAIT, **fields)
        self.models["some"].filters = tuple(one.encode() for one in filters)

    @rule(name=st.sampled_from(list(CONSUMERS)), least=st.sampled_from([0, 1, 3]), batch=st.sampled_from([1, 1000]))
    def pull(self, name: str, least: int, batch: int) -> None:
        """With groups: only while as many wait as were asked for; or the first in rank before the other."""
        model, now_ns = self.models[name], self.clock.now_ns
        whole: dict[str, Any] = {"batch": 1000, "no_wait": True}
        if model.policy is not PriorityPolicy.NONE:
            whole["group"] = GROUP
        if model.policy is PriorityPolicy.OVERFLOW:
            whole["min_pending"] = least
        if model.policy is PriorityPolicy.PRIORITIZED:
            whole["priority"] = 2
            self._request(name, b"_INBOX.one", {"batch": batch, "no_wait": True, "group": GROUP, "priority": least})
        self._request(name, b"_INBOX.r", whole)
        sent = [one for one in self.node.turn() if one.reply]
        expected = self._expected(model, now_ns, least if model.policy is PriorityPolicy.OVERFLOW else 0)
        found = {}
        for one in sent:
            numbers = one.reply.split(b".")
            stored_seq = int(numbers[5])
            found[stored_seq] = int(numbers[4])
            assert (one.subject, one.payload) == self.live[stored_seq]
            self.replies[name, stored_seq] = one.reply
        assert found == expected
        if model.policy is PriorityPolicy.PRIORITIZED:
            is_second = least > whole["priority"] and batch <= len(expected)  # else there is no other, or it is first
            assert sum(one.to == b"_INBOX.one" for one in sent) == (0 if is_second else min(batch, len(expected)))
        for seq, count in expected.items():
            model.pending[seq] = Waiting(count, now_ns, now_ns + ACK_WAIT)

    def _request(self, name: str, reply: bytes, body: dict[str, object]) -> None:
        self.node.publish(b"$JS.API.CONSUMER.MSG.NEXT.S.%s" % name.encode(), json.dumps(body).encode(), reply=reply)

    def _expected(self, model: Model, now_ns: int, least: int) -> dict[int, int]:
        """What is delivered now, and for which time."""
        new = [seq for seq, (subject, _) in sorted(self.live.items()) if seq > model.cursor and model.wants(subject)]
        due = self._due(model, now_ns)
        if due and len(new) + 1 < least:
            return {}
        taken = new[: max(0, len(new) - least + 1)] if least else new
        model.cursor = max([model.cursor, *taken])
        return due | dict.fromkeys(taken, 1)

    @rule(name=st.sampled_from(list(CONSUMERS)), data=st.data())
    def reset(self, name: str, data: st.DataObject) -> None:
        """Deliver again from a sequence, or from the one after the floor; what was delivered before is void."""
        model = self.models[name]
        seq = data.draw(st.integers(0, self.last_seq + 2))
        floor = info_of(self.replica, name).ack_floor.stream_seq
        found = finish(self.node, lambda: self.replica.reset_consumer(name, seq))
        assert found is not None
        assert found[1] == (seq or floor + 1)
        model.cursor = found[1] - 1
        model.pending.clear()
        self.replies = {key: reply for key, reply in self.replies.items() if key[0] != name}

    def _due(self, model: Model, now_ns: int) -> dict[int, int]:
        """What is to be delivered again, and the number of that delivery; what may not be is given up."""
        due = {}
        for seq, one in list(model.pending.items()):
            if one.due_ns > now_ns:
                continue
            if seq not in self.live or one.count == model.max_deliver:
                del model.pending[seq]
            else:
                due[seq] = one.count + 1
        return due

    @precondition(lambda self: self.replies)
    @rule(data=st.data(), body=st.sampled_from([b"", b"", b"+ACK", b"-NAK", b"+TERM", b"+WPI"]), asks=st.booleans())
    def answer(self, data: st.DataObject, body: bytes, *, asks: bool) -> None:
        name, seq = data.draw(st.sampled_from(sorted(self.replies)))
        model, reply = self.models[name], b"_INBOX.a" if asks else b""
        self._tick()
        self.node.publish(self.replies[name, seq], body, reply=reply)
        self.node.turn()
        one = model.pending.get(seq)
        if body in (b"", b"+ACK", b"+TERM") and name == "floor":
            model.pending = {found: one for found, one in model.pending.items() if found > seq}
        elif body in (b"", b"+ACK", b"+TERM"):
            model.pending.pop(seq, None)
        elif one is not None and body == b"-NAK":
            one.due_ns = self.clock.now_ns
        elif one is not None and body == b"+WPI":
            one.delivered_ns = self.clock.now_ns
            one.due_ns = self.clock.now_ns + ACK_WAIT

    def _tick(self) -> None:
        """What is due is given up or queued before anything else comes, as time has passed."""
        for model in self.models.values():
            for seq, one in list(model.pending.items()):
                if one.due_ns <= self.clock.now_ns and one.count == model.max_deliver:
                    del model.pending[seq]

    @rule(wait_ns=st.sampled_from([S // 10, S, 3 * S]))
    def sleep(self, wait_ns: int) -> None:
        self.node.sleep(wait_ns)
        self._produce()
        self._tick()

    # Leaders and processes.

    @rule()
    def change_leader(self) -> None:
        """Another leader starts from replicated state: it knows of no NAK."""
        self.node.sleep(S // 10)
        self._produce()
        self._tick()
        self.replica.became_follower(1, None)
        self.replica.became_leader(1)
        self.node.turn()
        self.led_since_ns = self.clock.now_ns
        self._wait_again()

    @rule()
    def restart(self) -> None:
        self.node.sleep(S // 10)
        self._produce()
        self._tick()
        before = self._digest()
        self.replica.stop()
        self.node.turn()
        self.log.close()
        while self.disk.drain():
            pass
        self.log = self._opened()
        self._start()
        assert self._digest() == before
        self._wait_again()

    def _wait_again(self) -> None:
        for model in self.models.values():
            for one in model.pending.values():
                one.due_ns = one.delivered_ns + ACK_WAIT
        self._tick()

    # What holds.

    @invariant()
    def the_stream_is_the_model(self) -> None:
        store = self.replica.machine.store
        assert (store.messages, store.last_seq, store.first_seq) == (len(self.live), self.last_seq, self.first_seq)
        found = {one.seq: (one.subject, one.payload) for one in store.load_many(range(1, self.last_seq + 1))}
        assert found == self.live
        position = self.replica.machine.sources.get(ORIGIN)
        assert self.origin_seq == (0 if position is None else position.seq)

    @invariant()
    def every_consumer_is_its_model(self) -> None:
        for name, model in self.models.items():
            info = info_of(self.replica, name)
            model.pending = {seq: one for seq, one in model.pending.items() if seq in self.live}  # who asks, forgets
            waiting = [seq for seq, (subject, _) in self.live.items() if seq > model.cursor and model.wants(subject)]
            assert (name, info.num_pending) == (name, len(waiting))
            assert (name, info.num_ack_pending) == (name, len(model.pending))
            floor = min(model.pending, default=info.delivered.stream_seq + 1) - 1
            assert (name, info.ack_floor.stream_seq) == (name, floor)


def _filters(fields: dict[str, object]) -> tuple[bytes, ...]:
    found = fields.get("filter_subjects") or (fields.get("filter_subject"),)
    assert isinstance(found, tuple)
    return tuple(one.encode() for one in found if one)


TestStreamModel = pytest.mark.long_form(StreamModel.TestCase)
TestStreamModel.settings = settings(
    max_examples=examples(12, long=300),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
