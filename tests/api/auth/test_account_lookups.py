"""Accounts behind a URL, and those that another server has: looked up when somebody shows a token of them."""

import ipaddress
import json
import signal
import ssl
import time
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from tests.harness.account_server import PATH, AccountServer, send
from tests.harness.certificates import Authority
from tests.harness.cluster import Cluster
from tests.harness.leafs import RawLeaf
from tests.harness.patience import PATIENCE_S
from tests.harness.ports import HOST, free_port
from tests.harness.process import ServerFailed
from tests.harness.raw import Line, RawClient, connect_line
from tests.harness.server import Kind, Server
from tests.harness.tokens import JETSTREAM, TokenAccount, TokenOperator, TokenUser

KINDS = ["jetraft", pytest.param("reference", marks=pytest.mark.reference)]
OPERATOR = TokenOperator()
SYSTEM = OPERATOR.account("SYS")
ADMIN = SYSTEM.user(bearer_token=True)
HERE = x509.IPAddress(ipaddress.ip_address(HOST))
LEAF: dict[str, Any] = {"name": "leaf", "server_id": "N", "cluster": "leaf", "headers": True, "version": "2.15.1"}
REFUSED = ["-ERR 'Authorization Violation'"]
BODY_BYTES = 3 << 20


def config(web: AccountServer, *, more: str = "") -> str:
    return f'operator: {OPERATOR.token()}\nsystem_account: {SYSTEM.key}\nresolver: "URL({web.url})"\n{more}\n'


@pytest.fixture
def web() -> Iterator[AccountServer]:
    with AccountServer() as started:
        put(started, SYSTEM)
        yield started


@pytest.fixture(params=KINDS)
def server(request: pytest.FixtureRequest, web: AccountServer, tmp_path: Path) -> Iterator[Server]:
    with Server(request.param, directory=tmp_path, config=config(web), flags=("-D",)) as started:
        yield started


def put(web: AccountServer, *accounts: TokenAccount) -> None:
    for account in accounts:
        web.tokens[account.key] = account.token()


def connected(server: Server, user: TokenUser) -> RawClient:
    client = RawClient(server.address, connect=False)
    client.connect(**user.login(client.info["nonce"]))
    return client


def admitted(server: Server, user: TokenUser, *, refused: Sequence[list[str]] = (REFUSED,)) -> bool:
    """Whether a user is let in; who is not hears why, one of these."""
    with connected(server, user) as client:
        words = [event.text for event in client.settle() if isinstance(event, Line)]
        errors = [text for text in words if text.startswith("-ERR")]
        assert errors in (refused if client.closed else ([],))
        return not client.closed


def test_an_account_is_looked_up_when_a_user_of_it_comes_and_again_after_a_failure(
    server: Server, web: AccountServer
) -> None:
    account = OPERATOR.account("A")
    assert not admitted(server, account.user())
    put(web, account)
    assert admitted(server, account.user())
    assert admitted(server, account.user())
    assert web.asked[0] == ""
    assert web.asked.count(account.key) == 2


def test_clients_that_come_at_once_wait_for_one_look_up(web: AccountServer, tmp_path: Path) -> None:
    account = OPERATOR.account("A")

    def slowly(request: BaseHTTPRequestHandler) -> None:
        web.released.wait(PATIENCE_S)
        send(request, account.token().encode())

    web.answers[account.key] = slowly
    with Server("jetraft", directory=tmp_path, config=config(web)) as server:
        clients = [RawClient(server.address, connect=False) for _ in range(20)]
        user = account.user()
        for client in clients:
            client.send(connect_line(**user.login(client.info["nonce"])) + b"PING\r\n")
        with connected(server, ADMIN) as other:
            other.settle()  # who is known is served meanwhile
        web.released.set()
        for client in clients:
            client.settle()
            assert not client.closed
            client.close()
    assert web.asked.count(account.key) == 1


OTHER = TokenOperator().account("B")
LONG = b"x" * BODY_BYTES


def of_another_account(request: BaseHTTPRequestHandler) -> None:
    send(request, SYSTEM.token().encode())


def of_another_operator(request: BaseHTTPRequestHandler) -> None:
    send(request, OTHER.token().encode())


def nonsense(request: BaseHTTPRequestHandler) -> None:
    send(request, b"eyJ.nonsense")


def too_long(request: BaseHTTPRequestHandler) -> None:
    send(request, LONG)


