"""Limits of JetStream by tier, in tokens that change while the server runs: both servers, one node and three."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.api.auth.test_claims_service import ADMIN, KINDS, OPERATOR, config, connected, update
from tests.harness.cluster import Cluster
from tests.harness.patience import PATIENCE_S
from tests.harness.raw import RawClient
from tests.harness.server import Server

MB: Final = 1 << 20
ACCOUNT: Final = OPERATOR.account("A")
NO_TIER: Final = 10120
LOOK_S: Final = 0.05
NOT_KNOWN_YET: Final = (  # a node of the reference, which hears of it later than the one that was told
    10005,  # no node has room: the leader does not know of a deletion
    10039,  # the leader has no JetStream for the account
    10049,  # nor has the node that is to store it
)


def limits(**changes: Any) -> dict[str, Any]:
    return {"mem_storage": MB, "disk_storage": 4 * MB, "streams": 2, "consumer": 1, **changes}


def allow(admin: RawClient, **tiers: dict[str, Any]) -> None:
    assert update(admin, ACCOUNT, limits={"tiered_limits": tiers}) == (200, "jwt updated")


def stream(client: RawClient, name: str, operation: str = "CREATE", **more: Any) -> int:
    answer = client.api(f"STREAM.{operation}.{name}", {"name": name, "subjects": [f"{name}.>"], **more})
    return code(answer)


def consumer(client: RawClient, of: str, name: str, **more: Any) -> int:
    body = {"stream_name": of, "config": {"name": name, "durable_name": name, "ack_policy": "explicit", **more}}
    return code(client.api(f"CONSUMER.CREATE.{of}.{name}", body))


def code(answer: dict[str, Any]) -> int:
    found: int = answer.get("error", {}).get("err_code", 0)
    return found


def used(client: RawClient) -> dict[str, dict[str, int]]:
    """What each tier has, without its limits and without what is zero."""
    tiers = client.api("INFO")["tiers"]
    return {
        name: {key: figure for key, figure in sorted(tier.items()) if key != "limits" and figure}
        for name, tier in tiers.items()
    }


def soon(client: RawClient, wanted: dict[str, dict[str, int]]) -> None:
    """Wait until the tiers are as wanted: the nodes of the reference tell each other now and then."""
    deadline = time.monotonic() + PATIENCE_S
    while (found := used(client)) != wanted:
        assert time.monotonic() < deadline, found
        time.sleep(LOOK_S)


def stream_soon(client: RawClient, name: str, operation: str = "CREATE", **more: Any) -> int:
    """As `stream`, as soon as all nodes of the reference know what one of them was told."""
    deadline = time.monotonic() + PATIENCE_S
    while (found := stream(client, name, operation, **more)) in NOT_KNOWN_YET and time.monotonic() < deadline:
        time.sleep(LOOK_S)
    return found


@pytest.fixture(params=KINDS)
def client(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[RawClient, RawClient]]:
    with (
        Server(request.param, directory=tmp_path, config=config(tmp_path / "jwt")) as server,
        connected(server, ADMIN) as admin,
    ):
        allow(admin, R1=limits(), R3=limits(streams=1))
        with connected(server, ACCOUNT.user()) as user:
            yield admin, user


def test_limits_are_of_a_tier_and_a_changed_token_is_in_force_at_once(client: tuple[RawClient, RawClient]) -> None:
    admin, user = client
    assert stream(user, "A", max_bytes=MB) == 0
    assert stream(user, "B", max_bytes=3 * MB + 1) == 10047
    assert stream(user, "B", storage="memory") == 0
    assert stream(user, "C") == 10027
    assert [consumer(user, "A", "one"), consumer(user, "A", "two"), consumer(user, "B", "one")] == [0, 10026, 0]
    assert "seq" in user.acknowledged("A.x", b"x" * 1000)
    soon(user, {"R1": {"consumers": 2, "reserved_storage": MB, "storage": 1080, "streams": 2}, "R3": {}})
    whole = user.api("INFO")
    assert (whole["storage"], whole["streams"]) == (1080, 2)
    assert not any(whole["limits"].values())
    assert whole["tiers"]["R3"]["limits"] == {
        "max_memory": MB,
        "max_storage": 4 * MB,
        "max_streams": 1,
        "max_consumers": 1,
        "max_ack_pending": -1,
        "memory_max_stream_bytes": -1,
        "storage_max_stream_bytes": -1,
        "max_bytes_required": False,
    }
    assert user.api("STREAM.CREATE.Q", {"name": "Q", "num_replicas": 3})["error"]["err_code"] == 10074

    allow(admin, R1=limits(streams=3, max_bytes_required=True, disk_max_stream_bytes=9, max_ack_pending=5))
    assert [stream(user, "C"), stream(user, "C", max_bytes=10), stream(user, "C", max_bytes=9)] == [10113, 10122, 0]
    assert consumer(user, "C", "one", max_ack_pending=6) == 10121

    allow(admin, R3=limits())
    assert code(user.acknowledged("A.x", b"x")) == code(user.acknowledged("B.x", b"x")) == NO_TIER
    assert stream(user, "D") == stream(user, "A", "UPDATE", max_bytes=MB, description="x") == NO_TIER
    assert consumer(user, "C", "two") == NO_TIER
    assert not any(user.api("INFO")["tiers"]["R1"]["limits"].values())

    allow(admin, R1=limits(streams=9))
    assert "seq" in user.acknowledged("A.x", b"x")
    assert stream(user, "D") == 0


def test_a_tier_is_full_by_what_is_stored_in_it(client: tuple[RawClient, RawClient]) -> None:
    _, user = client
    assert stream(user, "B", storage="memory") == stream(user, "A") == 0
    answers = [user.acknowledged("B.x", b"x" * 300_000) for _ in range(5)]
    assert [code(answer) for answer in answers][-1] == 10002
    assert "seq" in user.acknowledged("A.x", b"x")


def test_without_a_limit_that_is_not_nothing_there_is_no_jetstream(client: tuple[RawClient, RawClient]) -> None:
    admin, user = client
    assert stream(user, "A") == 0
    allow(admin, R1={"streams": 5, "consumer": 5})
    assert code(user.api("INFO")) == 10039
    answer = user.request("A.x", b"x")[0]
    assert answer.status == "503" or b"10039" in answer.payload  # the reference has no stream there any more


@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_moves_from_tier_to_tier_with_its_replicas(kind: Any, tmp_path: Path) -> None:
    cluster = Cluster(kind, directory=tmp_path)
    for node in cluster:
        node.directory.mkdir()
        node.config = config(node.directory / "jwt")
    with cluster, connected(cluster[0], ADMIN) as admin:
        allow(admin, R1=limits(consumer=2), R3=limits(streams=1, consumer=2))
        with connected(cluster[0], ACCOUNT.user()) as user:
            assert stream_soon(user, "A", max_bytes=MB) == 0
            assert stream_soon(user, "S", num_replicas=3, max_bytes=4 * MB) == 0
            assert stream(user, "T", num_replicas=3) == 10027
            assert stream(user, "T", num_replicas=2) == NO_TIER
            assert "seq" in user.acknowledged("A.x", b"x" * 1000)
            assert "seq" in user.acknowledged("S.x", b"x" * 1000)
            own = {"reserved_storage": MB, "storage": 1080, "streams": 1}
            large = {"reserved_storage": 4 * MB, "storage": 3240, "streams": 1}
            soon(user, {"R1": own, "R3": large})
            assert stream(user, "A", "UPDATE", max_bytes=MB, num_replicas=3) == 10047
            assert stream(user, "A", "UPDATE", max_bytes=MB, num_replicas=2) == NO_TIER
            assert code(user.api("STREAM.DELETE.S")) == 0
            assert consumer(user, "A", "c") == consumer(user, "A", "d", num_replicas=1) == 0
            assert stream_soon(user, "A", "UPDATE", max_bytes=MB, num_replicas=3) == 0
            moved = {"consumers": 1, "reserved_storage": MB, "storage": 3240, "streams": 1}
            soon(user, {"R1": {"consumers": 1}, "R3": moved})
