"""Mutual TLS between nodes, over real sockets. The certificates are made by certificates/make.sh."""

import logging
import ssl
from pathlib import Path
from typing import Any

import pytest
import trio

from jetraft.raft.mesh.addresses import Address
from jetraft.raft.mesh.connection import Tls, TlsFiles, TlsFilesError, is_for
from jetraft.raft.mesh.framing import CHANNEL_ROUTE
from jetraft.raft.mesh.pins import key_digest
from tests.harness.patience import PATIENCE_S
from tests.raft.meshes import Node, NodeOptions, assert_frames_arrive_whole_and_in_order, running

PEMS = Path(__file__).parent / "certificates"


def tls(name: str, authority: str = "ours", **checks: Any) -> Tls:
    return Tls.load(
        TlsFiles(
            cert_file=str(PEMS / f"{name}.pem"),
            key_file=str(PEMS / f"{name}.key"),
            ca_file=str(PEMS / f"{authority}-ca.pem"),
            **checks,
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
    paths: dict[str, Any] = {field: str(PEMS / name) for field, name in whole.items()}
    with pytest.raises(TlsFilesError, match="cluster tls: cannot use"):
        Tls.load(TlsFiles(**paths))


def pin_of(name: str) -> str:
    return key_digest(ssl.PEM_cert_to_DER_cert((PEMS / f"{name}.pem").read_text(encoding="ascii")))


@pytest.mark.parametrize(
    ("dialler", "acceptor"),
    [
        (tls("node"), tls("node", pinned_certs=frozenset({pin_of("node")}))),
        (tls("node", pinned_certs=frozenset({pin_of("node"), "00" * 32})), tls("node")),
        (tls("node"), tls("node", known_hosts=("x", "localhost"))),
        (tls("node", insecure=True), tls("elsewhere")),
    ],
    ids=["pinned by who accepts", "pinned by who dials", "of a known host", "not looked at"],
)
async def test_a_link_comes_up_when_what_is_asked_of_certificates_holds(dialler: Tls, acceptor: Tls) -> None:
    one, other = Node("one", tls=dialler), Node("other", tls=acceptor)
    async with running(one, other):
        one.mesh._connector.dial(other.address)
        await one.wait_up(other)


@pytest.mark.parametrize(
    ("dialler", "acceptor"),
    [
        (tls("elsewhere"), tls("node", pinned_certs=frozenset({pin_of("node")}))),
        (tls("node", pinned_certs=frozenset({pin_of("elsewhere")})), tls("node")),
        (tls("node"), tls("node", known_hosts=("elsewhere.invalid",))),
        (tls("node"), tls("node", known_hosts=())),
        (tls("stranger", "ours", insecure=True), tls("node")),
    ],
    ids=["not pinned by who accepts", "not pinned by who dials", "of another host", "no host", "of another authority"],
)
async def test_no_link_comes_up_when_it_does_not(dialler: Tls, acceptor: Tls) -> None:
    one, other = Node("one", tls=dialler), Node("other", tls=acceptor)
    async with running(one, other):
        one.mesh._connector.dial(other.address)
        with trio.fail_after(PATIENCE_S):
            while not (one.mesh.statistics().handshakes_refused or other.mesh.statistics().handshakes_refused):
                await trio.testing.wait_all_tasks_blocked(0.01)
        assert (one.up, other.up) == (set(), set())


@pytest.mark.parametrize(
    ("name", "host", "is_one"),
    [
        ("a.b", "a.b", True),
        ("A.b", "a.B", True),
        ("*.b.c", "a.b.c", True),
        ("*.b.c", "b.c", False),
        ("*.b.c", "x.a.b.c", False),
        ("*.", "a.", False),
        ("a.b", "a.b.c", False),
        ("*", "a", False),
    ],
)
def test_a_certificate_is_for_a_host_by_its_name_or_one_wildcard(name: str, host: str, *, is_one: bool) -> None:
    assert is_for(name, host) is is_one
