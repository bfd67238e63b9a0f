"""Workers of a consumer with dead letters, order of keys and strict acks: its letters are messages of the same stream.

The log tells: what is given up has one letter, of its message, and is not done with before the letter is there. Of each
key the lowest message that waits is the one that is sent. A confirmed ack is of the newest delivery, and the only one.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING
from unittest import mock

import attrs
import orjson

from jetraft.cluster.consumers import dead_letters
from jetraft.cluster.consumers.letter_form import OURS
from jetraft.cluster.state import commands
from jetraft.cluster.state.snapshot import encode_config
from jetraft.raft.engine.port import Proposal
from jetraft.store.frames.format import Kind
from jetraft.store.model import message
from jetraft.store.model.config import AckPolicy, ConsumerConfig
from tests.simulator.features.exchange import Exchange
from tests.simulator.features.feature import INBOX, Feature, Stored
from tests.simulator.outbox import ack_subjects
from tests.simulator.world import MS, ViolationError, World

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping, Sequence

    from jetraft.cluster.ports import DeliveryRun, MessageSource
    from jetraft.cluster.state.commands import ConsumerCommand
    from jetraft.store.model.ids import NodeId
    from tests.simulator.checkers import Checker
    from tests.simulator.client import Client
    from tests.simulator.host import Host

NAME = "L"
LETTERS = b"dead"
CONSUMER = ConsumerConfig(
    durable_name=NAME,
    ack_policy=AckPolicy.EXPLICIT,
    ack_wait=300 * MS,
    max_deliver=2,
    max_ack_pending=20,
    filter_subject="s.*",
    metadata={
        "jetraft.dead_letter": f"s.{LETTERS.decode()}",
        "jetraft.key_order": "token 2",
        "jetraft.strict_acks": "true",
    },
)
CREATE = commands.encode_consumer_commands([commands.CreateConsumer(NAME, encode_config(CONSUMER), 1)])
PULL = orjson.dumps({"batch": 6, "expires": 300 * MS})
LOST = 0.05  # of letters and their confirmations
LATE_NS = 500 * MS  # an ack may come after its ack wait
ANSWER_WAIT_NS, REST_NS = 400 * MS, 100 * MS
CONFIRMED, STALE = "letters' acks confirmed", "stale acks"


@attrs.define
class Work:
    """What the log says of one message of the consumer."""

    key: bytes
    sent_as: int | None = None  # the consumer sequence of its newest delivery
    is_settled: bool = False
    given_up_ns: int | None = None
    letters: int = 0


class Letters(Feature):
    """See the module."""

    repeats_with = OURS + b"Sequence"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._letters_way = Exchange(world)
        self._letters_way.loss = LOST
        self.exchange = self._letters_way
        self._keys: dict[int, bytes] = {}  # by sequence: the second token of the subject
        self._work: dict[int, Work] = {}
        self._sent: set[tuple[int, int]] = set()  # (sequence, consumer sequence) of the log
        self._seen: list[tuple[int, int]] = []  # the same, as it arrived
        self._asked: dict[int, tuple[int, int]] = {}  # by number of the request: which delivery it acknowledges
        self._confirmed: dict[int, int] = {}  # by sequence: the consumer sequence
        self._pulls = 0

    def join(self, hosts: Mapping[NodeId, Host], checker: Checker, client: Client) -> None:
        super().join(hosts, checker, client)
        self._letters_way.join("S", list(hosts.values()))

    @contextlib.contextmanager
    def patches(self) -> Generator[None, None, None]:
        with (
            mock.patch.object(dead_letters, "ANSWER_WAIT_NS", ANSWER_WAIT_NS),
            mock.patch.object(dead_letters, "REST_NS", REST_NS),
            mock.patch.object(dead_letters, "REST_NS_MAX", REST_NS),
        ):
            yield

    # Workers.

    def start(self) -> None:
        self._pull_for_ever()

    def before_fault(self) -> None:
        self._pull()

    def _pull_for_ever(self) -> None:
        self._pull()
        self.world.after(self.world.between(50 * MS, 200 * MS), self._pull_for_ever)

    def _pull(self) -> None:
        for host in self.leaders():
            assert host.replica is not None
            if NAME not in host.replica.machine.consumers:
                group = host.replica.group
                host.do(lambda group=group: group.propose(Proposal(kind=Kind.CONSUMER_OP, body=CREATE)))  # type: ignore[misc]  # mypy cannot infer a lambda with a default
            else:
                self._pulls += 1
                host.publish(b"$JS.API.CONSUMER.MSG.NEXT.S.L", reply=INBOX + b"l.%d" % self._pulls, payload=PULL)

    def on_deliveries(self, host: Host, run: DeliveryRun, source: MessageSource) -> int:
        world, found = self.world, ack_subjects(run, source)
        for seq, consumer_seq, subject in found:
            world.counts["letters' deliveries"] += 1
            self._seen.append((seq, consumer_seq))
            kind = world.rng.choices(
                (b"+ACK", b"+TERM gone", b"-NAK", b"+WPI", b""), (1, 0, 0, 0, 0) if self.is_over else (6, 1, 1, 1, 2)
            )[0]
            if kind:
                after_ns = world.between(1 * MS, 50 * MS if self.is_over else LATE_NS)
                delivery = seq, consumer_seq
                world.after(after_ns, lambda s=subject, k=kind, d=delivery: self._answer(host, s, k, d))  # type: ignore[misc]  # mypy cannot infer a lambda with a default
        return len(found)

    def _answer(self, host: Host, subject: bytes, kind: bytes, delivery: tuple[int, int]) -> None:
        reply = b""
        if kind in {b"+ACK", b"+TERM gone"}:
            number = len(self._asked) + 1
            self._asked[number] = delivery
            reply = INBOX + b"a.%d" % number
        for leader in [host] if host.leads else self.leaders()[:1]:
            leader.publish(subject, reply=reply, payload=kind)

    def on_answer(self, about: bytes, payload: bytes, hdr: bytes) -> None:
        kind, _, number = about.partition(b".")
        if kind != b"a":
            return
        if hdr:
            self.world.counts[STALE] += 1
            return
        del payload
        seq, consumer_seq = self._asked[int(number)]
        if seq in self._confirmed:
            raise ViolationError(f"two acks of message {seq} are confirmed")
        self._confirmed[seq] = consumer_seq
        self.world.counts[CONFIRMED] += 1

    # The log.

    def on_messages(self, messages: Sequence[Stored]) -> None:
        for stored in messages:
            tokens = stored.subject.split(b".")
            if tokens[1] == LETTERS:
                self._on_letter(stored)
            else:
                self._keys[stored.seq] = tokens[1]

    def _on_letter(self, stored: Stored) -> None:
        seq = int(message.get(stored.hdr, OURS + b"Sequence") or b"0")
        work = self._work.get(seq)
        if work is None or work.given_up_ns is None or self.checker.messages[seq] != stored.payload:
            raise ViolationError(
                f"message {stored.seq} is a letter of {seq}, which was not given up, or is another one"
            )
        work.letters += 1
        if work.letters > 1:
            raise ViolationError(f"message {seq} has two letters")
        self.world.counts["letters"] += 1

    def on_consumer(self, index: int, command: ConsumerCommand) -> None:
        if command.name == NAME:
            self._on_work(index, command)

    def _on_work(self, index: int, command: ConsumerCommand) -> None:
        match command:
            case commands.Delivered():
                self._work.update((seq, Work(self._keys[seq])) for seq in command.seqs)
            case commands.Redelivered():
                for place, (seq, _) in enumerate(command.counts):
                    self._on_sent(index, seq, command.consumer_seq + place)
            case commands.Acked():
                self._on_settled(index, command.seqs)
            case commands.GaveUp():
                self._on_settled(index, command.seqs, given_up_ns=command.ts_ns)
            case commands.HandedOn():
                early = [seq for seq, _ in command.letters if not self._work[seq].letters]
                if early:
                    raise ViolationError(f"entry {index} is done with letters of {early}, which are in no stream")
            case commands.Dropped():
                raise ViolationError(f"entry {index} drops {list(command.seqs)} without letters")
            case _:
                pass

    def _on_sent(self, index: int, seq: int, consumer_seq: int) -> None:
        work = self._work[seq]
        if work.is_settled:
            raise ViolationError(f"entry {index} sends {seq}, which is settled")
        before = [one for one, other in self._waiting() if other.key == work.key and one < seq]
        if before:
            raise ViolationError(f"entry {index} sends {seq} while {before} of its key wait")
        work.sent_as = consumer_seq
        self._sent.add((seq, consumer_seq))

    def _on_settled(self, index: int, seqs: Iterable[int], *, given_up_ns: int | None = None) -> None:
        for seq in seqs:
            if self._work[seq].is_settled:
                raise ViolationError(f"entry {index} settles {seq} again")
            self._work[seq].is_settled, self._work[seq].given_up_ns = True, given_up_ns

    def _waiting(self) -> list[tuple[int, Work]]:
        return [(seq, work) for seq, work in self._work.items() if not work.is_settled]

    # The end.

    def judge(self) -> str | None:
        unknown = [delivery for delivery in self._seen if delivery not in self._sent]
        if unknown:
            raise ViolationError(f"deliveries {unknown} are not in the log")
        for seq, consumer_seq in self._confirmed.items():
            work = self._work[seq]
            if not work.is_settled or work.sent_as != consumer_seq:
                raise ViolationError(f"an ack of {seq} as {consumer_seq} is confirmed, it was sent as {work.sent_as}")
        without = [seq for seq, work in self._work.items() if work.given_up_ns is not None and not work.letters]
        untaken = [seq for seq in self._keys if seq not in self._work]
        waiting = [seq for seq, _ in self._waiting()]
        if without or untaken or waiting:
            return f"liveness: {without} have no letter, {waiting} and {untaken} are not settled"
        leader = self.some_leader()
        assert leader is not None
        assert leader.replica is not None
        dead = leader.replica.machine.consumers[NAME].dead
        return f"liveness: letters of {list(dead)} are not done with" if dead else None
