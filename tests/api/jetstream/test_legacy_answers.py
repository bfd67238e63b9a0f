"""What arrives where the translated API of 2020 waits for answers, and is no answer of a server."""

import pytest

from jetraft.api.jetstream.legacy_api import LegacyAccount
from tests.cluster.lab import Node


@pytest.mark.parametrize("payload", [b"", b"{", b"[]", b"3", b'{"config":1}', b'{"error":{}}', b"\xff"])
async def test_an_answer_that_no_server_gives_is_told_as_an_error(payload: bytes) -> None:
    node = Node()
    node.subscriptions.add(b"$JS.API.>")
    LegacyAccount(node, b"inbox")
    node.publish(b"$JS.STREAM.S.INFO", reply=b"_INBOX.r")
    (asked,) = node.turn()
    node.publish(asked.reply, payload)
    (answer,) = node.turn()
    assert (answer.to, answer.payload[:6]) == (b"_INBOX.r", b"-ERR '")
