"""Clients of whole nodes: publishers that try again until they are told, and operators that change streams.

What they were told is kept: who was acknowledged where, which streams exist, which do not any more.
"""

from typing import TYPE_CHECKING, Any

import attrs
import orjson
import trio

from jetraft.cluster.state.assignment import StreamKey
from tests.simulator.world import ViolationError

if TYPE_CHECKING:
    from tests.simulator.nodes.cluster import SimCluster
    from tests.simulator.nodes.life import Life

TRY_AGAIN_S = 0.7
LOOK_S = 0.2
API_S = 2.0
DELETE_S = 6.0  # it may wait for a lease to end
LOST_ANSWERS = 0.03  # of acknowledgements: the client's connection ended, and it tries again
API_TRIES = 12


@attrs.define(eq=False, kw_only=True)
class Stream:
    """A stream as its users know it."""

    name: str
    replicas: int
    storage: str = "file"
    max_msgs: int = -1
    load_per_s: float = 6.0
    is_read: bool = False  # by direct gets
    template: str = ""  # that makes it; empty: it is made by a request
    prefix: str = ""  # of its subjects; empty: its name
    exists: bool = False  # somebody was told so
    may_be_gone: bool = False  # a deletion was asked for
    is_gone: bool = False  # somebody was told so
    may_lose: bool = False  # what was acknowledged may be lost: its only disk was damaged, or memory without a majority
    published: int = 0
    gone_ns: int | None = None  # when that was
    acknowledged: dict[int, int] = attrs.field(factory=dict)  # by number of the message: its sequence
    acked_ns: dict[int, int] = attrs.field(factory=dict)  # by number of the message: when that was known
    numbers: dict[int, int] = attrs.field(factory=dict)  # the same the other way round
    unfinished: set[int] = attrs.field(factory=set)

    @property
    def config(self) -> dict[str, Any]:
        """As a client gives it."""
        return {
            "name": self.name,
            "subjects": [f"{self.prefix or self.name}.>"],
            "num_replicas": self.replicas,
            "storage": self.storage,
            "max_msgs": self.max_msgs,
            "allow_direct": self.is_read,
        }

    def subject_of(self, number: int) -> bytes:
        """What a message is published to: of a template's stream the one subject that it has."""
        if self.template:
            return self.name.replace("_", ".").encode()
        return f"{self.prefix or self.name}.{number % 3}".encode()


def body_of(number: int) -> bytes:
    """What message `number` of a stream says. Some are long, so that blocks come to an end."""
    return b"message %d " % number + b"." * (0, 30, 300, 2500, 6000)[number % 5]


