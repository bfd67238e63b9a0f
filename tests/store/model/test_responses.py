"""Answers of the API; their bytes are compared with nats-server's in test_parity_json.py."""

import pytest

from jetraft.store.model import errors
from jetraft.store.model.responses import ResponseType, answer, error_answer, page, success
from jetraft.store.model.state import PeerInfo, PubAck, StreamState


def test_an_answer_is_its_type_and_its_parts_in_order() -> None:
    body = answer(ResponseType.STREAM_PURGE, success(), {"purged": 3})

    assert body == b'{"type":"io.nats.jetstream.api.v1.stream_purge_response","success":true,"purged":3}'


def test_views_are_parts_too() -> None:
    body = answer(ResponseType.STREAM_NAMES, page(total=1, offset=0, limit=1024), {"streams": ["S"]})

    assert body == (
        b'{"type":"io.nats.jetstream.api.v1.stream_names_response","total":1,"offset":0,"limit":1024,"streams":["S"]}'
    )
    assert answer(ResponseType.SYSTEM_OVERLOADED, PubAck(stream="S", seq=1)) == (
        b'{"type":"io.nats.jetstream.api.v1.system_overloaded","stream":"S","seq":1}'
    )


@pytest.mark.parametrize("kind", list(ResponseType))
def test_every_type_has_an_error_form(kind: ResponseType) -> None:
    body = error_answer(kind, errors.STREAM_NOT_FOUND.with_values())

    assert kind.type_name == ("io.jetraft.api.v1." if "chain" in kind else "io.nats.jetstream.api.v1.") + kind.value
    head = b'{"type":"%b","error":' % kind.type_name.encode()
    assert body.startswith(head + b'{"code":404,"err_code":10059,"description":"stream not found"}')


def test_an_empty_state_has_gos_zero_times() -> None:
    assert StreamState().to_json_dict() == {
        "messages": 0,
        "bytes": 0,
        "first_seq": 0,
        "first_ts": "0001-01-01T00:00:00Z",
        "last_seq": 0,
        "last_ts": "0001-01-01T00:00:00Z",
        "consumer_count": 0,
    }


def test_attributes_with_units_have_their_json_names() -> None:
    assert PeerInfo(name="n", active_ns=5, peer="p").to_json_dict() == {
        "name": "n",
        "current": False,
        "active": 5,
        "peer": "p",
    }
