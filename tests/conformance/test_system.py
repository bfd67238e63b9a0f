"""Requests of the system account and of others, to both servers: who answers, with which fields and which errors."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Final

import pytest

from tests.conformance.monitored import KINDS, Stage, differences, staged
from tests.harness.raw import Message

pytestmark = [pytest.mark.reference]
SERVER: Final = (
    "VARZ", "CONNZ", "SUBSZ", "ROUTEZ", "GATEWAYZ", "LEAFZ", "ACCOUNTZ", "JSZ", "HEALTHZ", "STATSZ", "PROFILEZ", "IDZ",
    "RAFTZ", "NOPE",
)  # fmt: skip
ACCOUNT: Final = ("CONNZ", "SUBSZ", "LEAFZ", "JSZ", "INFO", "STATZ", "CONNS", "NOPE")
OWN: Final = ("SERVER.PING.CONNZ", "ACCOUNT.PING.CONNZ", "ACCOUNT.PING.STATZ", "USER.INFO")
BODIES: Final = (
    b"x", b"[]", b'{"server_name":5}', b'{"server_name":"n"}', b'{"tags":["AZ:1"]}', b'{"more":1}', b'{"limit":"x"}',
)  # fmt: skip
NOT_HERE: Final = (
    "js_raft_delete_range",
    "disk_io_wait_stats",
    "default_max_consumers",
    "imports",
    "exports",
    "http_req_stats",
)
System = tuple[str, str, bytes]  # who asks, the subject behind $SYS.REQ., the body


def questions() -> Iterator[System]:
    """All that the reference answers."""
    for page in SERVER:
        yield "four", f"SERVER.PING.{page}", b""
        yield "four", f"SERVER.<id>.{page}", b""
    yield "four", "SERVER.PING", b""
    yield "one", "SERVER.PING", b""
    yield "one", "SERVER.PING.VARZ", b""
    for page in ACCOUNT:
        yield "four", f"ACCOUNT.A.{page}", b""
        yield "one", f"ACCOUNT.A.{page}", b""
    for subject in ("ACCOUNT.NONE.INFO", "ACCOUNT.NONE.JSZ", "ACCOUNT.B.JSZ", "ACCOUNT.SYS.INFO", "ACCOUNT.PING.STATZ"):
        yield "four", subject, b""
    for subject in OWN:
        for name in ("one", "two", "four"):
            if not (name == "four" and "ACCOUNT" in subject):
                yield name, subject, b""
    for body in BODIES:
        yield "four", "SERVER.PING.CONNZ", body
        yield "four", "SERVER.PING.STATSZ", body
        yield "four", "SERVER.PING.HEALTHZ", body
        yield "four", "ACCOUNT.A.SUBSZ", body
        yield "one", "ACCOUNT.PING.STATZ", body
        yield "one", "ACCOUNT.PING.CONNZ", body
    yield "four", "SERVER.PING.CONNZ", b'{"sort":"nix"}'
    yield "four", "SERVER.PING.CONNZ", b'{"filter_subject":"foo"}'
    yield "four", "SERVER.PING.CONNZ", b'{"filter_subject":"foo.x","acc":"A"}'
    yield "four", "SERVER.PING.CONNZ", b'{"state":1,"auth":true}'
    yield "four", "SERVER.PING.CONNZ", b'{"subscriptions":true,"subscriptions_detail":true}'
    yield "four", "SERVER.PING.CONNZ", b'{"cid":-1}'
    yield "four", "SERVER.PING.HEALTHZ", b'{"account":"A","stream":"NO"}'
    yield "four", "SERVER.PING.HEALTHZ", b'{"stream":"S"}'
    yield "four", "SERVER.PING.HEALTHZ", b'{"js-enabled-only":true}'
    yield "four", "SERVER.PING.JSZ", b'{"accounts":true,"streams":true,"consumer":true,"config":true}'
    yield "four", "SERVER.PING.ACCOUNTZ", b'{"account":"A"}'
    yield "four", "SERVER.PING.ACCOUNTZ", b'{"account":"X"}'
    yield "one", "ACCOUNT.PING.STATZ", b'{"accounts":["B"]}'
    for verb in ("KICK", "LDM"):
        yield "four", f"SERVER.<id>.{verb}", b'{"cid":99}'


@pytest.fixture(scope="module")
def stages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Stage]]:
    """One of each kind."""
    with ExitStack() as stack:
        yield [stack.enter_context(staged(kind, tmp_path_factory.mktemp(kind))) for kind in KINDS]


def ask(stage: Stage, question: System, *, more: bytes = b"") -> Message:
    """The answer to one request."""
    name, subject, body = question
    server_id = stage.clients["four"].info["server_id"]
    found = stage.clients[name].request("$SYS.REQ." + subject.replace("<id>", server_id), more or body)
    assert found, question
    return found[0]


def shown(message: Message) -> Any:
    """Its status line, or its document."""
    return message.status or json.loads(message.payload)


@pytest.mark.parametrize("question", list(questions()), ids=str)
def test_a_request_is_answered_as_by_the_reference(stages: list[Stage], question: System) -> None:
    theirs, ours = (shown(ask(stage, question)) for stage in stages)
    if isinstance(theirs, str):
        assert ours == theirs
        return
    assert ours.get("error") == theirs.get("error")
    lacks = {path for path in differences(theirs, ours) if not any(name in path for name in NOT_HERE)}
    assert lacks == set()
    if isinstance(theirs.get("data"), dict):
        facts = ("num_connections", "total", "status", "status_code", "user", "account", "account_name", "error")
        names = [name for name in facts if name != "total" or "SUBSZ" not in question[1]]
        if question[1] != "SERVER.PING.PROFILEZ" and "PROFILEZ" not in question[1]:
            assert [ours["data"].get(name) for name in names] == [theirs["data"].get(name) for name in names]


def test_a_server_that_is_not_meant_is_silent(stages: list[Stage]) -> None:
    client = stages[1].clients["four"]
    inbox = client.new_inbox()
    sid = client.subscribe(inbox)
    for body in (
        b'{"server_name":"x"}', b'{"server_name":"n","exact_match":true}', b'{"cluster":"c"}', b'{"host":"10."}',
        b'{"tags":["az"]}', b'{"tags":["az:1","az:2"]}', b'{"domain":"x"}',
    ):  # fmt: skip
        client.publish("$SYS.REQ.SERVER.PING.VARZ", body, reply=inbox)
    client.publish("$SYS.REQ.SERVER.PING.IDZ", b"", reply=inbox)
    [answer] = client.messages(sid, 1)
    assert json.loads(answer.payload).keys() == {"name", "host", "id"}  # requests are answered in order


def test_what_is_not_served_is_refused_by_name(stages: list[Stage]) -> None:
    said = shown(ask(stages[1], ("four", "SERVER.<id>.EXPVARZ", b"")))["error"]["description"]
    assert said.startswith("the variables of Go's runtime have no counterpart")
    assert shown(ask(stages[1], ("four", "SERVER.PING.PROFILEZ", b'{"name":"heap"}')))["data"]["profile"] is None


def test_another_account_learns_nothing_but_about_itself(stages: list[Stage]) -> None:
    for stage in stages:
        answer = shown(ask(stage, ("one", "SERVER.PING.CONNZ", b'{"acc":"B"}')))
        assert {row["name"] for row in answer["data"]["connections"]} == {"one", "three"}
        statz = shown(ask(stage, ("one", "ACCOUNT.PING.STATZ", b'{"accounts":["SYS"],"include_unused":true}')))
        assert [row["acc"] for row in statz["data"]["account_statz"]] == ["A"]


@pytest.mark.parametrize(("verb", "ends"), [("LDM", False), ("KICK", True)])
def test_a_client_is_sent_away(stages: list[Stage], verb: str, ends: bool) -> None:  # noqa: FBT001  (a parameter)
    for stage in stages:
        victim = stage.client("b", "victim")
        body = json.dumps({"cid": victim.info["client_id"]}).encode()
        assert shown(ask(stage, ("four", f"SERVER.<id>.{verb}", body))).keys() == {"server"}
        lines = [line.text for line in (victim.rest() if ends else victim.settle()) if not isinstance(line, Message)]
        said = [json.loads(line[5:]) for line in lines if line.startswith("INFO ")]
        assert any(info.get("ldm") for info in said) is not ends
        assert victim.closed is ends
        stage.clients.pop("victim")
        victim.close()
        if ends:
            stage.wait_closed(victim.info["client_id"])
            closed = stage.server.get("/connz?state=closed")[1]["connections"]
            assert closed[-1]["reason"] == "Kicked"
