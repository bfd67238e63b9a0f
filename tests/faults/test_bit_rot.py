"""Damaged bytes on the disk of one node of three, or of the only one: nothing is lost where a copy exists."""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from random import Random

import pytest

from jetraft.store.frames.format import BLOCK_HEAD_BYTES
from jetraft.store.inspection.inspect import GroupView, inspect
from tests.harness.cluster import Cluster
from tests.harness.patience import PATIENCE_S
from tests.harness.raw import RawClient
from tests.harness.server import Server

pytestmark = pytest.mark.campaign

STREAM = "ROT"
MESSAGES = 200
PAYLOAD_BYTES = 200


def payload(number: int) -> bytes:
    return (b"%d." % number).ljust(PAYLOAD_BYTES, b"x")


def fill(node: Server, *, replicas: int) -> None:
    """A stream of acknowledged messages, each in a frame of its own."""
    config = {"name": STREAM, "subjects": ["rot.>"], "num_replicas": replicas, "allow_direct": True}
    with RawClient(node.address) as client:
        assert "error" not in client.api(f"STREAM.CREATE.{STREAM}", config)
        for number in range(1, MESSAGES + 1):
            assert client.acknowledged(f"rot.{number % 7}", payload(number))["seq"] == number


def group_of(node: Server) -> GroupView:
    """The stream's group on the node's disk."""
    return next(group for group in inspect(node.store_dir).groups if group.group_id != "meta")


def block_with(group: GroupView, content: bytes) -> Path:
    """The file of the block that holds these bytes."""
    paths = [Path(group.path) / group.generation / block.name for block in group.blocks]
    return next(path for path in paths if content in path.read_bytes())


def flip(path: Path, offset: int, mask: int) -> None:
    with path.open("r+b") as file:  # this byte only: a server may be running
        file.seek(offset)
        changed = file.read(1)[0] ^ mask
        file.seek(offset)
        file.write(bytes([changed]))


def leader_name(node: Server) -> str:
    with RawClient(node.address) as client:
        cluster = client.api(f"STREAM.INFO.{STREAM}")["cluster"]
    assert isinstance(cluster, dict)
    return str(cluster["leader"])


def messages_of(node: Server) -> int:
    """How many messages the node's own replica has."""
    _, body = node.get("/jsz?streams=true")
    accounts = body.get("account_details") or [] if isinstance(body, dict) else []
    found = [detail["state"]["messages"] for account in accounts for detail in account.get("stream_detail", ())]
    return int(found[0]) if found else 0


def held_by(node: Server) -> dict[int, bytes]:
    """Every message that this node gives out while it is the only one that can be asked."""
    with RawClient(node.address) as client:
        return client.stored(STREAM, MESSAGES)


def is_gone(content: bytes, path: Path) -> bool:
    return content not in path.read_bytes()


def test_the_only_replica_says_which_messages_are_damaged_and_serves_the_rest(tmp_path: Path) -> None:
    with Server("jetraft", directory=tmp_path) as node:
        fill(node, replicas=1)
        node.stop()
        group = group_of(node)
        for hit in (50, MESSAGES):
            path = block_with(group, payload(hit))
            flip(path, path.read_bytes().index(payload(hit)) + 20, 1)

        node.start()

        held = held_by(node)
        assert held == {number: payload(number) for number in range(1, MESSAGES) if number != 50}
        with RawClient(node.address) as client:
            damaged = client.api(f"STREAM.MSG.GET.{STREAM}", {"seq": 50})["error"]
            assert (damaged["code"], damaged["err_code"]) == (500, 10051)
            beyond = 10**12  # nobody knows how many messages the lost end of the log held, but not so many
            assert client.api(f"STREAM.MSG.GET.{STREAM}", {"seq": beyond})["error"]["err_code"] == 10037
            (direct,) = client.request(f"$JS.API.DIRECT.GET.{STREAM}", b'{"seq": 50}')
            assert direct.status.startswith("500")
            state = client.api(f"STREAM.INFO.{STREAM}")["state"]
            assert state["messages"] == MESSAGES - 2
            assert {50, MESSAGES} <= set(state["lost"]["msgs"])
            assert client.acknowledged("rot.1", b"more")["seq"] > MESSAGES
        status, health = node.get("/healthz")
        assert status == 503
        assert "damaged messages: 50-50" in health["error"]


