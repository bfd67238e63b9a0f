"""Who asks, as the node says where a request enters: nothing that a client puts there counts."""

import pytest

from jetraft.api.jetstream.handlers.asking import REQUEST_INFO, client_of, with_client
from jetraft.store.model import message

CLIENT = {"acc": "A", "id": 7, "name": "line\r\nNats-Other: 1"}
FORGED = message.build({REQUEST_INFO: b'{"acc":"B"}', b"X": b"1"})


@pytest.mark.parametrize("hdr", [b"", b"no headers", message.build({b"X": b"1"}), FORGED])
def test_what_the_node_says_is_read_again(hdr: bytes) -> None:
    told = with_client(hdr, CLIENT)
    assert message.valid_block(told)
    assert client_of(told, "A") == CLIENT
    assert message.get(told, b"Nats-Other") is None


def test_other_headers_stay() -> None:
    assert message.get(with_client(FORGED, CLIENT), b"X") == b"1"


@pytest.mark.parametrize("hdr", [b"", message.build({b"X": b"1"}), message.build({REQUEST_INFO: b"[1]"})])
def test_without_a_word_the_account_is_known(hdr: bytes) -> None:
    assert client_of(hdr, "A") == {"acc": "A"}
