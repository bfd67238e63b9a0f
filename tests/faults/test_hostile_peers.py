"""Strangers on the cluster port of three real servers: those that know nothing, and those that know the secret and talk
nonsense. No server ends, no leader changes, no message is touched, and the logs stay short.
"""

import base64
import contextlib
import json
import os
import random
import socket
import struct
import time
from pathlib import Path

import msgpack

from jetraft.raft.mesh.errors import RemoteProtocolError
from jetraft.raft.mesh.framing import (
    CHANNEL_BULK,
    CHANNEL_CONTROL,
    CHANNEL_RAFT,
    CHANNEL_ROUTE,
    CHANNEL_RPC,
    FRAME_BYTES_MAX,
    FrameDecoder,
    frame_head,
)
from jetraft.raft.mesh.handshake import HELLO_BYTES
from jetraft.raft.wire import encode
from tests.harness.cluster import CLUSTER_NAME, Cluster
from tests.harness.patience import PATIENCE_S
from tests.harness.raw import RawClient
from tests.harness.server import Server
from tests.raft.stranger import Stranger
from tests.raft.test_wire import MESSAGES

SECRET = b"r:s"
CONFIG = "cluster { authorization { user: r, password: s } }\n"
METHODS = ("js.api", "raft.snapshot", "raft.join", "raft.repair", "js.usage", "meta.caught-up", "meta.view", "nothing")
PUBLISHED = 50
SEED = int(os.environ.get("HOSTILE_SEED", "29"))
ATTACKS = ("stranger", "stranger again", "stranger still")  # on a busy machine leaders change by themselves as well
SILENT_STRANGERS = 40
TALKING_STRANGERS = 40
GROWTH_BYTES_MAX = 200 << 20  # two frames of the largest size, announced and never sent, and what the allocator keeps
LINES_PER_10_S = 20  # raft/mesh/log_limiter.py
VALUES: tuple[object, ...] = (
    None,
    True,
    0,
    -1,
    2**64 - 1,
    1.5,
    "",
    "meta",
    "S-R3F-xxxxxxxx",
    b"",
    b"\xff" * 40,
    [],
    [[]] * 9,
    {},
    {"a": 1},
)


def noise(dice: random.Random) -> bytes:
    return dice.randbytes(dice.choice((0, 1, 7, 30, 300, 5_000)))


def values(dice: random.Random) -> bytes:
    """msgpack that parses and means nothing."""
    return bytes(msgpack.packb([dice.choice(VALUES) for _ in range(dice.randrange(9))]))


def call(dice: random.Random) -> bytes:
    method = dice.choice(METHODS).encode()
    body = dice.choice((noise, values))(dice)
    return struct.pack("<BQH", 1, dice.getrandbits(64), len(method)) + method + body


def raft(dice: random.Random) -> bytes:
    """A message of a group that is nowhere, often damaged; sound ones of a real group would be lies, not nonsense."""
    name = b"S-R3F-%08d" % dice.randrange(10**8)
    payload = bytearray(b"".join(encode(name, dice.getrandbits(64), dice.choice(MESSAGES))))
    if dice.random() < 0.5:
        payload[dice.randrange(len(payload))] ^= 1 << dice.randrange(8)
    return bytes(payload[: dice.choice((len(payload), dice.randrange(len(payload))))])


def frame(dice: random.Random) -> bytes:
    """A frame as a friend would send it, or nearly."""
    channel = dice.choice((CHANNEL_CONTROL, CHANNEL_RAFT, CHANNEL_RPC, CHANNEL_ROUTE, CHANNEL_BULK))
    payload = dice.choice((noise, values, call, raft))(dice)
    whole = frame_head(channel, payload) + payload
    return dice.choice((whole, whole, whole, whole[:-1], dice.randbytes(9) + whole))


def answer_nonsense(stranger: Stranger, dice: random.Random, reader: FrameDecoder) -> None:
    """Answer what the server asks, if it asks, with garbage under the right number."""
    asked: list[bytes] = []
    stranger.sock.settimeout(0.01)
    with contextlib.suppress(TimeoutError, RemoteProtocolError):
        count = stranger.sock.recv_into(reader.space())
        reader.received(
            count, lambda channel, payload: asked.append(bytes(payload)) if channel == CHANNEL_RPC else None
        )
    stranger.sock.settimeout(PATIENCE_S)
    for request in asked:
        if request[:1] == b"\1":
            stranger.send(CHANNEL_RPC, b"\2" + request[1:9] + b"\0" + dice.choice((noise, values))(dice))


