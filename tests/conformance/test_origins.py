"""What servers send on a user's behalf, and where it arrives: ways of having something sent, and kinds of receivers.

Every way is told a subject: a reply subject, the deliver subject of a consumer, the destination of a configuration.
Behind those subjects are a subscriber, a stream, a stream of an importing account, a request to the API, another
consumer's acknowledgement and an imported service. nats-server lets most of it through. jetraft does not where it has
not been checked whether the user who named the subject may publish there (cluster/capture/reach.py).
"""

import json
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, Final

import attrs
import pytest

from tests.harness.patience import until
from tests.harness.raw import Message, RawClient
from tests.harness.server import Kind, Server

LOGIN: Final[dict[str, Any]] = {"pass": "p"}

pytestmark = [pytest.mark.reference]
CONFIG: Final = """
accounts {
  A { jetstream: enabled, users: [ { user: a, password: p } ], exports: [ { stream: "exp.>" } ]
      imports: [ { service: { account: B, subject: "svc.>" } } ] }
  B { jetstream: enabled, users: [ { user: b, password: p } ], exports: [ { service: "svc.>" } ]
      imports: [ { stream: { account: A, subject: "exp.>" } } ] }
}
"""
RECEIVERS: Final = ("subscriber", "stream", "imported stream", "api", "ack", "service")
WAYS: Final = (
    "publish", "push", "heartbeat", "pull", "pull status", "ack of an ack", "publish ack", "get", "missing get",
    "api answer", "snapshot", "republish", "trace", "service answer",
)  # fmt: skip
NAMED_BY_REPLY: Final = WAYS[3:10] + WAYS[13:]  # no client may name an ack subject as its reply
ACK_WAIT_NS: Final = 600 * 10**9
JETRAFT: Final = {  # the rest reaches subscribers alone
    "publish": {"stream", "imported stream", "api", "ack", "service"},
    "republish": {"stream", "imported stream"},
    "trace": {"stream", "imported stream", "service"},
}
# A message that has headers, or a payload of its own, acknowledges nothing wherever it arrives.
MORE_IN_REFERENCE: Final = {
    "pull": {"stream", "imported stream"},  # under the subject of the stored message
    "pull status": {"stream", "imported stream", "api", "service"},
    "ack of an ack": {"stream", "imported stream", "api", "service"},
    "publish ack": {"stream", "imported stream", "api", "service"},
    "get": {"stream", "imported stream", "api", "service"},
    "missing get": {"stream", "imported stream", "api", "service"},
    "api answer": {"stream"},
    "snapshot": {"stream", "imported stream", "api", "ack", "service"},
    "republish": {"api", "ack", "service"},
    "trace": {"api"},
    "service answer": {"stream"},
}


@attrs.define(eq=False)
class Stage:
    """A server, both accounts, and who watches what arrives."""

    server: Server
    a: RawClient
    b: RawClient
    watch_a: RawClient
    watch_b: RawClient
    ack_subjects: dict[str, str] = attrs.field(factory=dict)

    def subject(self, way: str, receiver: str) -> str:
        name = way.replace(" ", "_")
        if receiver == "ack":
            return self.ack_subjects[way]
        patterns = {
            "subscriber": "plain.%s", "stream": "v.%s", "imported stream": "exp.%s", "service": "svc.%s",
            "api": "$JS.API.STREAM.DELETE.NONE_%s",
        }  # fmt: skip
        return patterns[receiver] % name

    def consumer(self, name: str, **config: object) -> None:
        body = {"stream_name": "S", "config": {"name": name, **config}}
        assert "error" not in self.a.api(f"CONSUMER.CREATE.S.{name}", body)


@contextmanager
def staged(kind: Kind, directory: Path) -> Iterator[Stage]:
    with ExitStack() as stack:
        server = stack.enter_context(Server(kind, directory=directory, config=CONFIG))
        clients = [RawClient(server.address, **LOGIN, user=user) for user in ("a", "b", "a", "b")]
        a, b, watch_a, watch_b = (stack.enter_context(closing(client)) for client in clients)
        stage = Stage(server, a, b, watch_a, watch_b)
        for name, subject in (("S", "s.>"), ("V", "v.>"), ("K", "k.>")):
            assert "error" not in a.api(
                f"STREAM.CREATE.{name}", {"name": name, "subjects": [subject], "allow_direct": True}
            )
        assert "error" not in b.api("STREAM.CREATE.W", {"name": "W", "subjects": ["exp.>"]})
        for name in ("full", "empty", "acked"):
            stage.consumer(name, durable_name=name, ack_policy="explicit", filter_subject=f"s.{name}")
        for way in WAYS:
            name = f"c_{way.replace(' ', '_')}"
            config = {
                "durable_name": name,
                "ack_policy": "explicit",
                "filter_subject": f"k.{name}",
                "ack_wait": 1 << 40,
            }
            assert "error" not in a.api(f"CONSUMER.CREATE.K.{name}", {"stream_name": "K", "config": config})
            a.acknowledged(f"k.{name}", b"x")
            stage.ack_subjects[way] = a.request(f"$JS.API.CONSUMER.MSG.NEXT.K.{name}", b"1")[0].reply
        a.acknowledged("s.got", b"")
        watch_a.send(b"SUB plain.> 1\r\nSUB $JS.EVENT.ADVISORY.API 2\r\n")
        b.send(b"SUB svc.ask.* ask\r\n")
        watch_b.send(b"SUB svc.* 1\r\n")
        for client in (b, watch_a, watch_b):
            client.settle()
        yield stage


