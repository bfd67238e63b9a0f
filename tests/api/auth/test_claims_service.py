"""The system account changes accounts while the server runs; both servers are asked, in one process or in a cluster."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness.cluster import Cluster
from tests.harness.patience import PATIENCE_S, until
from tests.harness.raw import Line, RawClient
from tests.harness.server import Server
from tests.harness.tokens import JETSTREAM, Keys, TokenAccount, TokenOperator, TokenUser, claims_of, scope

KINDS = ["jetraft", pytest.param("reference", marks=pytest.mark.reference)]
OPERATOR = TokenOperator()
SYSTEM = OPERATOR.account("SYS")
ADMIN = SYSTEM.user(bearer_token=True)
RESOLVER = '{{ type: full, dir: "{}", allow_delete: true, interval: "1s", timeout: "1s" }}'
UPDATE = "$SYS.REQ.CLAIMS.UPDATE"


def config(directory: Path, *accounts: TokenAccount) -> str:
    return OPERATOR.config(SYSTEM, *accounts, resolver=RESOLVER.format(directory))


def connected(server: Server, user: TokenUser) -> RawClient:
    client = RawClient(server.address, connect=False)
    client.connect(**user.login(client.info["nonce"]))
    client.settle()
    return client


def ask(admin: RawClient, subject: str, payload: str = "") -> Any:
    (answer,) = admin.request(subject, payload.encode())[:1]
    return json.loads(answer.payload) if answer.payload.startswith(b"{") else answer.payload.decode()


def said(answer: dict[str, Any]) -> tuple[int, str]:
    found = answer.get("data") or answer["error"]
    return found["code"], found.get("message") or found["description"]


def update(admin: RawClient, account: TokenAccount, **changes: Any) -> tuple[int, str]:
    return said(ask(admin, UPDATE, account.token(**changes)))


@pytest.fixture(params=KINDS)
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    with Server(request.param, directory=tmp_path, config=config(tmp_path / "jwt")) as started:
        yield started


@pytest.fixture
def admin(server: Server) -> Iterator[RawClient]:
    with connected(server, ADMIN) as client:
        yield client


def errors(client: RawClient) -> list[str]:
    """What a connection hears that goes on."""
    found = [event.text for event in client.settle() if isinstance(event, Line)]
    assert not client.closed
    return [text for text in found if text.startswith("-ERR")]


def ending(client: RawClient) -> list[str]:
    """What a connection hears that the server ends."""
    found = [event.text for event in client.rest(PATIENCE_S) if isinstance(event, Line)]
    assert client.closed
    return [text for text in found if not text.startswith(("INFO", "PING"))]


def test_a_new_account_is_there_at_once_and_after_a_restart(server: Server, admin: RawClient) -> None:
    account = OPERATOR.account("A", limits=JETSTREAM)
    with RawClient(server.address, **account.user(bearer_token=True).login("")) as refused:
        assert ending(refused) == ["-ERR 'Authorization Violation'"]
    assert update(admin, account) == (200, "jwt updated")
    file = server.directory / "jwt" / f"{account.key}.jwt"
    assert file.read_text(encoding="utf-8") == ask(admin, f"$SYS.REQ.ACCOUNT.{account.key}.CLAIMS.LOOKUP")
    with connected(server, account.user()) as client:
        assert "error" not in client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
        assert client.acknowledged("s", b"x")["seq"] == 1
    server.restart()
    server.wait_healthy()
    with connected(server, account.user()) as client, connected(server, ADMIN) as again:
        assert client.api("STREAM.NAMES")["streams"] == ["S"]
        assert set(ask(again, "$SYS.REQ.CLAIMS.LIST")["data"]) == {SYSTEM.key, account.key}


def test_the_subject_may_name_the_account(server: Server, admin: RawClient) -> None:
    account, other = OPERATOR.account("A"), OPERATOR.account("B")
    for subject in (f"$SYS.REQ.ACCOUNT.{account.key}.CLAIMS.UPDATE", f"$SYS.ACCOUNT.{account.key}.CLAIMS.UPDATE"):
        assert said(ask(admin, subject, account.token())) == (200, "jwt updated")
        code, text = said(ask(admin, subject, other.token()))
        assert (code, text) == (500, "jwt update resulted in error - subject does not match jwt content")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda user: {"revocations": {user: 2**40}}, ["-ERR 'User Authentication Revoked'"]),
        (lambda _user: {"revocations": {"*": 2**40}}, ["-ERR 'User Authentication Revoked'"]),
        (lambda _user: {"limits": {"disallow_bearer": True}}, ["-ERR 'Authorization Violation'"]),
    ],
)
def test_what_an_account_takes_back_ends_connections(
    server: Server, admin: RawClient, change: Callable[[str], dict[str, Any]], words: list[str]
) -> None:
    account = OPERATOR.account("A")
    update(admin, account)
    user = account.user(bearer_token=True)
    with connected(server, user) as client:
        assert update(admin, account, **change(user.keys.public)) == (200, "jwt updated")
        assert ending(client) == words


def test_a_signing_key_that_is_taken_back_or_changed_ends_its_users(server: Server, admin: RawClient) -> None:
    keys = Keys.new("account")
    account = OPERATOR.account("A")
    signing = TokenAccount(operator=account.operator, keys=account.keys, name="A", signers={"r": keys})
    for before, after in (([keys.public], []), ([scope(keys)], [scope(keys, pub={"allow": ["a"]})])):
        update(admin, account, signing_keys=before)
        limits: dict[str, Any] = {} if isinstance(before[0], dict) else {"subs": -1, "data": -1, "payload": -1}
        with connected(server, signing.user(role="r", **limits)) as client, connected(server, account.user()) as other:
            assert update(admin, account, signing_keys=after) == (200, "jwt updated")
            assert ending(client) == []
            assert errors(other) == []


def test_limits_are_in_force_at_once(server: Server, admin: RawClient) -> None:
    account = OPERATOR.account("A")
    update(admin, account)
    with connected(server, account.user()) as client:
        update(admin, account, limits={"subs": 1, "payload": 3})
        client.subscribe("a")
        client.subscribe("b")
        assert Line(text="-ERR 'maximum subscriptions exceeded'") in client.settle()
        client.publish("a", b"four")
        assert ending(client) == ["-ERR 'Maximum Payload Violation'"]


def test_connections_are_bounded_and_the_oldest_stay(server: Server, admin: RawClient) -> None:
    account = OPERATOR.account("A")
    update(admin, account, limits={"conn": 2})
    events = admin.subscribe("$SYS.ACCOUNT.*.CONNECT")
    admin.settle()
    with connected(server, account.user()) as first, connected(server, account.user()) as second:
        with connected(server, account.user()) as third:
            assert third.closed
        with connected(server, ADMIN):
            told = [message.subject.split(".")[2] for message in admin.messages(events, 3)]
        assert told == [account.key, account.key, SYSTEM.key], "who is refused is not announced"
        update(admin, account, limits={"conn": 1})
        assert ending(second) == ["-ERR 'maximum account active connections exceeded'"]
        assert errors(first) == []


def test_an_operator_deletes_accounts(server: Server, admin: RawClient) -> None:
    account = OPERATOR.account("A")
    update(admin, account)

    def delete(signer: Keys, *keys: str, subject: str = "") -> tuple[int, str]:
        claims = claims_of("generic", subject or signer.public, {"accounts": list(keys)}, {})
        return said(ask(admin, "$SYS.REQ.CLAIMS.DELETE", signer.token(claims)))

    assert delete(TokenOperator().keys, account.key)[1].endswith("not trusted")
    assert delete(OPERATOR.keys, account.key, subject=account.key)[1].endswith("not self signed")
    assert delete(OPERATOR.keys, SYSTEM.key)[1].endswith("not allowed to delete system account")
    assert delete(OPERATOR.keys, "x")[1].endswith("malformed request")
    with connected(server, account.user()) as client:
        assert delete(OPERATOR.keys, account.key) == (200, "deleted 1 accounts")
        assert ending(client) == ["-ERR 'Account Authentication Expired'"]
    assert not (server.directory / "jwt" / f"{account.key}.jwt").exists()
    assert (server.directory / "jwt" / f"{account.key}.jwt.deleted").exists()
    assert ask(admin, "$SYS.REQ.CLAIMS.LIST")["data"] == [SYSTEM.key]


@pytest.mark.parametrize("payload", ["", "x", "..", ADMIN.token, OPERATOR.token()], ids=range(5))
def test_what_is_no_account_is_refused(server: Server, admin: RawClient, payload: str) -> None:
    code, text = said(ask(admin, UPDATE, payload))
    assert code == 500
    assert text.startswith("jwt update resulted in error - ")
    assert list((server.directory / "jwt").iterdir()) == [server.directory / "jwt" / f"{SYSTEM.key}.jwt"]


def test_others_cannot_ask(server: Server, admin: RawClient) -> None:
    account = OPERATOR.account("A")
    update(admin, account)
    with connected(server, account.user()) as client:
        (answer,) = client.request(UPDATE, OPERATOR.account("B").token().encode())
        assert answer.status.startswith("503")


# -- what is jetraft's own


def test_an_account_of_another_operator_is_refused(tmp_path: Path) -> None:
    with Server("jetraft", directory=tmp_path, config=config(tmp_path / "jwt")) as own, connected(own, ADMIN) as client:
        code, text = update(client, TokenOperator().account("F"))
        assert (code, text) == (
            500, "jwt update resulted in error - the account is not signed by a trusted operator",
        )  # fmt: skip


def test_files_are_private_and_what_is_damaged_is_named_and_left(tmp_path: Path) -> None:
    directory = tmp_path / "jwt"
    directory.mkdir()
    damaged = OPERATOR.account("D")
    (directory / f"{damaged.key}.jwt").write_text(damaged.token()[:-5], encoding="ascii")
    (directory / f"{SYSTEM.key}.jwt.tmp").write_text("x", encoding="ascii")
    with Server("jetraft", directory=tmp_path, config=config(directory)) as own:
        own.running.wait_for_line(f"Account {damaged.key}: the token in its file is not used")
        assert not (directory / f"{SYSTEM.key}.jwt.tmp").exists()
        assert (directory / f"{SYSTEM.key}.jwt").stat().st_mode & 0o777 == 0o600
        assert (directory / f"{damaged.key}.jwt").exists()
        with connected(own, ADMIN) as client:
            assert update(client, damaged) == (200, "jwt updated")


def test_a_full_directory_takes_no_other_account(tmp_path: Path) -> None:
    text = config(tmp_path / "jwt").replace("allow_delete", "limit: 2, allow_delete")
    with Server("jetraft", directory=tmp_path, config=text) as own, connected(own, ADMIN) as client:
        account = OPERATOR.account("A")
        assert update(client, account) == (200, "jwt updated")
        assert update(client, OPERATOR.account("B"))[1].endswith("jwt store is full")
        assert update(client, account, limits={"conn": 5}) == (200, "jwt updated")


def test_accounts_of_the_configuration_may_be_changed_in_memory(tmp_path: Path) -> None:
    account = OPERATOR.account("A")
    with (
        Server("jetraft", directory=tmp_path, config=OPERATOR.config(SYSTEM, account)) as own,
        connected(own, ADMIN) as client,
        connected(own, account.user()) as other,
    ):
        assert update(client, OPERATOR.account("B")) == (200, "jwt update skipped")
        assert update(client, account, revocations={"*": 2**40}) == (200, "jwt updated")
        assert ending(other) == ["-ERR 'User Authentication Revoked'"]


def test_jetstream_follows_the_token(tmp_path: Path) -> None:
    account = OPERATOR.account("A")
    with (
        Server("jetraft", directory=tmp_path, config=config(tmp_path / "jwt", account)) as own,
        connected(own, ADMIN) as client,
        connected(own, account.user()) as user,
    ):
        assert user.api("STREAM.CREATE.S", {"name": "S"})["error"]["err_code"] == 10039
        update(client, account, limits=JETSTREAM)
        assert "error" not in user.api("STREAM.CREATE.S", {"name": "S"})
        update(client, account, limits={**JETSTREAM, "streams": 1, "disk_storage": 50_000})
        assert user.api("STREAM.CREATE.T", {"name": "T"})["error"]["err_code"] == 10027
        assert user.api("INFO")["limits"]["max_storage"] == 50_000
        answers = [user.acknowledged("S", b"x" * 10_000) for _ in range(8)]
        assert answers[-1]["error"]["err_code"] == 10002
        update(client, account)
        assert user.api("INFO")["error"]["err_code"] == 10039


def test_nodes_of_a_cluster_have_the_same_accounts(tmp_path: Path) -> None:
    first, second = OPERATOR.account("A", limits=JETSTREAM), OPERATOR.account("B")
    started = Cluster("jetraft", 3, directory=tmp_path)
    for node in started:
        node.config = config(node.directory / "jwt")
    with started:
        with connected(started[0], ADMIN) as client:
            until(lambda: update(client, first)[0] == 200 and all(has(node, first) for node in started))
            with connected(started[2], first.user()) as user:
                assert "error" not in user.api("STREAM.CREATE.S", {"name": "S", "num_replicas": 3})
            started[2].stop()
            until(lambda: update(client, second)[0] == 200 and has(started[1], second))
        assert not has(started[2], second)
        started[2].start()
        until(lambda: has(started[2], second))
        with connected(started[2], second.user()) as user:
            assert errors(user) == []


def has(node: Server, account: TokenAccount) -> bool:
    return (node.directory / "jwt" / f"{account.key}.jwt").exists()
