"""The clients of a run: a publisher, a reader, and a worker that pulls, acknowledges some, and forgets others.

They talk to every node that takes itself for the leader. What they were told is kept and judged: acknowledged messages,
confirmed acknowledgements of their own, and what a read has shown.
"""

import random
from typing import TYPE_CHECKING

import orjson

from jetraft.cluster.ports import DeliveryRun, MessageSource
from jetraft.cluster.state import commands
from jetraft.cluster.state.snapshot import encode_config
from jetraft.raft.engine.port import Proposal
from jetraft.raft.proposals import Outcome
from jetraft.store.frames.format import Kind
from jetraft.store.model.clock import NS_PER_S
from jetraft.store.model.config import AckPolicy, ConsumerConfig
from jetraft.store.model.ids import NodeId
from tests.simulator.ages import Ages
from tests.simulator.checkers import Checker
from tests.simulator.features.feature import INBOX, Feature
from tests.simulator.outbox import ack_subjects
from tests.simulator.world import MS, ViolationError, World

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jetraft.raft.group import Group
    from tests.simulator.host import Host

STREAM = "S"
CONSUMER = ConsumerConfig(
    durable_name="C", ack_policy=AckPolicy.EXPLICIT, ack_wait=800 * MS, max_deliver=-1, max_ack_pending=40
)
CREATE = commands.encode_consumer_commands([commands.CreateConsumer("C", encode_config(CONSUMER), 1)])
PULL = orjson.dumps({"batch": 4, "expires": 400 * MS})
PULL_ALL = orjson.dumps({"batch": 100, "expires": 400 * MS})
TRY_AGAIN_NS = 700 * MS