class Clients:
    """All of them."""

    def __init__(self, cluster: "SimCluster") -> None:
        self._cluster = cluster
        self._world = cluster.world
        self.streams: dict[str, Stream] = {}
        self.is_publishing = True
        self._inboxes: dict[bytes, trio.Event] = {}
        self._answers: dict[bytes, dict[str, Any]] = {}
        self._sent = 0

    def receive(self, _life: "Life", to: bytes, _hdr: bytes, payload: bytes) -> None:
        """Something arrives in an inbox."""
        event = self._inboxes.get(to)
        if event is not None and to not in self._answers and not self._world.chance(LOST_ANSWERS):
            self._answers[to] = orjson.loads(payload)
            event.set()

    # Publishing.

    async def publish_for_ever(self, stream: Stream, nursery: trio.Nursery) -> None:
        """Publish while the run wants it; each message is a task that ends with its acknowledgement."""
        world = self._world
        while self.is_publishing and not stream.may_be_gone:
            for _ in range(world.rng.choice((1, 1, 2, 4))):
                stream.published += 1
                nursery.start_soon(self.publish, stream, stream.published)
            await world.sleep(int(world.rng.expovariate(stream.load_per_s) * 1e9))

    async def publish(self, stream: Stream, number: int) -> None:
        """One message, again and again until somebody acknowledges it or the stream may be gone."""
        world = self._world
        subject = stream.subject_of(number)
        hdr = b"NATS/1.0\r\nNats-Msg-Id: %d\r\n\r\n" % number
        stream.unfinished.add(number)
        while not stream.may_be_gone:
            taking = [life for life in self._cluster.lives if life.is_alive and life.plane.captures(subject)]
            if not taking:
                await trio.sleep(LOOK_S)
                continue
            answer = await self._request(world.rng.choice(taking), subject, hdr, body_of(number))
            if answer is None:
                continue
            if "error" not in answer:
                self._acknowledged(stream, number, int(answer["seq"]))
                break
            world.counts["refused"] += 1
            await trio.sleep(LOOK_S)
        stream.unfinished.discard(number)

    async def _request(self, life: "Life", subject: bytes, hdr: bytes, payload: bytes) -> dict[str, Any] | None:
        self._sent += 1
        reply = b"_INBOX.p.%d" % self._sent
        event = self._inboxes[reply] = trio.Event()
        life.plane.publish(subject, reply=reply, hdr=hdr, payload=payload)
        with trio.move_on_after(TRY_AGAIN_S):
            await event.wait()
        del self._inboxes[reply]
        return self._answers.pop(reply, None)

    def _acknowledged(self, stream: Stream, number: int, seq: int) -> None:
        self._world.counts["ok"] += 1
        self._world.mark(f"ack {stream.name} {number} {seq}")
        known = stream.acknowledged.setdefault(number, seq)
        stream.acked_ns.setdefault(number, self._world.now_ns)
        other = stream.numbers.setdefault(seq, number)
        if known != seq and not stream.may_lose:
            raise ViolationError(f"{stream.name}: message {number} was acknowledged at {known} and at {seq}")
        if other != number and not stream.may_lose:
            raise ViolationError(f"{stream.name}: messages {other} and {number} were both acknowledged at {seq}")

    # Operating.

    async def api(
        self, subject: str, body: Any = b"", *, tries: int = API_TRIES, timeout_s: float = API_S
    ) -> dict[str, Any] | None:
        """Ask any node until one answers; None when none does. An answer that says "not now" is none."""
        for _ in range(tries):
            alive = [life for life in self._cluster.lives if life.is_serving and life.is_alive]
            if not alive:
                await trio.sleep(0.2)
                continue
            answer = await self._world.rng.choice(alive).ask(subject, body, timeout_s=timeout_s)
            if answer is not None and answer.get("error", {}).get("code") not in {500, 503}:
                return answer
            await trio.sleep(0.2)
        return None

    async def create(self, stream: Stream) -> bool:
        """Have a stream; says whether somebody was told that it is there."""
        self.streams[stream.name] = stream
        answer = await self._create(stream)
        stream.exists = answer is not None and "error" not in answer
        self._world.note(f"create {stream.name}: {_short(answer)}")
        return stream.exists

    async def _create(self, stream: Stream) -> dict[str, Any] | None:
        if not stream.template:
            return await self.api(f"STREAM.CREATE.{stream.name}", stream.config)
        config = {key: value for key, value in stream.config.items() if key != "name"}
        config["subjects"] = [f"{stream.template}.*"]
        body = {"name": stream.template, "config": config, "max_streams": 1}
        answer = await self.api(f"STREAM.TEMPLATE.CREATE.{stream.template}", body)
        error = {} if answer is None else answer.get("error", {})
        return {} if "already exists" in error.get("description", "") else answer  # it was asked for twice

    async def delete(self, stream: Stream) -> None:
        """Have it no more."""
        stream.may_be_gone = True
        answer = await self.api(f"STREAM.DELETE.{stream.name}", timeout_s=DELETE_S)
        stream.is_gone = answer is not None and ("error" not in answer or answer["error"].get("code") == 404)
        stream.gone_ns = self._world.now_ns if stream.is_gone else None
        self._world.note(f"delete {stream.name}: {_short(answer)}")

    def holder_of(self, stream: Stream) -> str | None:
        """The machine with the only replica of a stream."""
        for life in self._cluster.alive():
            assert life.node is not None
            replica = life.node.directory.get(StreamKey("$G", stream.name))
            if replica is not None and replica.is_leader:
                return life.name
        return None

    async def publish_to_deleted(self, stream: Stream) -> None:
        """Nothing is acknowledged by a stream whose deletion was confirmed."""
        subject = stream.subject_of(0)
        for life in self._cluster.alive():
            if stream.is_gone and life.plane.captures(subject):
                answer = await self._request(life, subject, b"", b"late")
                if answer is not None and "error" not in answer:
                    raise ViolationError(f"{stream.name}: {life.name} has acknowledged after the deletion: {answer}")

    async def rename(self, stream: Stream, prefix: str) -> bool:
        """Give a stream other subjects; says whether that was confirmed."""
        body = {**stream.config, "subjects": [f"{prefix}.>"]}
        answer = await self.api(f"STREAM.UPDATE.{stream.name}", body, timeout_s=DELETE_S)
        self._world.note(f"rename the subjects of {stream.name} to {prefix}: {_short(answer)}")
        stream.prefix = prefix
        return answer is not None and "error" not in answer

    async def publish_to_former(self, former: Stream, now: Stream) -> None:
        """Nothing is acknowledged by the stream that had the subjects before, on any machine."""
        subject = now.subject_of(0)
        for life in self._cluster.alive():
            if life.plane.captures(subject):
                answer = await self._request(life, subject, b"", b"to the present stream")
                if answer is not None and answer.get("stream") == former.name:
                    raise ViolationError(f"{life.name}: {former.name} took what {now.name} has: {answer}")

    async def remove_server(self, name: str) -> bool:
        """Take a machine out of the cluster; says whether that was confirmed."""
        others = [life for life in self._cluster.alive() if life.is_serving and life.name != name]
        if not others:
            return False
        answer = await self._world.rng.choice(others).ask("SERVER.REMOVE", {"peer": name}, timeout_s=8.0)
        self._world.note(f"remove {name}: {_short(answer)}")
        return answer is not None and "error" not in answer

    async def scale(self, stream: Stream, replicas: int) -> None:
        """Change the number of replicas."""
        answer = await self.api(f"STREAM.UPDATE.{stream.name}", {**stream.config, "num_replicas": replicas}, tries=3)
        if answer is not None and "error" not in answer:
            stream.replicas = replicas
        self._world.note(f"scale {stream.name} to {replicas}: {_short(answer)}")

    async def remove_peer(self, stream: Stream, name: str) -> None:
        """Have a replica somewhere else."""
        answer = await self.api(f"STREAM.PEER.REMOVE.{stream.name}", {"peer": name}, tries=2)
        self._world.note(f"remove {name} of {stream.name}: {_short(answer)}")

    async def move(self, stream: Stream, name: str) -> None:
        """Have a stream leave a machine."""
        answer = await self.api(f"ACCOUNT.STREAM.MOVE.$G.{stream.name}", {"server": name}, tries=2)
        self._world.note(f"move {stream.name} away from {name}: {_short(answer)}")

    async def cancel_move(self, stream: Stream) -> None:
        """Have a change of replicas taken back."""
        answer = await self.api(f"STREAM.CANCEL_MOVE.{stream.name}", tries=2)
        self._world.note(f"cancel the change of {stream.name}: {_short(answer)}")

    async def step_down(self, stream: Stream) -> None:
        """Have another leader."""
        await self.api(f"STREAM.LEADER.STEPDOWN.{stream.name}", tries=1)


def _short(answer: dict[str, Any] | None) -> str:
    if answer is None:
        return "no answer"
    return str(answer["error"]) if "error" in answer else "done"