def broken(request: BaseHTTPRequestHandler) -> None:
    request.wfile.write(b"no HTTP\r\n\r\n")


def in_a_circle(request: BaseHTTPRequestHandler) -> None:
    request.send_response(302)
    request.send_header("Location", request.path)
    request.send_header("Content-Length", "0")
    request.end_headers()


def to_no_url(request: BaseHTTPRequestHandler) -> None:
    request.send_response(302)
    request.send_header("Location", "http://[")
    request.send_header("Content-Length", "0")
    request.end_headers()


@pytest.mark.parametrize(
    "answer",
    [of_another_account, of_another_operator, nonsense, too_long, broken, in_a_circle, to_no_url],
    ids=lambda it: it.__name__,
)
def test_what_is_no_token_of_the_account_admits_nobody(server: Server, web: AccountServer, answer: Any) -> None:
    account = OTHER if answer is of_another_operator else OPERATOR.account("A")
    web.answers[account.key] = answer
    assert not admitted(server, account.user())
    assert admitted(server, ADMIN)
    assert "Traceback" not in server.running.tail(10_000)


@pytest.mark.parametrize("kind", KINDS)
def test_the_account_of_a_leaf_node_is_looked_up(kind: Kind, web: AccountServer, tmp_path: Path) -> None:
    account, port = OPERATOR.account("A"), free_port()
    put(web, account)
    more = f'leafnodes {{ listen: "{HOST}:{port}" }}'
    with Server(kind, directory=tmp_path, config=config(web, more=more)) as server:
        with RawLeaf(port, **LEAF, jwt=account.user(bearer_token=True).token) as leaf:
            leaf.until("LS+ $LDS.")
        unknown = OPERATOR.account("B").user(bearer_token=True)
        with RawLeaf(port, **LEAF, jwt=unknown.token):
            server.running.wait_for_line("authentication error")


def test_a_redirect_is_followed(server: Server, web: AccountServer) -> None:
    account, elsewhere = OPERATOR.account("A"), OPERATOR.account("elsewhere")
    web.tokens[elsewhere.key] = account.token()

    def moved(request: BaseHTTPRequestHandler) -> None:
        request.send_response(301)
        request.send_header("Location", f"{PATH}{elsewhere.key}")
        request.send_header("Content-Length", "0")
        request.end_headers()

    web.answers[account.key] = moved
    assert admitted(server, account.user())


def test_who_is_known_goes_on_when_nobody_answers_at_the_url(server: Server, web: AccountServer) -> None:
    account = OPERATOR.account("A")
    put(web, account)
    with connected(server, account.user()) as first:
        first.settle()
        web.stop()
        assert not admitted(server, OPERATOR.account("B").user())
        assert admitted(server, account.user())
        first.settle()
        assert not first.closed


def test_a_server_that_takes_its_time_holds_nobody_else(web: AccountServer, tmp_path: Path) -> None:
    account = OPERATOR.account("A")

    def never(_request: BaseHTTPRequestHandler) -> None:
        web.released.wait(PATIENCE_S)

    web.answers[account.key] = never
    with Server("jetraft", directory=tmp_path, config=config(web), flags=("-D",)) as server:
        start = time.monotonic()
        with connected(server, account.user()) as held, connected(server, ADMIN) as other:
            other.settle()
            assert time.monotonic() - start < 1.0, "another client was held"
            assert [event.text for event in held.rest() if isinstance(event, Line)]  # it ends by the deadline
        server.running.wait_for_line("could not be looked up: could not fetch")


def test_the_accounts_that_one_imports_from_are_looked_up_too(server: Server, web: AccountServer) -> None:
    exporter = OPERATOR.account("B", exports=[{"name": "s", "subject": "s.>", "type": "stream"}])
    imports = [{"name": "s", "subject": "s.>", "account": exporter.key, "type": "stream"}]
    account = OPERATOR.account("A", imports=imports)
    put(web, exporter, account)
    with connected(server, account.user()) as reader, connected(server, exporter.user()) as writer:
        sid = reader.subscribe("s.>")
        reader.settle()
        writer.publish("s.a", b"x")
        assert [message.payload for message in reader.messages(sid, 1)] == [b"x"]