class Client:
    """All of them. `hosts` is filled in when the nodes exist."""

    def __init__(  # noqa: PLR0913  (what a run is made of)
        self,
        world: World,
        checker: Checker,
        *,
        load: float,
        ages: Ages | None = None,
        feature: Feature | None = None,
        first: int = 0,
    ) -> None:
        """Messages are numbered from the one after `first`."""
        self._ages = ages
        self._feature = feature or Feature(world)
        self._world = world
        self._checker = checker
        self._load = load
        self.hosts: Mapping[NodeId, Host] = {}
        self.publishes = self._feature.publishes
        self.diligent = False  # acknowledges everything
        self.acknowledged: dict[int, int] = {}  # by number of the message: its sequence
        self._confirmations: dict[bytes, int] = {}
        self.confirmed: set[int] = set()  # sequences
        self._deliveries: list[tuple[int, int]] = []  # (consumer, stream sequence), not yet compared with the log
        self._published, self._asked = first, 0
        self._reading: dict[int, tuple[Host, int, Group]] = {}  # reads that have not ended
        self._ways = random.Random(1)  # of reads through followers; others draw as if these did not exist
        self._seen_seq = 0  # what an acknowledgement or a finished read has shown: every later read shows it too

    def start(self) -> None:
        """Begin to work."""
        self._world.after(100 * MS, self._publish_for_ever)
        if self._feature.works:
            self._world.after(150 * MS, self._pull_for_ever)
        self._world.after(200 * MS, self._read_for_ever)
        self._feature.start()

    def _leaders(self) -> list["Host"]:
        return [host for host in self.hosts.values() if host.leads]

    # Publishing.

    def _publish_for_ever(self) -> None:
        if self.publishes:
            self.publish()
            self._world.after(int(self._world.rng.expovariate(self._load) * NS_PER_S), self._publish_for_ever)

    def before_fault(self) -> None:
        """Something is under way when a fault comes."""
        if self._feature.publishes:
            self.publish()
        self._feature.before_fault()

    def publish(self) -> None:
        """Some messages to every node that says that it leads."""
        world = self._world
        for host in self._leaders():
            if world.chance(0.8):
                for _ in range(world.rng.choice((1, 1, 3, 6))):
                    self._published += 1
                    self._publish_one(host, self._published, with_id=world.chance(0.2))

    def publish_last(self) -> int:
        """One more when all faults are over; returns its number."""
        for host in self._leaders()[:1]:
            self.publish_to(host)
        return self._published

    def publish_to(self, host: "Host") -> None:
        """One message to one node."""
        self._published += 1
        self._publish_one(host, self._published, with_id=False)

    def _publish_one(self, host: "Host", number: int, *, with_id: bool) -> None:
        world = self._world
        body = b"message %d " % number + b"." * (0, 0, 20, 300)[number % 4]
        hdr = b"NATS/1.0\r\nNats-Msg-Id: %d\r\n\r\n" % number if with_id else b""
        if self._ages is not None:
            hdr = self._ages.on_publish(number, hdr)
        subject = b"s.%d" % (number % 5)
        host.publish(subject, reply=b"_INBOX.p.%d" % number, hdr=hdr, payload=body)
        if with_id:

            def try_again() -> None:
                if number not in self.acknowledged and self.publishes:
                    for leader in self._leaders()[-1:]:
                        world.counts["tried again"] += 1
                        leader.publish(subject, reply=b"_INBOX.p.%d" % number, hdr=hdr, payload=body)
                    world.after(TRY_AGAIN_NS, try_again)

            world.after(TRY_AGAIN_NS, try_again)

    def _on_ack(self, number: int, payload: bytes) -> None:
        answer = orjson.loads(payload)
        if "error" in answer:
            self._world.counts["refused"] += 1
            return
        seq = self.acknowledged.setdefault(number, answer["seq"])
        if seq != answer["seq"]:
            raise ViolationError(f"message {number} was acknowledged at {seq} and at {answer['seq']}")
        self._world.counts["ok"] += 1
        self._seen_seq = max(self._seen_seq, seq)

    def lost(self) -> list[int]:
        """Acknowledged messages that the log does not have where it was said."""
        return [
            number
            for number, seq in self.acknowledged.items()
            if not self._checker.messages.get(seq, b"").startswith(b"message %d " % number)
        ]

    # Working.

    def _pull_for_ever(self) -> None:
        world = self._world
        for host in self._leaders():
            assert host.replica is not None
            if "C" not in host.replica.machine.consumers:
                group = host.replica.group
                host.do(lambda group=group: group.propose(Proposal(kind=Kind.CONSUMER_OP, body=CREATE)))  # type: ignore[misc]  # mypy cannot infer a lambda with a default
            else:
                self._asked += 1
                pull = PULL_ALL if self.diligent else PULL
                host.publish(b"$JS.API.CONSUMER.MSG.NEXT.S.C", reply=b"_INBOX.c.%d" % self._asked, payload=pull)
        world.after(world.between(100 * MS, 400 * MS), self._pull_for_ever)

    def on_deliveries(self, host: "Host", run: DeliveryRun, source: MessageSource) -> int:
        """Messages of the consumer arrive: most are acknowledged after a while, half of those with a reply."""
        if run.to.startswith(INBOX):
            return self._feature.on_deliveries(host, run, source)
        world = self._world
        found = ack_subjects(run, source)
        for seq, consumer_seq, subject in found:
            world.counts["deliveries"] += 1
            self._deliveries.append((consumer_seq, seq))
            if seq in self.confirmed and self._feature.keeps_acks:
                self._check_delivery(seq, consumer_seq)
            if self.diligent or world.chance(0.75):
                reply = b"_INBOX.a.%d" % world.counts["deliveries"] if world.chance(0.5) else b""
                self._confirmations[reply] = seq
                world.after(world.between(1 * MS, 300 * MS), lambda s=subject, r=reply: self._acknowledge(host, s, r))  # type: ignore[misc]  # mypy cannot infer a lambda with a default
        return len(found)

    def _check_delivery(self, seq: int, consumer_seq: int) -> None:
        """A delivery after a confirmed acknowledgement must have been decided before it."""
        if not self._checker.is_delivered(consumer_seq, seq):
            raise ViolationError(f"message {seq} is delivered again after its acknowledgement was confirmed")

    def _acknowledge(self, host: "Host", subject: bytes, reply: bytes) -> None:
        leaders = self._leaders()
        for leader in [host] if host.leads else leaders[:1]:
            leader.publish(subject, reply=reply, payload=b"+ACK")

    def compare_with_log(self, *, replicated: bool) -> None:
        """Deliveries and confirmations rest on entries that are committed. (A consumer of one sends ahead of them.)"""
        if replicated:
            for consumer_seq, seq in self._deliveries:
                if not self._checker.is_delivered(consumer_seq, seq):
                    raise ViolationError(f"message {seq} was delivered as {consumer_seq}: the log does not say so")
        gone = frozenset[int]() if self._ages is None else self._ages.gone  # a purge ends the wait for their acks
        missing = [seq for seq in self.confirmed if seq not in self._checker.ever_acked and seq not in gone]
        if missing:
            raise ViolationError(f"confirmed acknowledgements of {missing} are not in the log")

    # Reading.

    def _read_for_ever(self) -> None:
        world = self._world
        for host in self._leaders():
            self._read(host)
        for host in self.hosts.values():
            self._read_through(host)
        world.after(int(world.rng.expovariate(3) * NS_PER_S), self._read_for_ever)

    def _read_through(self, host: "Host") -> None:
        """A read that enters at a follower goes to whom it follows, with its word, and may be long on its way."""
        followed = None if host.group is None else host.group.followed()
        if followed is not None:
            leader, term = followed
            floor, word = self._seen_seq, (host.node_id, term)
            delay_ns = self._ways.choice((1, 1, 5, 50, 500, 3000)) * MS
            self._world.after(delay_ns, lambda: self._read(self.hosts[leader], floor, word))

    def _read(self, host: "Host", floor: int | None = None, word: tuple[NodeId, int] | None = None) -> None:
        """A linearizable read at somebody who says that it leads: it shows all that anybody was told before."""
        floor = self._seen_seq if floor is None else floor
        group, number = host.group, host.number
        self._asked += 1
        read_number = self._asked

        def done(outcome: Outcome, _result: object) -> None:
            self._reading.pop(read_number, None)
            if outcome is Outcome.OK and host.replica is not None:
                shown = host.replica.machine.last_seq
                self._world.counts["reads"] += 1
                if shown < floor:
                    raise ViolationError(f"{host.node_id} reads up to {shown}, {floor} had been seen before")
                self._seen_seq = max(self._seen_seq, shown)

        def read() -> None:
            if group is not None and host.group is group:
                self._reading[read_number] = (host, number, group)
                group.read_barrier(done, word=word)

        host.do(read)

    def unended(self) -> list[int]:
        """Reads of which nobody ever heard again, though the process and its group live (rule 25)."""
        return [
            number
            for number, (host, process, group) in self._reading.items()
            if host.number == process and host.group is group and not group.is_leader
        ]

    def on_message(self, to: bytes, hdr: bytes, payload: bytes) -> None:
        """Something arrives in an inbox."""
        if to.startswith(INBOX):
            self._feature.on_answer(to.removeprefix(INBOX), payload, hdr)
            return
        _, kind, number = to.split(b".")
        if kind == b"p":
            self._on_ack(int(number), payload)
        elif kind == b"a" and not hdr:
            self._world.counts["confirmed"] += 1
            self.confirmed.add(self._confirmations[to])
