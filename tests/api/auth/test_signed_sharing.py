"""What accounts of operators give each other, by their tokens: at the start, and at once when these change."""

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest

from tests.api.auth.test_claims_service import ADMIN, KINDS, OPERATOR, config, connected, update
from tests.harness.raw import Message, RawClient
from tests.harness.server import Server
from tests.harness.tokens import Keys, TokenAccount, claims_of

SIGNING, STRANGER = Keys.new("account"), Keys.new("account")
OPEN = [
    {"name": "news", "type": "stream", "subject": "news.>"},
    {"name": "ask", "type": "service", "subject": "ask.*"},
    {"name": "own", "type": "service", "subject": "own.*.x", "account_token_position": 2},
]
CLOSED = [
    {"type": "stream", "subject": "news.>", "token_req": True},
    {"type": "service", "subject": "ask.*", "token_req": True},
]
EXPORTER = OPERATOR.account("E", exports=OPEN, signing_keys=[SIGNING.public])
IMPORTER = OPERATOR.account("I")


def imports(*, account: TokenAccount = EXPORTER, stream: Mapping[str, Any] | None = None, **service: Any) -> list[Any]:
    """A stream and a service of the exporter."""
    named = {"account": account.key}
    return [
        {"name": "n", "type": "stream", "subject": "news.>", **named, **(stream or {})},
        {"name": "a", "type": "service", "subject": "ask.*", **named, **service},
    ]


def activation(kind: str, subject: str, *, by: Keys | None = None, **claims: Any) -> str:
    """A token of the exporter for the importer; `by` a signing key."""
    owner = {} if by is None else {"issuer_account": EXPORTER.key}
    importer = claims.pop("importer", IMPORTER.key)
    body = {**claims_of("activation", importer, {"subject": subject, "kind": kind, **owner}, {}), **claims}
    return (by or EXPORTER.keys).token(body)


def activated(**claims: Any) -> list[Any]:
    """Both imports, with a token each."""
    by = claims.pop("by", None)
    return imports(
        stream={"token": activation("stream", "news.>", by=by, **claims)},
        token=activation("service", "ask.*", by=by, **claims),
    )


@pytest.fixture(params=KINDS)
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    accounts = (EXPORTER, IMPORTER)
    with Server(request.param, directory=tmp_path, config=config(tmp_path / "jwt", *accounts)) as started:
        yield started


@pytest.fixture
def admin(server: Server) -> Iterator[RawClient]:
    with connected(server, ADMIN) as client:
        yield client


@attrs.frozen
class Three:
    """Clients of the system, the exporter and the importer."""

    admin: RawClient
    exporter: RawClient
    importer: RawClient


@pytest.fixture
def exporter(server: Server) -> Iterator[RawClient]:
    with connected(server, EXPORTER.user()) as client:
        yield client


@pytest.fixture
def importer(server: Server) -> Iterator[RawClient]:
    with connected(server, IMPORTER.user()) as client:
        client.subscribe(">")
        client.settle()
        yield client


@pytest.fixture
def three(admin: RawClient, exporter: RawClient, importer: RawClient) -> Three:
    return Three(admin, exporter, importer)


def heard(importer: RawClient, exporter: RawClient, subject: str = "news.x") -> list[str]:
    """The subjects on which the importer hears what the exporter publishes."""
    exporter.publish(subject, b"x")
    exporter.settle()
    return [event.subject for event in importer.settle() if isinstance(event, Message)]


def asked(importer: RawClient, exporter: RawClient, subject: str = "ask.x") -> list[str]:
    """The subjects on which the exporter is asked."""
    sid = exporter.subscribe(">")
    exporter.settle()
    importer.publish(subject, b"x", reply="back")
    importer.settle()
    found = [event.subject for event in exporter.settle() if isinstance(event, Message)]
    exporter.send(f"UNSUB {sid}\r\n".encode())
    exporter.settle()
    return found


def test_imports_are_in_force_at_once_and_end_at_once(three: Three) -> None:
    admin, exporter, importer = three.admin, three.exporter, three.importer
    for _ in range(2):
        assert heard(importer, exporter) == asked(importer, exporter) == []
        assert update(admin, IMPORTER, imports=imports()) == (200, "jwt updated")
        assert heard(importer, exporter) == ["news.x"]
        assert asked(importer, exporter) == ["ask.x"]
        assert update(admin, IMPORTER) == (200, "jwt updated")


