"""Readers of whole nodes: direct gets of what somebody was told is there, at any node that takes them, all the time.

A get is answered by the node that it was sent to. Judged is what it misses:

- nothing that was acknowledged before the replica was made: it answers when it has had, once, all that its leader had;
- nothing that was acknowledged more than STALENESS_MAX_NS before the get was sent;
- and no answer comes from a replica whose log has failed, or of a stream that somebody was told is gone, by a process
  that began after that.

A 503 is no answer, and one that says that the message is damaged claims nothing. All forms are read: one message, a
batch, the last of subjects, columns.
"""

from random import Random
from typing import TYPE_CHECKING, Final

import attrs
import orjson
import trio

from jetraft.cluster.state.assignment import StreamKey
from jetraft.cluster.streams.gets.column_request import MEDIA_TYPE
from jetraft.raft.freshness import STALENESS_MAX_NS
from jetraft.store.model.clock import NS_PER_S
from jetraft.store.model.message import get
from pyspark_jetstream.columns import parse_columns
from tests.simulator.world import MS, ViolationError

if TYPE_CHECKING:
    from jetraft.cluster.streams.replica.replica import StreamReplica
    from tests.simulator.nodes.clients import Clients, Stream
    from tests.simulator.nodes.cluster import SimCluster
    from tests.simulator.nodes.life import Life

PREFIX: Final = b"_INBOX.r."
FORMS: Final = ("one", "last", "batch", "multi", "columns")
WAIT_S: Final = 0.5
PAUSE_NS: Final = 40 * MS
COLUMNS: Final = b"NATS/1.0\r\nAccept: %s\r\n\r\n" % MEDIA_TYPE
ACCOUNT: Final = "$G"


@attrs.define(eq=False, kw_only=True)
class Asked:
    """One get, and the first message that came of it."""

    life: "Life"
    stream: "Stream"
    form: str
    seq: int
    acked_ns: int  # of the message
    asked_ns: int
    gone_ns: int | None  # of the stream, when it was asked
    came: trio.Event = attrs.field(factory=trio.Event)
    hdr: bytes = b""
    payload: bytes = b""
    replica: "StreamReplica | None" = None
    has_failed: bool = False


class Readers:
    """All of them; `look` is called after every turn of a node, `receive` with what comes."""

    def __init__(self, cluster: "SimCluster", clients: "Clients", seed: int) -> None:
        self._cluster = cluster
        self._clients = clients
        self._world = cluster.world
        self._rng = Random(seed)  # of their own: who reads changes no other luck
        self._asked: dict[bytes, Asked] = {}
        self._sent = 0
        self._made: dict[int, tuple[StreamReplica, int]] = {}  # by id: each replica, and when it was seen first
        self._began: dict[tuple[str, int], int] = {}  # when a process was seen first

    def look(self, life: "Life") -> None:
        """Note which replicas there are."""
        now_ns = self._world.now_ns
        self._began.setdefault((life.name, life.number), now_ns)
        if life.node is not None:
            for _, replica in life.node.directory.replicas():
                if id(replica) not in self._made:
                    self._made[id(replica)] = replica, now_ns

    def receive(self, life: "Life", to: bytes, hdr: bytes, payload: bytes) -> None:
        """Something arrives in a reader's inbox."""
        asked = self._asked.pop(to, None)
        if asked is None or life.node is None:
            return
        asked.hdr, asked.payload = hdr, payload
        asked.replica = life.node.directory.get(StreamKey(ACCOUNT, asked.stream.name))
        asked.has_failed = asked.replica is not None and asked.replica.group.failed is not None
        asked.came.set()

    async def read_for_ever(self) -> None:
        """Read while the run publishes."""
        while self._clients.is_publishing:
            await self._world.sleep(int(self._rng.expovariate(1) * PAUSE_NS))
            known = [stream for stream in self._clients.streams.values() if stream.is_read and stream.acknowledged]
            if known:
                await self._read(self._rng.choice(known))

    async def _read(self, stream: "Stream") -> None:
        number, seq = self._rng.choice(list(stream.acknowledged.items()))
        form = self._rng.choice(FORMS)
        subject, hdr, body = _question(stream, form, number, seq)
        taking = [life for life in self._cluster.lives if life.is_alive and life.plane.captures(subject)]
        if not taking:
            return
        asked = Asked(
            life=self._rng.choice(taking),
            stream=stream,
            form=form,
            seq=seq,
            acked_ns=stream.acked_ns[number],
            asked_ns=self._world.now_ns,
            gone_ns=stream.gone_ns,
        )
        self._sent += 1
        reply = PREFIX + b"%d" % self._sent
        self._asked[reply] = asked
        asked.life.plane.publish(subject, reply=reply, hdr=hdr, payload=body)
        with trio.move_on_after(WAIT_S):
            await asked.came.wait()
            self._judge(asked)
        self._asked.pop(reply, None)

    def _judge(self, asked: Asked) -> None:
        stream, where = asked.stream, f"{asked.stream.name}: {asked.life.name} answers a get ({asked.form})"
        if asked.hdr.startswith((b"NATS/1.0 503", b"NATS/1.0 500")):
            self._world.counts["gets elsewhere"] += 1
            return
        if asked.has_failed:
            raise ViolationError(f"{where} from a replica that has failed")
        began_ns = self._began[asked.life.name, asked.life.number]
        if asked.gone_ns is not None and asked.gone_ns < began_ns:
            raise ViolationError(f"{where}, and began after the stream was gone")
        if _has(asked):
            self._world.counts["gets"] += 1
            return
        self._world.counts["gets behind"] += 1
        if stream.may_lose or stream.may_be_gone or asked.replica is None:
            return
        made_ns = self._made.get(id(asked.replica), (asked.replica, self._world.now_ns))[1]
        missed = f"{where} without {asked.seq}, acknowledged"
        if asked.acked_ns < made_ns:
            raise ViolationError(f"{missed} {(made_ns - asked.acked_ns) / NS_PER_S:.3f} s before the replica began")
        if asked.asked_ns - asked.acked_ns > STALENESS_MAX_NS:
            raise ViolationError(f"{missed} {(asked.asked_ns - asked.acked_ns) / NS_PER_S:.3f} s before")


def _question(stream: "Stream", form: str, number: int, seq: int) -> tuple[bytes, bytes, bytes]:
    """Subject, headers and body of a get."""
    subject = f"$JS.API.DIRECT.GET.{stream.name}".encode()
    of_message = stream.subject_of(number)
    if form == "last":
        return subject + b"." + of_message, b"", b""
    bodies: dict[str, dict[str, object]] = {
        "one": {"seq": seq},
        "batch": {"seq": seq, "batch": 2},
        "multi": {"multi_last": [of_message.decode()]},
        "columns": {"seq": seq, "batch": 1, "columns": {"up_to_seq": seq}},
    }
    return subject, COLUMNS if form == "columns" else b"", orjson.dumps(bodies[form])


def _has(asked: Asked) -> bool:
    """Whether an answer has the message, or, of a subject, one that came later."""
    form, seq = asked.form, asked.seq
    if form == "columns" and not asked.hdr:
        return seq in parse_columns(asked.payload).batch.column("stream_seq").to_pylist()
    found = int(get(asked.hdr, b"Nats-Sequence") or 0)
    return found >= seq if form in {"last", "multi"} else found == seq
