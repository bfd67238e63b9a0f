"""Messages between the nodes of two groups, and the API of one of them: what core NATS and a server's API do.

A message reaches every node that captures its subject, after a while, in order between two nodes; some are lost, for
core NATS promises no more. Creations and deletions of consumers are carried out by a node that says that it leads.
"""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING

import attrs
import orjson

from jetraft.store.model.config import ConsumerAction, ConsumerConfig
from jetraft.store.model.state import ConsumerInfo
from tests.simulator.features.batches import block
from tests.simulator.features.coroutines import drive
from tests.simulator.world import MS, US, World

if TYPE_CHECKING:
    from collections.abc import Callable

    from jetraft.cluster.streams.replica.replica import StreamReplica
    from tests.simulator.host import Host

LOST = 0.002
API_LOST = 0.05
CREATE, DELETE = "$JS.API.CONSUMER.CREATE.", "$JS.API.CONSUMER.DELETE."


class Exchange:
    """Between all nodes that have joined. `names` maps the name of a stream to its nodes."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._streams: dict[str, list[Host]] = {}
        self._arrives_ns: dict[tuple[object, object], int] = defaultdict(int)
        self.identities: dict[str, bytes] = {}
        self.loss = LOST  # of all messages

    def join(self, stream: str, hosts: list[Host]) -> None:
        """These nodes have the stream."""
        self._streams[stream] = hosts
        self.identities[stream] = b"identity"

    def _nodes(self) -> list[Host]:
        return [host for hosts in self._streams.values() for host in hosts]

    def is_heard(self, subject: bytes) -> bool:
        """Whether some node captures it."""
        return any(host.alive and host.outbox.captures(subject) for host in self._nodes())

    def send(self, source: Host | None, to: bytes, message: tuple[bytes, bytes, bytes, bytes]) -> int:
        """A message (subject, reply, headers, payload) leaves a node; it returns how many nodes are to have it."""
        text = to.decode()
        if text.startswith((CREATE, DELETE)):
            self._world.after(self._world.between(300 * US, 5 * MS), partial(self._ask, text, message))
            return 1
        receivers = [host for host in self._nodes() if host.alive and host.outbox.captures(to)]
        for host in receivers:
            self._carry(source, host, to, message)
        return len(receivers)

    def _carry(self, source: Host | None, host: Host, to: bytes, message: tuple[bytes, bytes, bytes, bytes]) -> None:
        world, way = self._world, (source, host)
        if world.chance(self.loss):
            world.counts["lost on the way"] += 1
            return
        self._arrives_ns[way] = max(self._arrives_ns[way] + 1, world.now_ns + world.between(200 * US, 3 * MS))
        number = host.number

        def arrive() -> None:
            if host.number == number:
                host.do(lambda: host.outbox.captured(to, *message))

        world.at(self._arrives_ns[way], arrive)

    # The API.

    def _ask(self, subject: str, message: tuple[bytes, bytes, bytes, bytes]) -> None:
        _, reply, _, body = message
        stream, name = subject.split(".")[4:6]
        leaders = [host for host in self._streams[stream] if host.leads]
        if not leaders or (not self._world.is_calm and self._world.chance(API_LOST)):
            return
        host = self._world.rng.choice(leaders)
        replica = host.replica
        assert replica is not None
        if subject.startswith(DELETE):
            host.do(lambda: drive(delete(replica, name), lambda _: None))  # a host that stood still leads no more
            return
        config = ConsumerConfig.from_json(orjson.dumps(orjson.loads(body)["config"]))
        answer: Callable[[object], None] = partial(self._answer, host, stream, reply)
        self._world.counts["consumers asked for"] += 1
        host.do(
            lambda: drive(
                replica.create_consumer(config, action=ConsumerAction.CREATE_OR_UPDATE, pedantic=False), answer
            )
        )

    def _answer(self, host: Host, stream: str, reply: bytes, result: object) -> None:
        if not isinstance(result, ConsumerInfo):
            return  # who asked asks again
        body = {
            "name": result.name,
            "delivered": {"stream_seq": result.delivered.stream_seq},
            "num_pending": result.num_pending,
        }
        hdr = block({b"Nats-Stream-Identity": self.identities[stream]})
        self.send(host, reply, (reply, b"", hdr, orjson.dumps(body)))


@attrs.frozen(eq=False)
class Way:
    """One node's way to the others. Implements Elsewhere."""

    exchange: Exchange
    host: Host

    def send(self, to: bytes, message: tuple[bytes, bytes, bytes, bytes]) -> int:
        return self.exchange.send(self.host, to, message)

    def is_heard(self, subject: bytes) -> bool:
        return self.exchange.is_heard(subject)


async def delete(replica: StreamReplica, name: str) -> None:
    """Delete a consumer, where the replica leads."""
    await replica.consumers.delete(name)