def test_a_flipped_bit_in_a_batch_costs_the_only_replica_one_message(tmp_path: Path) -> None:
    """A batch is one frame with one checksum; where nobody else has the frame, its messages have some of their own."""
    with Server("jetraft", directory=tmp_path) as node:
        with RawClient(node.address) as client:
            config = {"name": STREAM, "subjects": ["rot.>"], "num_replicas": 1, "allow_direct": True}
            assert "error" not in client.api(f"STREAM.CREATE.{STREAM}", config)
            client.send(b"".join(b"PUB rot.1 200\r\n%s\r\n" % payload(number) for number in range(1, MESSAGES + 1)))
            assert client.acknowledged("rot.1", b"last")["seq"] == MESSAGES + 1
        node.stop()
        group = group_of(node)
        frames = sum(block.frames.get("messages", 0) for block in group.blocks)
        assert 0 < frames < MESSAGES / 10, "the messages share frames"
        path = block_with(group, payload(MESSAGES // 2))
        flip(path, path.read_bytes().index(payload(MESSAGES // 2)) + 20, 1)

        node.start()

        node.running.wait_for_line("only the damaged messages are lost")
        held = held_by(node)
        assert held == {number: payload(number) for number in range(1, MESSAGES + 1) if number != MESSAGES // 2}
        with RawClient(node.address) as client:
            state = client.api(f"STREAM.INFO.{STREAM}")["state"]
            assert (state["messages"], state["last_seq"]) == (MESSAGES, MESSAGES + 1)
            assert state["lost"]["msgs"] == [MESSAGES // 2]
            assert client.acknowledged("rot.1", b"more")["seq"] == MESSAGES + 2


def test_the_only_replica_lists_the_lost_value_of_a_key_when_the_one_before_it_comes_back(tmp_path: Path) -> None:
    """Also after a checkpoint and a restart; until whoever has seen it deletes it."""
    config = {"name": "KV_K", "subjects": ["$KV.K.>"], "max_msgs_per_subject": 1, "allow_direct": True}
    with Server("jetraft", directory=tmp_path) as node:
        with RawClient(node.address) as client:
            assert "error" not in client.api("STREAM.CREATE.KV_K", config)
            for number in range(1, 9):
                assert client.acknowledged(f"$KV.K.{number % 3}", payload(number))["seq"] == number
        node.stop()
        group = group_of(node)
        path = Path(group.path) / group.generation / group.blocks[0].name
        flip(path, path.read_bytes().index(payload(7)) + 20, 1)
        node.start()

        for _ in range(2):
            with RawClient(node.address) as client:
                (value,) = client.request("$JS.API.DIRECT.GET.KV_K", b'{"last_by_subj": "$KV.K.1"}')
                assert value.payload == payload(4), "what it was before"
                assert client.api("STREAM.INFO.KV_K")["state"]["lost"]["msgs"] == [7]
                assert client.api("STREAM.MSG.GET.KV_K", {"seq": 7})["error"]["err_code"] == 10051
                assert "damaged messages: 7-7" in node.get("/healthz")[1]["error"]
                expected = [("Nats-Expected-Last-Subject-Sequence", "7")]
                (answer,) = client.request("$KV.K.1", b"mine", headers=expected)
                assert json.loads(answer.payload)["error"]["err_code"] == 10071, "who knew the lost value is told"
                assert client.api("STREAM.PURGE.KV_K", {"filter": "$KV.K.nothing"})["success"], "takes a checkpoint"
            node.restart()
        with RawClient(node.address) as client:
            assert client.acknowledged("$KV.K.1", payload(9))["seq"] == 9
            assert client.api("STREAM.INFO.KV_K")["state"]["lost"]["msgs"] == [7]
            assert client.api("STREAM.MSG.DELETE.KV_K", {"seq": 7})["success"] is True
            assert "lost" not in client.api("STREAM.INFO.KV_K")["state"]
            assert client.api("STREAM.MSG.DELETE.KV_K", {"seq": 7})["error"]["err_code"] == 10043
        assert node.get("/healthz") == (200, {"status": "ok"})


def test_a_deleted_message_is_on_no_disk_any_more(tmp_path: Path) -> None:
    with Cluster("jetraft", 3, directory=tmp_path) as running:
        fill(running[0], replicas=3)
        with RawClient(running[0].address) as client:
            assert client.api(f"STREAM.MSG.DELETE.{STREAM}", {"seq": 27})["success"] is True
            assert client.api(f"STREAM.MSG.DELETE.{STREAM}", {"seq": 28, "no_erase": True})["success"] is True
        for node in running:
            group = group_of(node)
            path = Path(group.path) / group.generation / group.blocks[0].name
            node.running.wait_until(partial(is_gone, payload(27), path), what="the bytes were gone")
            assert payload(28) in path.read_bytes()
            assert inspect(node.store_dir).all_damage == ()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster("jetraft", 3, directory=tmp_path) as running:
        yield running


@pytest.mark.parametrize("seed", [1, 2])
def test_a_follower_with_flipped_bits_repairs_itself_and_holds_every_message(cluster: Cluster, seed: int) -> None:
    fill(cluster[0], replicas=3)
    follower = next(node for node in cluster if node.name != leader_name(node))
    follower.stop()
    random = Random(seed)
    group = group_of(follower)
    block = group.blocks[0]
    path = Path(group.path) / group.generation / block.name
    for _ in range(2):
        flip(path, random.randrange(BLOCK_HEAD_BYTES, block.used_bytes), 1 << random.randrange(8))
    damaged = inspect(follower.store_dir).all_damage
    assert damaged

    follower.start()

    follower.running.wait_for_line("damaged entries are repaired")
    cluster.wait_healthy()
    assert inspect(follower.store_dir).all_damage == ()
    for other in cluster:
        if other is not follower:
            other.kill()
    assert held_by(follower) == {number: payload(number) for number in range(1, MESSAGES + 1)}


def test_damage_that_a_get_meets_on_a_running_replica_is_repaired_at_once(cluster: Cluster) -> None:
    fill(cluster[0], replicas=3)
    follower = next(node for node in cluster if node.name != leader_name(node))
    follower.restart()  # what it has just written is not in its memory any more
    follower.running.wait_until(lambda: messages_of(follower) == MESSAGES, what="its replica was complete")
    follower.wait_healthy()  # until then another replica answers
    group = group_of(follower)
    path = Path(group.path) / group.generation / group.blocks[0].name
    flip(path, path.read_bytes().index(payload(50)) + 20, 1)

    with RawClient(follower.address) as client:
        (answer,) = client.request(f"$JS.API.DIRECT.GET.{STREAM}", b'{"seq": 50}')

    assert answer.status.startswith("500"), "an error, and not another replica's message"
    follower.running.wait_for_line("takes part again")
    cluster.wait_healthy()
    assert inspect(follower.store_dir).all_damage == ()
    with RawClient(follower.address) as client:
        (answer,) = client.request(f"$JS.API.DIRECT.GET.{STREAM}", b'{"seq": 50}')
        assert answer.payload == payload(50)


def test_a_member_whose_meta_log_is_damaged_gets_its_entries_from_the_others_while_it_starts(cluster: Cluster) -> None:
    fill(cluster[0], replicas=3)
    member = cluster[1]
    member.stop()
    meta = next(group for group in inspect(member.store_dir).groups if group.group_id == "meta")
    path = Path(meta.path) / meta.generation / meta.blocks[0].name
    flip(path, path.read_bytes().index(STREAM.encode()), 1)
    assert inspect(member.store_dir).all_damage

    member.start(wait=False)

    member.running.wait_for_line("damaged entries are repaired", timeout_s=PATIENCE_S)
    cluster.wait_healthy()
    assert inspect(member.store_dir).all_damage == ()


def test_damage_that_a_search_by_time_meets_on_the_only_replica_ends_no_process(tmp_path: Path) -> None:
    with Server("jetraft", directory=tmp_path) as node:
        fill(node, replicas=1)
        node.restart()
        with RawClient(node.address) as client:
            half = client.api(f"STREAM.MSG.GET.{STREAM}", {"seq": MESSAGES // 2})["message"]["time"]
        node.restart()
        group = group_of(node)
        path = block_with(group, payload(MESSAGES // 2))
        flip(path, path.read_bytes().index(payload(MESSAGES // 2)) + 20, 1)

        with RawClient(node.address) as client:
            by_time = {"deliver_policy": "by_start_time", "opt_start_time": half, "ack_policy": "explicit"}
            config = {"stream_name": STREAM, "config": {"durable_name": "D", **by_time}}
            client.request(f"$JS.API.CONSUMER.DURABLE.CREATE.{STREAM}.D", json.dumps(config).encode())
            node.running.wait_for_line("takes part again")
            node.running.wait_until(
                lambda: client.api(f"STREAM.INFO.{STREAM}").get("state", {}).get("messages") == MESSAGES - 1,
                what="the stream went on without the damaged message",
            )
            state = client.api(f"STREAM.INFO.{STREAM}")["state"]
            assert state["lost"]["msgs"] == [MESSAGES // 2]
            assert client.api(f"STREAM.MSG.GET.{STREAM}", {"seq": 2})["message"]["seq"] == 2
            assert client.acknowledged("rot.1", b"more")["seq"] == MESSAGES + 1
