"""What arrives where the translated API of 2020 waits for answers, and is no answer of a server."""

import pytest

from jetraft.api.jetstream.legacy_api import LegacyAccount
from tests.cluster.lab import Node


@pytest.mark.parametrize("payload", [b"", b"{", b"[]", b"3", b'{"config":1}', b'{"error":{}}', b"\xff"])
async def test_an_answer_that_no_server_gives_is_told_as_an_error(payload: bytes) -> None:
    node = Node()
    node.subscriptions.add(b"$JS.API.>")
    LegacyAccount(node, b"inbox", lambda _origin, _subject: True)
    node.publish(b"$JS.STREAM.S.INFO", reply=b"_INBOX.r", origin=1)
    (asked,) = node.turn()
    node.publish(asked.reply, payload)
    (answer,) = node.turn()
    assert (answer.to, answer.payload[:6]) == (b"_INBOX.r", b"-ERR '")


@pytest.mark.parametrize(
    ("old", "today"),
    [
        (b"$JS.STREAM.S.DELETE", b"$JS.API.STREAM.DELETE.S"),
        (b"$JS.STREAM.S.CONSUMER.C.DELETE", b"$JS.API.CONSUMER.DELETE.S.C"),
        (b"$JS.STREAM.LIST", b"$JS.API.STREAM.NAMES"),
        (b"$JS.NEXT.S.C", b"$JS.API.CONSUMER.MSG.NEXT.S.C"),
        (b"$JS.STREAM.S.CONSUMER.C.NEXT", b"$JS.API.CONSUMER.MSG.NEXT.S.C"),
    ],
)
async def test_who_asks_is_judged_by_what_the_request_becomes(old: bytes, today: bytes) -> None:
    node = Node()
    node.subscriptions.add(b"$JS.API.>")
    judged: list[tuple[int, bytes]] = []

    def refused(origin: int, subject: bytes) -> bool:
        judged.append((origin, subject))
        return False

    LegacyAccount(node, b"inbox", refused)
    node.publish(old, reply=b"_INBOX.r", origin=7)
    (told,) = node.turn()
    assert judged == [(7, today)]
    assert (told.to, told.payload) == (b"_INBOX.r", b"-ERR 'Permissions Violation for Publish to \"%b\"'" % today)


async def test_what_no_connection_has_sent_is_refused() -> None:
    node = Node()
    node.subscriptions.add(b"$JS.API.>")
    LegacyAccount(node, b"inbox", lambda _origin, _subject: True)
    node.publish(b"$JS.STREAM.S.DELETE", reply=b"_INBOX.r")
    (told,) = node.turn()
    assert told.payload.startswith(b"-ERR 'Permissions Violation")