@pytest.mark.parametrize(
    "names",
    [
        ({"to": "p"}, {"subject": "my.*", "to": "ask.*"}, "p.news.x", "my.x"),
        ({"local_subject": "q.>"}, {"local_subject": "my.*"}, "q.x", "my.x"),
        ({}, {"local_subject": "a.$1.b"}, "news.x", "a.x.b"),
    ],
)
def test_imports_have_other_names(three: Three, names: tuple[dict[str, Any], dict[str, Any], str, str]) -> None:
    admin, exporter, importer = three.admin, three.exporter, three.importer
    stream, service, news, question = names
    assert update(admin, IMPORTER, imports=imports(stream=stream, **service)) == (200, "jwt updated")
    assert heard(importer, exporter) == [news]
    assert asked(importer, exporter, question) == ["ask.x"]


def test_an_answer_comes_back(three: Three) -> None:
    admin, exporter, importer = three.admin, three.exporter, three.importer
    update(admin, IMPORTER, imports=imports())
    requests = exporter.subscribe("ask.*")
    exporter.settle()
    importer.publish("ask.x", b"q", reply="back")
    (request,) = exporter.messages(requests, 1)
    exporter.publish(request.reply, b"answer")
    exporter.settle()
    found = [event for event in importer.settle() if isinstance(event, Message)]
    assert [message.payload for message in found if message.subject == "back"] == [b"answer"]


def test_what_the_exporter_takes_back_ends_at_once(three: Three) -> None:
    admin, exporter, importer = three.admin, three.exporter, three.importer
    update(admin, IMPORTER, imports=imports())
    assert heard(importer, exporter) == ["news.x"]
    update(admin, EXPORTER, exports=OPEN[1:])
    assert heard(importer, exporter) == []
    assert asked(importer, exporter) == ["ask.x"]
    update(admin, EXPORTER, exports=OPEN[:1])
    assert asked(importer, exporter) == []


def test_a_token_in_the_subject_is_the_importers_key(three: Three) -> None:
    admin, exporter, importer = three.admin, three.exporter, three.importer
    for owner, expected in ((EXPORTER.key, []), (IMPORTER.key, [f"own.{IMPORTER.key}.x"])):
        one = {"type": "service", "subject": f"own.{owner}.x", "account": EXPORTER.key}
        update(admin, IMPORTER, imports=[one])
        assert asked(importer, exporter, f"own.{owner}.x") == expected


@pytest.mark.parametrize(
    ("claims", "is_given"),
    [
        ({}, True),
        ({"by": SIGNING}, True),
        ({"by": STRANGER}, False),
        ({"exp": int(time.time()) - 10}, False),
        ({"exp": int(time.time()) + 3600}, True),
        ({"nbf": int(time.time()) + 3600}, False),
        (None, False),
    ],
    ids=["signed", "by a signing key", "by another key", "expired", "expires later", "not yet", "none"],
)
def test_an_activation_gives_what_the_exporter_keeps_closed(
    three: Three,
    claims: dict[str, Any] | None,
    is_given: bool,  # noqa: FBT001  (a parameter of the test)
) -> None:
    admin, exporter, importer = three.admin, three.exporter, three.importer
    update(admin, EXPORTER, exports=CLOSED)
    update(admin, IMPORTER, imports=imports() if claims is None else activated(**claims))
    assert bool(heard(importer, exporter)) == is_given
    assert bool(asked(importer, exporter)) == is_given


def test_an_activation_is_revoked(three: Three) -> None:
    admin, exporter, importer = three.admin, three.exporter, three.importer
    update(admin, EXPORTER, exports=CLOSED)
    update(admin, IMPORTER, imports=activated())
    assert heard(importer, exporter) == ["news.x"]
    assert asked(importer, exporter) == ["ask.x"]
    revoked = [{**one, "revocations": {IMPORTER.key: 2**40}} for one in CLOSED]
    update(admin, EXPORTER, exports=revoked)
    assert heard(importer, exporter) == asked(importer, exporter) == []


def test_what_is_mapped_changes_at_once(three: Three) -> None:
    admin, importer = three.admin, three.importer
    for mappings, expected in (({}, "m.x"), ({"m.*": [{"subject": "n.$1"}]}, "n.x"), ({}, "m.x")):
        assert update(admin, IMPORTER, mappings=mappings) == (200, "jwt updated")
        importer.publish("m.x", b"x")
        assert [event.subject for event in importer.settle() if isinstance(event, Message)] == [expected]


def test_an_import_waits_for_its_exporter(server: Server, admin: RawClient, importer: RawClient) -> None:
    later = OPERATOR.account("L", exports=OPEN)
    update(admin, IMPORTER, imports=imports(account=later))
    assert update(admin, later) == (200, "jwt updated")
    update(admin, later, exports=OPEN)
    update(admin, IMPORTER, imports=imports(account=later), tags=["again"])
    with connected(server, later.user()) as exporter:
        assert heard(importer, exporter) == ["news.x"]
