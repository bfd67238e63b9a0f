"""Decoding and encoding at the JSON border; what nats-server says to the same bodies is in test_parity_json.py."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetraft.store.model.config import (
    AckPolicy,
    ConsumerConfig,
    CreateConsumerRequest,
    DiscardPolicy,
    Placement,
    StreamConfig,
    StreamConfigRequest,
    StreamSource,
    SubjectTransform,
)
from jetraft.store.model.encoding.gojson import BODY_BYTES_MAX, DEPTH_MAX, VALUES_MAX, Object, parse_values
from jetraft.store.model.encoding.jsoncodec import (
    decode_base64,
    encode,
    encode_base64,
    is_empty_request,
    is_object_or_array,
)
from jetraft.store.model.errors import ApiError
from jetraft.store.model.gosyntax import explain_json

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
texts = st.text(max_size=8)
int64s = st.integers(-(1 << 63), (1 << 63) - 1)
transforms = st.builds(SubjectTransform, src=texts, dest=texts)
stream_configs = st.builds(
    StreamConfig,
    name=texts,
    subjects=st.lists(texts, max_size=3).map(tuple),
    discard=st.sampled_from(DiscardPolicy),
    max_msgs=int64s,
    max_msg_size=st.integers(-(1 << 31), (1 << 31) - 1),
    first_seq=st.integers(0, (1 << 64) - 1),
    placement=st.none() | st.builds(Placement, cluster=texts, tags=st.lists(texts, min_size=1, max_size=2).map(tuple)),
    mirror=st.none()
    | st.builds(
        StreamSource,
        name=texts,
        opt_start_time=st.none() | st.integers(0, 1 << 60),
        subject_transforms=st.lists(transforms, max_size=2).map(tuple),
    ),
    sealed=st.booleans(),
    metadata=st.dictionaries(texts, texts, max_size=3),
)


def model_of(value: object) -> object:
    """A parsed value as json.loads would give it."""
    if isinstance(value, Object):
        return {key: model_of(item) for key, item in value}
    if isinstance(value, list):
        return [model_of(item) for item in value]
    return value


@given(json_values)
def test_valid_json_parses_as_elsewhere(value: object) -> None:
    body = json.dumps(value, ensure_ascii=False).encode()

    assert [model_of(found) for found in parse_values(body)] == [json.loads(body, parse_int=str, parse_float=str)]


@given(st.binary(max_size=40) | st.text(alphabet='{}[]",:\\u0123e.-tfn ', max_size=30).map(str.encode))
def test_any_body_gives_an_object_or_an_answer(body: bytes) -> None:
    fault: ApiError | None = None
    try:
        assert isinstance(CreateConsumerRequest.from_json(body).config, ConsumerConfig)
    except ApiError as error:
        fault = error

    assert fault is None or (fault.err_code == 10025 and fault.description.startswith("invalid JSON: "))


@given(st.text(alphabet='{}[]",:\\u0123e.-tfn \n', max_size=30))
def test_the_explanation_agrees_with_the_parser(text: str) -> None:
    """What the fast parser takes has no fault, as far as the slow walk can see; what it refuses has one."""
    try:
        json.loads(text)
    except ValueError:
        return
    assert explain_json(text, 0) == "exceeded max depth"


@given(stream_configs)
def test_a_configuration_comes_back(config: StreamConfig) -> None:
    assert StreamConfig.from_json(encode(config)) == config


@given(
    st.builds(ConsumerConfig, ack_policy=st.sampled_from(AckPolicy), backoff=st.lists(int64s, max_size=3).map(tuple))
)
def test_a_consumer_configuration_comes_back(config: ConsumerConfig) -> None:
    assert ConsumerConfig.from_json(encode(config)) == config


def test_an_embedded_configuration_stands_beside_the_other_fields() -> None:
    request = StreamConfigRequest.from_json(b'{"name":"A","pedantic":true,"NAME":"B"}')

    assert request == StreamConfigRequest(config=StreamConfig(name="B"), pedantic=True)
    assert list(request.to_json_dict())[-1] == "pedantic"


def test_key_folding_stays_within_one_character() -> None:
    assert StreamConfig.from_json('{"\u017fubjects":["a"]}'.encode()).subjects == ("a",)  # the long s folds to s
    with pytest.raises(ApiError, match="unknown field"):
        StreamConfig.from_json('{"\u00dfubjects":["a"]}'.encode())


@pytest.mark.parametrize(
    "body",
    [
        b" " * (BODY_BYTES_MAX + 1),
        b"[" * (DEPTH_MAX + 1) + b"]" * (DEPTH_MAX + 1),
        b'{"name":' + b"[" * 5000 + b"]" * 5000 + b"}",
        b'{"a":' * 900 + b'"\\u0041"' + b"}" * 900,
        b"{}" * (VALUES_MAX + 1),
        b'{"name":"' + b"x" * (1 << 17),
        b"[" * (1 << 20),
    ],
)
def test_bodies_beyond_the_caps_are_refused(body: bytes) -> None:
    with pytest.raises(ApiError, match="invalid JSON"):
        StreamConfigRequest.from_json(body)


@pytest.mark.parametrize(
    ("body", "empty"),
    [(b"", True), (b"{}", True), (b" { } ", True), (b"x", False), (b"[]", False), (b'{"a":1}', False)],
)
def test_empty_requests(body: bytes, empty: bool) -> None:  # noqa: FBT001
    assert is_empty_request(body) == empty


def test_bodies_that_list_requests_read() -> None:
    assert is_object_or_array(b' \r\n{"a"')
    assert is_object_or_array(b"[")
    assert not is_object_or_array(b"x{")
    assert not is_object_or_array(b"")


@given(st.binary(max_size=50))
def test_base64_comes_back(data: bytes) -> None:
    assert decode_base64(encode_base64(data)) == data


@pytest.mark.parametrize("text", ["a", "a===", "ab c", "é", "YQ"])
def test_texts_that_are_not_base64(text: str) -> None:
    assert decode_base64(text) is None


@given(json_values | st.dictionaries(st.text(), st.integers() | st.text(st.characters(exclude_categories=()))))
def test_whatever_an_answer_holds_it_is_encoded(value: object) -> None:
    json.loads(encode(value))


def test_what_json_of_64_bits_does_not_hold_becomes_the_nearest_that_it_does() -> None:
    body: dict[str, Any] = {"a": [1 << 70, -(1 << 70)], "b": "\ud800x", "c": (True, 2)}
    assert encode(body) == '{"a":[18446744073709551615,-9223372036854775808],"b":"\ufffdx","c":[true,2]}'.encode()


def test_plain_values_are_encoded_compactly() -> None:
    body: dict[str, Any] = {"a": [1, "é", None], "b": (1 << 64) - 1}
    assert encode(body) == '{"a":[1,"é",null],"b":18446744073709551615}'.encode()
