"""Mutual TLS between nodes, over real sockets. The certificates are made by certificates/make.sh."""

import logging
from pathlib import Path

import pytest
import trio

from jetraft.raft.mesh.addresses import Address
from jetraft.raft.mesh.connection import Tls, TlsFiles, TlsFilesError
from jetraft.raft.mesh.framing import CHANNEL_ROUTE
from tests.harness.patience import PATIENCE_S
from tests.raft.meshes import Node, NodeOptions, assert_frames_arrive_whole_and_in_order, running

PEMS = Path(__file__).parent / "certificates"


def tls(name: str, authority: str = "ours") -> Tls:
    return Tls.load(
        TlsFiles(
            cert_file=str(PEMS / f"{name}.pem"),
            key_file=str(PEMS / f"{name}.key"),
            ca_file=str(PEMS / f"{authority}-ca.pem"),
        )
    )


async def test_nodes_with_certificates_of_one_authority_are_linked_and_frames_are_whole_and_in_order() -> None:
    one, other = Node("one", tls=tls("node")), Node("other", tls=tls("node"))
    async with running(one, other):
        one.mesh._connector.dial(other.address)
        await one.wait_up(other)
        await assert_frames_arrive_whole_and_in_order(one, other, 300)


async def test_both_directions_are_busy_at_once() -> None:
    one, other = Node("one", tls=tls("node")), Node("other", tls=tls("node"))
    counts = {"one": 0, "other": 0}
    finished = trio.Event()

    def count(name: str) -> None:
        counts[name] += 1
        if min(counts.values()) == 40:
            finished.set()

    async with running(one, other):
        one.mesh.on_frame(CHANNEL_ROUTE, lambda _node, _payload: count("one"))
        other.mesh.on_frame(CHANNEL_ROUTE, lambda _node, _payload: count("other"))
        one.mesh._connector.dial(other.address)
        await one.wait_up(other)
        await other.wait_up(one)
        for _ in range(40):
            one.mesh.send(other.mesh.node_id, CHANNEL_ROUTE, b"x" * 500_000)
            other.mesh.send(one.mesh.node_id, CHANNEL_ROUTE, b"y" * 500_000)
        with trio.fail_after(PATIENCE_S):
            await finished.wait()


@pytest.mark.parametrize(
    ("dialler", "why"),
    [
        ({"tls": tls("stranger", "ours")}, "certificate"),
        ({"tls": tls("node"), "secret": b"guess"}, "does not know this cluster's secret"),
        ({"tls": tls("node"), "cluster": "other"}, "belongs to cluster 'other'"),
        ({}, "TLS"),
    ],
    ids=["another authority", "wrong secret", "wrong cluster", "no TLS"],
)
async def test_a_certificate_is_needed_and_is_not_enough(
    dialler: NodeOptions, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    seed = Node("seed", tls=tls("node"))
    async with running(seed) as nursery:
        intruder = Node("x", routes=(seed.address,), **dialler)
        with caplog.at_level(logging.WARNING):
            await nursery.start(intruder.mesh.run)
            with trio.fail_after(PATIENCE_S):
                while seed.mesh.statistics().handshakes_refused < 3:
                    await trio.testing.wait_all_tasks_blocked(0.01)
        assert (seed.up, intruder.up) == (set(), set())
        refusals = [text for text in caplog.messages if "127.0.0.1: refused" in text]
        assert len(refusals) == 1, "one line, however often it knocks"
        assert why in refusals[0]


async def test_a_dialler_wants_the_certificate_of_the_host_that_it_dialled() -> None:
    seed = Node("seed", tls=tls("elsewhere"))
    async with running(seed) as nursery:
        other = Node("other", routes=(seed.address,), tls=tls("node"))
        await nursery.start(other.mesh.run)
        with trio.fail_after(PATIENCE_S):
            while not other.mesh.statistics().handshakes_refused:
                await trio.testing.wait_all_tasks_blocked(0.01)
        assert (seed.up, other.up) == (set(), set())


async def test_a_node_with_tls_does_not_speak_to_one_without() -> None:
    plain = Node("plain")
    async with running(plain) as nursery:
        other = Node("other", routes=(plain.address,), tls=tls("node"))
        await nursery.start(other.mesh.run)
        with trio.fail_after(PATIENCE_S):
            while not plain.mesh.statistics().handshakes_refused:
                await trio.testing.wait_all_tasks_blocked(0.01)
        assert (plain.up, other.up) == (set(), set())


async def test_a_name_is_dialled_when_the_certificate_has_it() -> None:
    seed = Node("seed", tls=tls("node"))
    async with running(seed) as nursery:
        other = Node("other", routes=(Address("localhost", seed.address.port),), tls=tls("node"))
        await nursery.start(other.mesh.run)
        await other.wait_up(seed)


@pytest.mark.parametrize(
    "files",
    [
        {"cert_file": "missing.pem"},
        {"key_file": "stranger.key"},
        {"ca_file": "node.key"},
    ],
    ids=["missing", "key of another certificate", "no certificate"],
)
def test_files_that_cannot_be_used_are_said_at_the_start(files: dict[str, str]) -> None:
    whole = {"cert_file": "node.pem", "key_file": "node.key", "ca_file": "ours-ca.pem"} | files
    with pytest.raises(TlsFilesError, match="cluster tls: cannot use"):
        Tls.load(TlsFiles(**{field: str(PEMS / name) for field, name in whole.items()}))