def talk(port: int, dice: random.Random, name: str) -> None:
    """Join with the secret, and talk nonsense until hung up on or tired."""
    with Stranger(port, name, cluster=CLUSTER_NAME, secret=SECRET) as stranger, contextlib.suppress(OSError):
        if not stranger.join():
            return
        reader = FrameDecoder()
        if dice.random() < 0.9:
            stranger.introduce()
        for _ in range(dice.randrange(1, 12)):
            if dice.random() < 0.7:
                stranger.send(CHANNEL_RPC, call(dice))
            else:
                stranger.sock.sendall(frame(dice))
            answer_nonsense(stranger, dice, reader)


def knock(port: int, dice: random.Random) -> None:
    """Know nothing, and try."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as sock, contextlib.suppress(OSError):
        sock.sendall(dice.choice((b"GET / HTTP/1.1\r\n\r\n", noise(dice), dice.randbytes(HELLO_BYTES + 33))))
        if dice.random() < 0.5:
            sock.shutdown(socket.SHUT_WR)
            sock.recv(1)


def view(node: Server) -> tuple[object, object, object] | None:
    """Who leads, and what the replica here holds; None while there is no leader or no answer."""
    _, body = node.get("/jsz?streams=true")
    try:
        (detail,) = body["account_details"][0]["stream_detail"]
        state = {key: detail["state"][key] for key in ("messages", "bytes", "first_seq", "last_seq")}
        leaders = body["meta_cluster"]["leader"], detail["cluster"]["leader"]
    except (LookupError, TypeError, ValueError):
        return None
    return (*leaders, state) if all(leaders) else None


def leaders_of(cluster: Cluster) -> tuple[object, object]:
    """Wait until all nodes say the same; who leads the metadata and the stream then."""
    views: list[tuple[object, object, object] | None] = []

    def equal() -> bool:
        views[:] = [view(node) for node in cluster]
        return len({json.dumps(one) for one in views}) == 1 and views[0] is not None

    cluster[0].running.wait_until(equal, what="the replicas were equal")
    assert views[0] is not None
    return views[0][:2]


def assert_log_is_short(node: Server, elapsed_s: float) -> None:
    """Strangers were there, and were complained of now and then; nothing failed that nobody had thought of."""
    log = (node.directory / "server.log").read_text(encoding="utf-8").splitlines()
    assert [line for line in log if "link to stranger" in line]
    assert [line for line in log if "protocol error" in line]
    warnings = [line for line in log if "[WRN]" in line or "[ERR]" in line]
    assert len(warnings) <= LINES_PER_10_S * (2 + elapsed_s / 10), "\n".join(warnings)
    assert not [line for line in log if "Traceback" in line or "[ERR]" in line]


def attack(ports: list[int], dice: random.Random, name: str) -> None:
    """All strangers, one after the other, at every server in turn."""
    for number in range(SILENT_STRANGERS):
        knock(ports[number % len(ports)], dice)
    for number in range(TALKING_STRANGERS):
        talk(ports[number % len(ports)], dice, f"{name} {number}")


def test_strangers_and_nonsense_change_nothing_on_real_servers(tmp_path: Path) -> None:
    with Cluster("jetraft", 3, directory=tmp_path, config=CONFIG) as cluster, RawClient(cluster[0].address) as client:
        assert "error" not in client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s"], "num_replicas": 3})
        for number in range(PUBLISHED):
            assert client.acknowledged("s", b"%d" % number)["seq"] == number + 1
        rss_bytes = [node.rss_bytes() for node in cluster]
        began_s = time.monotonic()
        moved = True
        for name in ATTACKS:
            leaders = leaders_of(cluster)
            attack([node.cluster_port or 0 for node in cluster], random.Random(SEED), name)
            moved = leaders_of(cluster) != leaders
            if not moved:
                break
        assert not moved, "leaders changed in each attack: because of the strangers, not by chance"
        with Stranger(cluster[0].cluster_port or 0, "long", cluster=CLUSTER_NAME, secret=SECRET) as stranger:
            stranger.join()
            stranger.introduce()
            stranger.sock.sendall(struct.pack("<IBI", FRAME_BYTES_MAX, CHANNEL_RAFT, 0) + bytes(100_000))
            assert client.acknowledged("s", b"more")["seq"] == PUBLISHED + 1
        elapsed_s = time.monotonic() - began_s
        for node, was_bytes in zip(cluster, rss_bytes, strict=True):
            node.wait_healthy()
            assert node.rss_bytes() - was_bytes < GROWTH_BYTES_MAX
            assert_log_is_short(node, elapsed_s)
        leaders_of(cluster)
        for number in range(PUBLISHED):
            found = client.api("STREAM.MSG.GET.S", {"seq": number + 1})["message"]
            assert found["data"] == base64.b64encode(b"%d" % number).decode()
