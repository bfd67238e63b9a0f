"""Leaf nodes that a service judges, and those that come through a proxy; both servers agree on each."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.api.auth.test_auth_callout import ISSUER, SERVICE, SHARED
from tests.api.auth.test_claims_service import config
from tests.api.auth.test_signed_callout import AUTH, OPEN, SENTINEL, into
from tests.api.auth.test_signed_callout import service as signed_service
from tests.doubles.callout_service import CalloutService, Request, answer, user_token
from tests.harness.leafs import RawLeaf, block
from tests.harness.ports import HOST, free_port
from tests.harness.server import Kind, Server
from tests.harness.tokens import Keys

KINDS = ["jetraft", pytest.param("reference", marks=pytest.mark.reference)]
PROXY, STRANGER = Keys.new("server"), Keys.new("server")
REFUSED = "-ERR 'Authorization Violation'"
LEAF = {"name": "raw", "cluster": "raw", "headers": True, "version": "2.15.1"}


@contextmanager
def hub(kind: Kind, directory: Path, config: str, more: str = "") -> Iterator[tuple[Server, int]]:
    port = free_port()
    text = f"{config}\n{block(f'host: {HOST!r}, port: {port}, {more}')}"
    with Server(kind, directory=directory, config=text) as server:
        yield server, port


def admission(port: int, proxy: Keys | None = None, **login: Any) -> str:
    """The account that a leaf node is put into, or why it is not."""
    with RawLeaf(port) as leaf:
        signature = {} if proxy is None else {"proxy_sig": proxy.sign(leaf.info["nonce"].encode())}
        leaf.introduce(**LEAF, **login, **signature)
        lines = leaf.until("LS+ $LDS.", REFUSED)
    told = next((line for line in lines if '"connect_info":true' in line), "")
    return told.partition('"remote_account":"')[2].partition('"')[0] or lines[-1]


def good(request: Request, **nats: Any) -> bytes:
    return answer(ISSUER, request, jwt=user_token(ISSUER, request, **nats))


@pytest.mark.parametrize("kind", KINDS)
def test_a_service_says_who_leaf_nodes_are(kind: Kind, tmp_path: Path) -> None:
    with hub(kind, tmp_path, SHARED) as (server, port):
        with CalloutService(server.address, SERVICE, good) as service:
            assert admission(port, user="any", password="thing") == "A"
            (request,) = service.requests
            about = request["nats"]["client_info"]
            assert (about["kind"], about["user"], about["name"]) == ("Leafnode", "any", "raw")
            assert request["nats"]["connect_opts"]["pass"] == "thing"
            assert admission(port, **SERVICE) == "AUTH"
            assert len(service.requests) == 1
            assert admission(port, user="known", password="k") == "A"
            assert admission(port, user="inside", password="i") == "A"
            assert admission(port, user="inside", password="i", nkey="service") == "A"
            assert len(service.requests) == 4
        with CalloutService(server.address, SERVICE, lambda request: answer(ISSUER, request, error="no")):
            assert admission(port, user="any", password="thing") == REFUSED
        assert "thing" not in server.running.tail(1000)


@pytest.mark.parametrize("kind", KINDS)
def test_users_of_the_block_are_judged_by_it(kind: Kind, tmp_path: Path) -> None:
    own = "authorization { user: own, password: o, account: A }"
    with (
        hub(kind, tmp_path, SHARED, own) as (server, port),
        CalloutService(server.address, SERVICE, good) as service,
    ):
        assert admission(port, user="own", password="o") == "A"
        assert admission(port, user="any", password="x") == REFUSED
        assert service.requests == []


@pytest.mark.parametrize("kind", KINDS)
def test_the_service_of_an_account_says_who_leaf_nodes_with_its_tokens_are(kind: Kind, tmp_path: Path) -> None:
    with hub(kind, tmp_path, config(tmp_path / "jwt", AUTH, OPEN)) as (server, port):
        with signed_service(server, into(OPEN)) as service:
            assert admission(port, jwt=SENTINEL.token) == OPEN.key
            assert [request["nats"]["client_info"]["kind"] for request in service.requests] == ["Leafnode"]
        with signed_service(server, lambda request: answer(AUTH.keys, request, error="no")):
            assert admission(port, jwt=SENTINEL.token) == REFUSED


def test_an_answer_that_is_not_for_this_leaf_node_lets_it_not_in(tmp_path: Path) -> None:
    def for_another(request: Request) -> bytes:
        other = {"nats": {**request["nats"], "user_nkey": Keys.new("user").public}}
        return answer(ISSUER, request, jwt=user_token(ISSUER, other))

    decisions: list[Callable[[Request], bytes]] = [
        for_another,
        lambda _request: b"",
        lambda _request: b"a.b.c",
        lambda request: good(request, claims={"aud": "NONE"}),
        lambda request: good(request, allowed_connection_types=["STANDARD"]),
        lambda request: good(request, src=["10.0.0.0/8"]),
    ]
    with hub("jetraft", tmp_path, SHARED) as (server, port):
        for decide in decisions:
            with CalloutService(server.address, SERVICE, decide) as service:
                assert admission(port, user="any") == REFUSED
                assert len(service.requests) == 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("config", "more"),
    [
        ("", "authorization { user: u, password: p, proxy_required: true }"),
        ("", "authorization { users: [ { user: u, password: p, proxy_required: true } ] }"),
        ("", "authorization { proxy_required: true, users: [ { user: u, password: p } ] }"),
        ("authorization { user: u, password: p, proxy_required: true }", ""),
        ("authorization { users: [ { user: u, password: p, proxy_required: true } ] }", ""),
    ],
    ids=["one", "of users", "all users", "of clients", "of a client"],
)
def test_where_a_proxy_is_required_a_leaf_node_comes_through_one(
    kind: Kind, config: str, more: str, tmp_path: Path
) -> None:
    login: dict[str, Any] = {"user": "u", "pass": "p"}
    trusted = f"proxies {{ trusted: [ {{ key: {PROXY.public} }} ] }}\n"
    with hub(kind, tmp_path, trusted + config, more) as (server, port):
        assert admission(port, **login) == REFUSED
        assert admission(port, STRANGER, **login) == REFUSED
        for reason in ("Proxy Required", "Proxy Not Trusted"):
            server.running.wait_for_line(f"closed: {reason}")
        with RawLeaf(port) as leaf:
            leaf.introduce(**LEAF, **login, proxy_sig=PROXY.sign(leaf.info["nonce"].encode()))
            leaf.until("LS+ $LDS.")
            (row,) = server.get("/leafz")[1]["leafs"]
            assert row["proxy"] == {"key": PROXY.public}