def test_streams_of_an_account_that_is_not_known_yet_are_there_after_a_restart(
    server: Server, web: AccountServer
) -> None:
    account = OPERATOR.account("A", limits=JETSTREAM)
    put(web, account)
    with connected(server, account.user()) as client:
        assert "error" not in client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
        assert client.acknowledged("s", b"x")["seq"] == 1
    server.restart()
    server.wait_healthy()
    with connected(server, account.user()) as client:
        assert client.api("STREAM.NAMES")["streams"] == ["S"]
        assert client.acknowledged("s", b"y")["seq"] == 2


def test_an_account_that_has_expired_is_looked_up_again(server: Server, web: AccountServer) -> None:
    ends_s = int(time.time()) + 3
    account = OPERATOR.account("A")
    web.tokens[account.key] = account.token(claims={"exp": ends_s})
    with connected(server, account.user()) as client:
        client.rest(PATIENCE_S)  # until it ends
    web.tokens[account.key] = account.token()
    deadline = time.monotonic() + PATIENCE_S
    expired = ["-ERR 'Account Authentication Expired'"]  # of the claims that are known still
    while not admitted(server, account.user(), refused=(REFUSED, expired)):  # both look at most once a second
        assert time.monotonic() < deadline


@pytest.mark.parametrize("kind", KINDS)
def test_a_password_of_the_url_is_used_and_never_shown(kind: Kind, tmp_path: Path) -> None:
    account = OPERATOR.account("A")
    with AccountServer(login="me:hidden") as web:
        put(web, SYSTEM, account)
        with Server(kind, directory=tmp_path, config=config(web), flags=("-DV",)) as server:
            assert admitted(server, account.user())
            assert not admitted(server, OPERATOR.account("B").user())
            pages = [server.get(path) for path in ("/varz", "/connz?auth=1", "/accountz")]
            assert "hidden" not in json.dumps(pages) + server.running.tail(10_000)


@pytest.mark.parametrize("kind", KINDS)
def test_the_web_server_may_want_tls_with_a_certificate(kind: Kind, tmp_path: Path) -> None:
    account, authority = OPERATOR.account("A"), Authority.make(tmp_path)
    its, ours = authority.sign("web", names=[HERE]), authority.sign("us")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(authority.ca_file))
    context.load_cert_chain(its.cert_file, its.key_file)
    context.verify_mode = ssl.CERT_REQUIRED
    with AccountServer(context=context) as web:
        put(web, SYSTEM, account)
        tls = f'resolver_tls {{ ca_file: "{authority.ca_file}"\n{ours.block} }}'
        with Server(kind, directory=tmp_path, config=config(web, more=tls)) as server:
            assert admitted(server, account.user())
        with pytest.raises(ServerFailed, match="tls: failed to verify certificate"):
            Server(kind, directory=tmp_path, config=config(web)).start()


def test_a_reload_may_name_another_url(web: AccountServer, tmp_path: Path) -> None:
    account = OPERATOR.account("A")
    with AccountServer() as other, Server("jetraft", directory=tmp_path, config=config(web)) as server:
        put(other, SYSTEM, account)
        (server.directory / "server.conf").write_text(config(other), encoding="utf-8")
        server.running.signal(signal.SIGHUP)
        server.running.wait_for_line("Reloaded server configuration")
        assert admitted(server, account.user())
        assert account.key not in web.asked


def test_the_nodes_of_a_cluster_tell_each_other(web: AccountServer, tmp_path: Path) -> None:
    account = OPERATOR.account("A", limits=JETSTREAM)
    put(web, account)
    with Cluster("jetraft", 3, directory=tmp_path, config=config(web)) as cluster:
        with connected(cluster.nodes[0], account.user()) as client:
            made = client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s"], "num_replicas": 3})
            assert "error" not in made
            assert client.acknowledged("s", b"x")["seq"] == 1
        web.stop()
        for node in cluster.nodes:
            with connected(node, account.user()) as client:
                assert client.api("STREAM.NAMES")["streams"] == ["S"]


# -- a cache asks other servers


def of_directory(kind: str, directory: Path, *accounts: TokenAccount, more: str = "") -> str:
    resolver = f'{{ type: {kind}, dir: "{directory}", timeout: "1s"{more} }}'
    return OPERATOR.config(SYSTEM, *accounts, resolver=resolver)


