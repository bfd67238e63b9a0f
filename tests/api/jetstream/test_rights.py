"""What a configuration or a header has the server publish is checked against the user who wrote it."""

import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any, Final

import pytest

from jetraft.api.jetstream.rights import written_by
from tests.harness.patience import until
from tests.harness.raw import RawClient
from tests.harness.server import Server

LOGIN: Final[dict[str, Any]] = {"pass": "p"}

CONFIG: Final = """
jetstream { legacy_api: true }
accounts {
  A {
    jetstream: enabled
    users: [
      { user: root, password: p }
      { user: reader, password: p, permissions: {
          publish: [ "$JS.API.CONSUMER.>", "$JS.ACK.>", "$JS.STREAM.>", "s.sched.>", "s.results.*" ]
          subscribe: "_INBOX.>" } }
      { user: denied, password: p, permissions: { publish: { deny: "s.admin" } } }
    ]
    exports: [ { service: "$JS.API.CONSUMER.CREATE.S.>" } ]
  }
  B {
    users: [ { user: b, password: p } ]
    imports: [ { service: { account: A, subject: "$JS.API.CONSUMER.CREATE.S.>" }, to: "make.>" } ]
  }
}
"""
MAY_NOT: Final = 19003


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server("jetraft", directory=tmp_path_factory.mktemp("n1"), config=CONFIG) as server:
        with closing(client(server, "root")) as root:
            config = {"name": "S", "subjects": ["s.>"], "allow_msg_schedules": True, "allow_msg_ttl": True}
            assert "error" not in root.api("STREAM.CREATE.S", config)
            assert "error" not in root.api("STREAM.CREATE.DEAD", {"name": "DEAD", "subjects": ["s_dead.>"]})
        yield server


def client(server: Server, user: str) -> RawClient:
    return RawClient(server.address, **LOGIN, user=user)


def made(client: RawClient, name: str, to: str = "$JS.API.CONSUMER.CREATE.S.", **keys: str) -> Any:
    """The error code of creating a consumer with these keys; None where it is made."""
    metadata = {f"jetraft.{key}": value for key, value in keys.items()}
    config = {"name": name, "durable_name": name, "ack_policy": "explicit", "metadata": metadata}
    (answer,) = client.request(to + name, json.dumps({"stream_name": "S", "config": config}).encode())
    return json.loads(answer.payload).get("error", {}).get("err_code")


@pytest.mark.parametrize(
    ("user", "keys", "error"),
    [
        ("reader", {"strict_acks": "true", "ack_publish": "s.>"}, MAY_NOT),
        ("reader", {"strict_acks": "true", "ack_publish": "s.results.>"}, MAY_NOT),  # more than `s.results.*`
        ("reader", {"strict_acks": "true", "ack_publish": "s.results.*"}, None),
        ("reader", {"strict_acks": "true", "ack_publish": "s.results.a"}, None),
        ("reader", {"max_deliver": "1"}, 10012),  # no key: the request goes on
        ("reader", {"dead_letter": "s_dead"}, MAY_NOT),
        ("denied", {"strict_acks": "true", "ack_publish": "s.>"}, MAY_NOT),  # what is denied is in it
        ("denied", {"strict_acks": "true", "ack_publish": "s.results.>"}, None),
        ("root", {"strict_acks": "true", "ack_publish": "s.>"}, None),
        ("root", {"dead_letter": "s_dead"}, None),
    ],
)
def test_a_consumer_publishes_where_its_creator_may(
    server: Server, user: str, keys: dict[str, str], error: Any
) -> None:
    with closing(client(server, user)) as asking:
        assert made(asking, f"c{abs(hash(str((user, keys))))}", **keys) == error


def test_who_imports_the_creation_of_consumers_may_not_have_them_publish(server: Server) -> None:
    with closing(client(server, "b")) as asking:
        assert made(asking, "b1", "make.", strict_acks="true", ack_publish="s.>") == MAY_NOT
        assert made(asking, "b2", "make.", dead_letter="s_dead") == MAY_NOT
        assert made(asking, "b3", "make.") is None


def test_consumers_of_the_api_of_2020_have_no_keys(server: Server) -> None:
    with closing(client(server, "reader")) as asking, closing(client(server, "root")) as root:
        metadata = {"jetraft.strict_acks": "true", "jetraft.ack_publish": "s.>"}
        config = {"durable_name": "old", "ack_policy": "explicit", "deliver_all": True, "METAdata": metadata}
        body = json.dumps({"stream_name": "S", "config": config}).encode()
        asking.request("$JS.STREAM.S.CONSUMER.old.CREATE", body)
        made_so = root.api("CONSUMER.INFO.S.old")
        assert "jetraft.ack_publish" not in made_so["config"].get("metadata", {})


@pytest.mark.parametrize("header", ["Nats-Schedule-Target", "Jetraft-Publish"])
def test_a_header_that_has_the_server_publish_is_judged_as_a_publish(server: Server, header: str) -> None:
    with closing(client(server, "reader")) as asking:
        for target in ("s.admin", " s.admin\t", "\ts.admin"):
            asking.publish("s.sched.a", b"x", headers=[(header, target)])
            violations = [event for event in asking.settle() if "Permissions Violation" in str(event)]
            assert len(violations) == 1, target
            assert 's.admin"' in str(violations[0])
        asking.publish("s.sched.a", b"x", headers=[(header, "s.results.a")])
        asking.publish("s.sched.a", b"x", headers=[("X-" + header, "s.admin")])
        assert not [event for event in asking.settle() if "Permissions Violation" in str(event)]


def test_a_schedule_of_a_user_who_may_write_to_its_target_is_kept(server: Server) -> None:
    with closing(client(server, "reader")) as asking, closing(client(server, "root")) as root:
        headers = [("Nats-Schedule", "@at 2020-01-01T00:00:00Z"), ("Nats-Schedule-Target", "s.results.now")]
        asking.publish("s.sched.b", b"due", headers=headers)
        asking.settle()
        until(lambda: "error" not in root.api("STREAM.MSG.GET.S", {"last_by_subj": "s.results.now"}))


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (b"", []),
        (b'{"config":{}}', []),
        (b'{"config":{"metadata":{"jetraft.ack_publish":"a.>"}}}', ["a.>"]),
        (b'{"CONFIG":{"Metadata":{"jetraft.ack_publish":"a.>"}}}', ["a.>"]),  # Go's rules for names
        (b'{"config":{"metadata":{"jetraft.dead_letter":"d"}}}', ["d.S.*"]),
        (b'{"config":{"metadata":{"\\u006aetraft.dead_letter":"d"}}}', ["d.S.*"]),
        (b'{"config":{"metadata":{"jetraft.dead_letter":7}}}', []),  # refused where it is carried out
        (b'{"config":{"metadata":"jetraft."', []),
    ],
)
def test_what_a_body_asks_for_is_read_as_it_is_carried_out(body: bytes, found: list[str]) -> None:
    assert written_by("S", body) == found
