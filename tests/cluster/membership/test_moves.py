"""Streams move to other servers while they are written to, and go back when that is cancelled: on real nodes."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tests.cluster.membership.test_members import MESSAGES as MESSAGES_EACH
from tests.cluster.membership.test_members import STREAM, api, create, publish, wait_for_members, wait_for_messages
from tests.harness.cluster import Cluster
from tests.harness.raw import RawClient
from tests.harness.server import Server

MESSAGES: Final = 200  # before a move begins
BLOCKS: Final = 10
BLOCK_BYTES: Final = 100_000  # more than the first block of a log has
MOVE: Final = f"ACCOUNT.STREAM.MOVE.$G.{STREAM}"
CANCEL: Final = f"STREAM.CANCEL_MOVE.{STREAM}"
BOTH: Final = ["jetraft", pytest.param("reference", marks=pytest.mark.reference)]


Refused = tuple[str, str, dict[str, object] | None, int]  # who asks, what, with which body, and the code


def refused_of_consumers(what: str) -> tuple[Refused, ...]:
    return (
        ("a", f"CONSUMER.PEER.{what}.S.c", None, 10003),
        ("a", f"CONSUMER.PEER.{what}.S.c", {"peer": "nobody"}, 10040),
        ("a", f"CONSUMER.PEER.{what}.S.c", {"peer": "n1"}, 10075),
        ("a", f"CONSUMER.PEER.{what}.S.no", {"peer": "n1"}, 10014),
        ("a", f"CONSUMER.PEER.{what}.NO.no", {"peer": "n1"}, 10059),
    )


REFUSED: Final[tuple[Refused, ...]] = (
    ("a", "STREAM.CANCEL_MOVE.S", None, 10129),
    ("a", "STREAM.CANCEL_MOVE.NO", None, 10059),
    ("s", "ACCOUNT.STREAM.CANCEL_MOVE.A.S", None, 10129),
    ("s", "ACCOUNT.STREAM.CANCEL_MOVE.A.NO", None, 10059),
    ("s", "ACCOUNT.STREAM.CANCEL_MOVE.NO.S", None, 10035),
    ("s", "ACCOUNT.STREAM.MOVE.A.S", {"server": "n1"}, 10005),
    ("a", "ACCOUNT.STREAM.MOVE.A.S", None, 10005),
    ("s", "ACCOUNT.STREAM.MOVE.A.S", {"server": "nobody"}, 10044),
    ("s", "ACCOUNT.STREAM.MOVE.A.O", {"server": "ELSEWHERE"}, 10040),
    ("s", "ACCOUNT.STREAM.MOVE.A.O", {"server": "HOLDER", "cluster": "Z"}, 10044),
    ("s", "ACCOUNT.STREAM.MOVE.A.O", {"server": "HOLDER", "domain": "Z"}, 10044),
    ("s", "ACCOUNT.STREAM.MOVE.A.O", {"tags": ["none"]}, 10005),
    ("s", "ACCOUNT.STREAM.MOVE.A.O", {"server": 1}, 10025),
    ("s", "ACCOUNT.STREAM.MOVE.A.NO", {"server": "n1"}, 10059),
    ("s", "ACCOUNT.STREAM.MOVE.NO.S", {"server": "n1"}, 10035),
    ("a", "STREAM.PEER.EVACUATE.S", None, 10003),
    ("a", "STREAM.PEER.EVACUATE.S", {}, 10003),
    ("a", "STREAM.PEER.EVACUATE.S", {"peer": "nobody"}, 10040),
    ("a", "STREAM.PEER.EVACUATE.S", {"peer": "n1"}, 10075),
    ("a", "STREAM.PEER.EVACUATE.O", {"peer": "ELSEWHERE"}, 10040),
    ("a", "STREAM.PEER.EVACUATE.NO", {"peer": "n1"}, 10059),
    *refused_of_consumers("REMOVE"),
    *refused_of_consumers("EVACUATE"),
)


class Publisher:
    """Publishes numbers until it is told to end; each again, under its message id, until it is acknowledged."""

    def __init__(self, node: Server) -> None:
        self.acked: list[int] = []
        self._node = node
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        with RawClient(self._node.address) as client:
            while not self._ended.is_set():
                number = len(self.acked)
                answer = client.acknowledged("keep.x", b"%d" % number)
                assert answer["stream"] == STREAM
                self.acked.append(number)

    def wait_for(self, count: int) -> None:
        """Return when so many more are acknowledged."""
        target = len(self.acked) + count
        self._node.running.wait_until(lambda: len(self.acked) >= target, what=f"{target} messages were acknowledged")

    @contextmanager
    def running(self) -> Iterator[None]:
        self._thread.start()
        try:
            self.wait_for(MESSAGES)
            yield
            self.wait_for(1)
        finally:
            self._ended.set()
            self._thread.join()


def desired(node: Server) -> Any:
    described = api(node, f"STREAM.INFO.{STREAM}").get("cluster")
    assert isinstance(described, dict)
    return described.get("desired")


def wait_until_settled(node: Server) -> None:
    node.running.wait_until(lambda: desired(node) is None, what="the change was complete")


def freeze(cluster: Cluster, node: Server) -> None:
    """Stop a node that does not lead the meta group."""

    def leader() -> str | None:
        found = [(one.get("/jsz")[1] or {}).get("meta_cluster", {}).get("leader") for one in cluster]
        return next((name for name in found if name), None)

    if leader() == node.name:
        api(cluster[0], "META.LEADER.STEPDOWN", {})
    node.running.wait_until(lambda: leader() not in (None, node.name), what="another node led the meta group")
    node.freeze()


def assert_all_are_there(cluster: Cluster, publisher: Publisher) -> None:
    """Each acknowledged message is stored once, in its order, on each member."""
    last_seq = len(publisher.acked)
    with RawClient(cluster[0].address) as client:
        stored = client.stored(STREAM, last_seq)
    assert [int(stored[seq]) for seq in sorted(stored)] == publisher.acked
    for name in wait_for_members(cluster[0], 3):
        wait_for_messages(cluster, name, last_seq)


def test_a_stream_leaves_a_server_while_it_is_written_to_and_no_ack_is_lost(tmp_path: Path) -> None:
    with Cluster("jetraft", 4, directory=tmp_path) as cluster:
        create(cluster[0])
        leader, *_ = wait_for_members(cluster[0], 3)
        publisher = Publisher(cluster[0])
        with publisher.running():
            moved = api(cluster[0], MOVE, {"server": leader})
            assert "error" not in moved, moved
            wait_for_members(cluster[0], 3, without=[leader])
            wait_until_settled(cluster[0])
            publisher.wait_for(MESSAGES)
            follower = wait_for_members(cluster[0], 3)[-1]
            assert api(cluster[0], f"STREAM.PEER.EVACUATE.{STREAM}", {"peer": follower})["success"] is True
            wait_for_members(cluster[0], 3, without=[follower])
            wait_until_settled(cluster[0])
            before = set(wait_for_members(cluster[0], 3))
            api(cluster[0], MOVE)  # from any server
            wait_until_settled(cluster[0])
            assert set(wait_for_members(cluster[0], 3)) != before
        assert_all_are_there(cluster, publisher)


def test_a_move_that_cannot_go_on_is_seen_and_cancelled_and_no_ack_is_lost(tmp_path: Path) -> None:
    with Cluster("jetraft", 4, directory=tmp_path) as cluster:
        create(cluster[0])
        before = wait_for_members(cluster[0], 3)
        (spare,) = [node for node in cluster if node.name not in before]
        asked = next(node for node in cluster if node is not spare)
        publisher = Publisher(asked)
        with publisher.running():
            freeze(cluster, spare)
            assert "error" not in api(asked, MOVE, {"server": before[-1]})
            found = desired(asked)
            assert spare.name in {peer["name"] for peer in found["replicas"]}
            assert found["origin"] == {"replicas": 3}
            assert found["status"]["type"] == "catchup"
            publisher.wait_for(MESSAGES)
            assert api(asked, MOVE)["error"]["err_code"] == 10124  # type: ignore[index]
            cancelled = api(asked, CANCEL)
            assert cancelled["type"] == "io.nats.jetstream.api.v1.stream_cancel_move_response"
            assert "error" not in cancelled, cancelled
            wait_until_settled(asked)
            spare.thaw()
            assert set(wait_for_members(asked, 3)) == set(before)
            assert api(asked, CANCEL)["error"]["err_code"] == 10129  # type: ignore[index]
        assert_all_are_there(cluster, publisher)


def test_a_cancelled_change_of_replicas_and_placement_takes_back_what_the_config_said(tmp_path: Path) -> None:
    config = 'server_tags: ["all"]'
    with Cluster("jetraft", 3, directory=tmp_path, config=config) as cluster:
        create(cluster[0], num_replicas=1)
        (leader,) = wait_for_members(cluster[0], 1)
        asked, away, _ = sorted(cluster, key=lambda node: node.name != leader)
        freeze(cluster, away)
        fields = {"name": STREAM, "subjects": ["keep.>"], "allow_direct": True, "placement": {"tags": ["all"]}}
        assert "error" not in api(asked, f"STREAM.UPDATE.{STREAM}", {**fields, "num_replicas": 3})
        assert len(desired(asked)["replicas"]) == 3
        assert "error" not in api(asked, CANCEL)
        wait_until_settled(asked)
        kept = api(asked, f"STREAM.INFO.{STREAM}")["config"]
        assert isinstance(kept, dict)
        assert (kept["num_replicas"], kept.get("placement")) == (1, None)
        assert wait_for_members(asked, 1) == [leader]


def test_a_server_that_had_a_stream_alone_before_does_not_lead_it_alone_when_it_is_filled_again(tmp_path: Path) -> None:
    """What it is filled with begins when it was the only member; what it acknowledged then is not all that there is."""
    with Cluster("jetraft", 3, directory=tmp_path) as cluster:
        create(cluster[0], num_replicas=1)
        (first,) = wait_for_members(cluster[0], 1)
        with RawClient(cluster[0].address) as client:
            for size in (BLOCK_BYTES, 1, 1):  # its log begins behind what the checkpoint before the last one has
                for _ in range(BLOCKS):
                    client.acknowledged("keep.x", bytes(size))
                client.api(f"STREAM.PURGE.{STREAM}", {})
        assert "error" not in api(cluster[0], MOVE, {"server": first})
        wait_for_members(cluster[0], 1, without=[first])
        wait_until_settled(cluster[0])
        publish(cluster[0], 3 * BLOCKS + 1)
        fields = {"name": STREAM, "subjects": ["keep.>"], "allow_direct": True, "num_replicas": 3}
        assert "error" not in api(cluster[0], f"STREAM.UPDATE.{STREAM}", fields)
        wait_for_members(cluster[0], 3)
        wait_until_settled(cluster[0])
        state = api(cluster[0], f"STREAM.INFO.{STREAM}")["state"]
        assert isinstance(state, dict)
        assert (state["messages"], state["last_seq"]) == (MESSAGES_EACH, 3 * BLOCKS + MESSAGES_EACH)


@pytest.mark.parametrize("kind", BOTH)
def test_moves_that_cannot_be_are_refused_alike(kind: Any, tmp_path: Path) -> None:
    config = """
        system_account: SYS
        accounts { SYS { users: [{user: s, password: x}] }, A { jetstream: enabled, users: [{user: a, password: x}] }
                   B { jetstream: enabled, users: [{user: b, password: x}] } }
    """
    logins: dict[str, dict[str, Any]] = {user: {"user": user, "pass": "x"} for user in "sab"}
    with (
        Cluster(kind, 3, directory=tmp_path, config=config) as cluster,
        RawClient(cluster[0].address, **logins["a"]) as mine,
        RawClient(cluster[0].address, **logins["s"]) as system,
        RawClient(cluster[0].address, **logins["b"]) as other,
    ):
        for name, replicas in (("S", 3), ("O", 1)):
            mine.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": [name], "num_replicas": replicas})
        mine.api("CONSUMER.CREATE.S.c", {"stream_name": "S", "config": {"durable_name": "c", "ack_policy": "explicit"}})
        holder = mine.api("STREAM.INFO.O")["cluster"]["leader"]
        elsewhere = next(node.name for node in cluster if node.name != holder)
        clients = {"a": mine, "s": system}
        holders = {"HOLDER": holder, "ELSEWHERE": elsewhere}
        found = []
        for user, subject, body, _ in REFUSED:
            named = {key: holders.get(str(value), value) for key, value in body.items()} if body else body
            found.append((user, subject, body, clients[user].api(subject, named)["error"]["err_code"]))
        assert found == list(REFUSED)
        other.subscribe("answer")
        other.publish("$JS.API.ACCOUNT.STREAM.MOVE.A.O", b"{}", reply="answer")
        assert other.rest(1.0) == []
        assert mine.api("STREAM.INFO.O")["cluster"]["leader"] == holder