def have_sent(stage: Stage, way: str, receiver: str) -> None:  # noqa: C901, PLR0912  (a list of ways)
    """Have the server send a message without a payload, as far as the way allows it, to the subject of a receiver."""
    a, to = stage.a, stage.subject(way, receiver)
    own = f"{way}_{receiver}".replace(" ", "_")
    if way == "publish":
        a.publish(to)
    elif way == "push":
        stage.consumer(own, ack_policy="none", deliver_subject=to, filter_subject=f"s.{own}")
        a.publish(f"s.{own}")
    elif way == "heartbeat":
        stage.consumer(own, ack_policy="none", deliver_subject=to, filter_subject=f"s.{own}", idle_heartbeat=10**8)
    elif way == "pull":
        a.acknowledged("s.full", b"")
        a.publish("$JS.API.CONSUMER.MSG.NEXT.S.full", b'{"batch":1,"no_wait":true}', reply=to)
    elif way == "pull status":
        a.publish("$JS.API.CONSUMER.MSG.NEXT.S.empty", b'{"batch":1,"no_wait":true}', reply=to)
    elif way == "ack of an ack":
        a.acknowledged("s.acked", b"")
        a.publish(a.request("$JS.API.CONSUMER.MSG.NEXT.S.acked", b"1")[0].reply, b"+ACK", reply=to)
    elif way == "publish ack":
        a.publish("s.any", reply=to)
    elif way == "get":
        a.publish("$JS.API.DIRECT.GET.S.s.got", reply=to)
    elif way == "missing get":
        a.publish("$JS.API.DIRECT.GET.S.s.never", reply=to)
    elif way == "api answer":
        a.publish("$JS.API.STREAM.INFO.S", reply=to)
    elif way == "snapshot":
        assert "error" not in a.api("STREAM.SNAPSHOT.S", {"deliver_subject": to, "no_consumers": True})
    elif way == "republish":
        config = {"name": own, "subjects": [f"r.{own}"], "republish": {"src": f"r.{own}", "dest": to}}
        assert "error" not in a.api(f"STREAM.CREATE.{own}", config)
        a.publish(f"r.{own}")
    elif way == "trace":
        a.publish("s.any", headers=[("Nats-Trace-Dest", to)])
    else:
        a.publish(f"svc.ask.{own}", reply=to)
        a.settle()
        (request,) = stage.b.messages("ask", 1)
        stage.b.publish(request.reply)
        stage.b.settle()


def arrived(stage: Stage) -> dict[str, set[str]]:
    """By way, the receivers that something has reached, those of subscribers left out."""
    found: dict[str, set[str]] = {way: set() for way in WAYS}
    events = [event for event in stage.watch_a.settle() if isinstance(event, Message)]
    audits = [json.loads(event.payload)["subject"] for event in events if audited(event)]
    asked = [event.subject for event in stage.watch_b.settle() if isinstance(event, Message)]
    streams = {"stream": (stage.a, "V"), "imported stream": (stage.b, "W")}
    kept = {
        receiver: client.api(f"STREAM.INFO.{name}", {"subjects_filter": ">"})["state"].get("subjects", {})
        for receiver, (client, name) in streams.items()
    }
    seen: dict[str, object] = {"api": audits, "service": asked, **kept}
    for way in WAYS:
        for receiver, subjects in seen.items():
            assert isinstance(subjects, list | dict)
            if stage.subject(way, receiver) in subjects:
                found[way].add(receiver)
        info = stage.a.api(f"CONSUMER.INFO.K.c_{way.replace(' ', '_')}")
        if info["num_ack_pending"] == 0:
            found[way].add("ack")
    for receiver in streams:
        if "s.full" in kept[receiver]:
            found["pull"].add(receiver)
    return found


def audited(event: object) -> bool:
    return isinstance(event, Message) and event.subject == "$JS.EVENT.ADVISORY.API"


@pytest.mark.parametrize("kind", ["jetraft", "reference"])
def test_what_is_sent_on_a_users_behalf_reaches_what_the_table_says(kind: Kind, tmp_path: Path) -> None:
    with staged(kind, tmp_path) as stage:
        for way in WAYS:
            for receiver in RECEIVERS:
                if receiver != "ack" or way not in NAMED_BY_REPLY:
                    have_sent(stage, way, receiver)
                    stage.a.settle()
        more = MORE_IN_REFERENCE if kind == "reference" else {}
        wanted = {way: JETRAFT.get(way, set()) | more.get(way, set()) for way in WAYS}
        seen: dict[str, set[str]] = {way: set() for way in WAYS}

        def is_complete() -> bool:
            for way, receivers in arrived(stage).items():
                seen[way] |= receivers
            return all(seen[way] >= wanted[way] for way in WAYS)

        until(is_complete)  # what is let through comes within a while
        assert seen == wanted