@pytest.mark.parametrize("kind", KINDS)
def test_a_cache_asks_another_server_and_keeps_what_it_says(kind: Kind, tmp_path: Path) -> None:
    account, unknown = OPERATOR.account("A"), OPERATOR.account("U")
    cluster = Cluster(kind, 2, directory=tmp_path, without=2)
    full, cache = cluster.nodes
    full.config = of_directory("full", tmp_path / "full", account)
    cache.config = of_directory("cache", tmp_path / "cache", more=', ttl: "1h", limit: 2')
    with cluster:
        cache.running.wait_until(lambda: admitted(cache, account.user()), what="the other server is known to answer")
        assert not admitted(cache, unknown.user())
        file = tmp_path / "cache" / f"{account.key}.jwt"
        assert file.read_bytes() == (tmp_path / "full" / file.name).read_bytes()
        with connected(cache, ADMIN) as admin:
            admin.settle()
            subject = "$SYS.REQ.CLAIMS.UPDATE"
            for changed in (account, unknown):
                said = {json.dumps(told(answer.payload)) for answer in admin.request(subject, changed.token().encode())}
                assert said


def told(payload: bytes) -> Any:
    document = json.loads(payload)
    return document.get("data") or document.get("error")


def test_a_cache_keeps_so_many_files_for_so_long(tmp_path: Path) -> None:
    accounts = [OPERATOR.account(f"A{number}") for number in range(5)]
    directory = tmp_path / "cache"
    directory.mkdir()
    for account in accounts:
        (directory / f"{account.key}.jwt").write_text(account.token(), encoding="utf-8")
    with Server("jetraft", directory=tmp_path, config=of_directory("cache", directory, more=", limit: 3")):
        assert len(list(directory.glob("*.jwt"))) == 3
    with Server("jetraft", directory=tmp_path, config=of_directory("cache", directory, more=', ttl: "1us"')):
        assert not list(directory.glob("A*.jwt"))


@pytest.mark.parametrize("kind", KINDS)
def test_a_system_account_that_is_not_there_yet_can_be_pushed(kind: Kind, tmp_path: Path) -> None:
    resolver = f'{{ type: full, dir: "{tmp_path / "jwt"}" }}'
    text = f"operator: {OPERATOR.token()}\nsystem_account: {SYSTEM.key}\nresolver: {resolver}\n"
    with Server(kind, directory=tmp_path, config=text) as server, connected(server, ADMIN) as admin:
        admin.settle()
        (answer,) = admin.request("$SYS.REQ.CLAIMS.UPDATE", SYSTEM.token().encode())[:1]
        assert told(answer.payload) == {"account": SYSTEM.key, "code": 200, "message": "jwt updated"}
        assert admitted(server, ADMIN)


# -- configuration


def said_at_start(kind: Kind, directory: Path, text: str) -> str:
    with pytest.raises(ServerFailed) as failed:
        Server(kind, directory=directory, config=text, jetstream=False).start()
    return str(failed.value)


BASE = f"operator: {OPERATOR.token()}\nsystem_account: {SYSTEM.key}\nresolver: "
WRONG = {
    f"URL(http://{HOST}:1/x)": f'could not fetch <"http://{HOST}:1/x/">: Get "http://{HOST}:1/x/": '
    f"dial tcp {HOST}:1: connect: connection refused",
    "URL(ftp://h/x)": 'could not fetch <"ftp://h/x/">: Get "ftp://h/x/": unsupported protocol scheme "ftp"',
    '"URL(http://[::1/)"': 'error parsing account resolver url ["http://[::1/"]',
    "{ type: cache }": "dir has no value and needs to point to a directory",
    '{ type: cache, dir: "D", interval: "1m" }': "CACHE does not accept sync",
    '{ type: cache, dir: "D", allow_delete: true }': "CACHE does not accept allow_delete",
    '{ type: cache, dir: "D", hard_delete: false }': "CACHE does not accept hard_delete",
    '{ type: cache, dir: "D", timeout: "0s" }': "Fetch timeout 0s is too smal",
    '{ type: cache, dir: "D", ttl: "x" }': 'time: invalid duration "x"',
    '{ type: full, dir: "D", ttl: "1m" }': "FULL does not accept ttl",
    '{ type: full, dir: "D/server.conf" }': "dir needs to point to an accessible directory",
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_resolver_that_cannot_be_is_refused_in_the_same_words(kind: Kind, tmp_path: Path) -> None:
    for resolver, words in WRONG.items():
        assert words in said_at_start(kind, tmp_path, BASE + resolver.replace("D", str(tmp_path), 1))
