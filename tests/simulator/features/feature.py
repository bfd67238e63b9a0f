"""What a feature of a stream adds to a run: a configuration, clients, checks. This one adds nothing."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, NamedTuple

import attrs

from jetraft.store.model.clock import NS_PER_S
from jetraft.store.model.config import RetentionPolicy
from jetraft.store.model.limits import BatchLimits

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from jetraft.cluster.ports import DeliveryRun, MessageSource
    from jetraft.cluster.state.commands import ConsumerCommand, StreamCommand
    from jetraft.cluster.streams.replica.leader import StreamLeadership
    from jetraft.store.model.config import StreamConfig
    from jetraft.store.model.ids import NodeId
    from tests.simulator.checkers import Checker
    from tests.simulator.client import Client
    from tests.simulator.features.exchange import Exchange
    from tests.simulator.host import Host
    from tests.simulator.world import World

INBOX = b"_INBOX.x."  # of all features: what follows is the feature's own


class Stored(NamedTuple):
    """A message of the log."""

    seq: int
    ts_ns: int
    subject: bytes
    hdr: bytes
    payload: bytes


class Feature:
    """The base of all features. `hosts`, `client` and `checker` are those of the run."""

    publishes = True  # the clients of any run publish, too
    works = True  # and pull, acknowledge, and have delivered all that there is
    batch_limits = BatchLimits()
    repeats_with = b""  # the header of messages whose payload may be in the log twice
    keeps_acks = True  # what is acknowledged is not delivered again

    def __init__(self, world: World) -> None:
        self.world = world
        self.hosts: Mapping[NodeId, Host] = {}
        self.is_over = False  # no more is begun
        self.exchange: Exchange | None = None  # for what nodes send to no inbox

    def join(self, hosts: Mapping[NodeId, Host], checker: Checker, client: Client) -> None:
        """Be part of a run."""
        self.hosts, self.checker, self.client = hosts, checker, client

    def configure(self, config: StreamConfig) -> StreamConfig:
        """The stream of the run: one that keeps everything."""
        return attrs.evolve(config, retention=RetentionPolicy.LIMITS, max_msgs=-1)

    def patches(self) -> contextlib.AbstractContextManager[object]:
        """What else is smaller, or of the simulator, while the run is played."""
        return contextlib.nullcontext()

    def start(self) -> None:
        """Let clients begin."""

    def before_fault(self) -> None:
        """A fault follows in a moment."""

    def on_leader(self, *, knows_time: bool) -> None:
        """A node leads."""

    def on_messages(self, messages: Sequence[Stored]) -> None:
        """An entry with messages is committed."""

    def on_stream(self, command: StreamCommand) -> None:
        """An entry about the stream is committed."""

    def on_consumer(self, index: int, command: ConsumerCommand) -> None:
        """A command about a consumer is committed."""

    def on_answer(self, about: bytes, payload: bytes, hdr: bytes) -> None:
        """Something arrives in an inbox of the feature; `about` is the subject behind INBOX."""

    def on_deliveries(self, host: Host, run: DeliveryRun, source: MessageSource) -> int:
        """Messages of a consumer arrive there; returns how many."""
        raise NotImplementedError

    def judge(self) -> str | None:
        """The end: a problem or None. Raises ViolationError as well."""

    # For features.

    def leaders(self) -> list[Host]:
        """The nodes that take themselves for the leader."""
        return [host for host in self.hosts.values() if host.leads]

    def some_leader(self) -> Host | None:
        """One of them."""
        leaders = self.leaders()
        return self.world.rng.choice(leaders) if leaders else None

    def often(self, rate_per_s: float, event: Callable[[], None]) -> None:
        """Let something happen at random moments until it is over."""

        def once() -> None:
            if not self.is_over:
                event()
                self.often(rate_per_s, event)

        self.world.after(int(self.world.rng.expovariate(rate_per_s) * NS_PER_S), once)


def leadership_of(host: Host) -> StreamLeadership | None:
    """The leader's part of a replica."""
    return None if host.replica is None else host.replica._leadership
