"""How much a body names is the same for both parsers, and what names too much is not parsed by the slow one."""

import json
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetraft.store.model.config import StreamConfigRequest
from jetraft.store.model.encoding import jsoncodec
from jetraft.store.model.encoding.body_items import ITEMS_MAX, ITEMS_OF, LARGE_BYTES, check_items, check_large
from jetraft.store.model.encoding.fields import DecodeError
from jetraft.store.model.encoding.gojson import Object, one_value
from jetraft.store.model.errors import ApiError

KEYS = st.sampled_from(["subjects", "Sources", "subject_transforms", "metadata", "x"])
VALUES = st.recursive(
    st.integers(0, 9) | st.integers(0, 900).map(lambda count: ["a"] * count),
    lambda inner: st.lists(inner, max_size=40) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=20,
)


def refuses(body: Object | dict[str, object]) -> bool:
    try:
        check_items(body)
    except DecodeError:
        return True
    return False


@given(st.dictionaries(KEYS, VALUES, max_size=5))
def test_both_parsers_count_the_same(document: dict[str, object]) -> None:
    parsed = one_value(json.dumps(document).encode())
    assert isinstance(parsed, Object)
    assert refuses(parsed) == refuses(document)


def broken(_body: bytes) -> Iterator[object]:
    raise AssertionError("the slow parser was asked")


@pytest.mark.parametrize("is_strict", [True, False])
@pytest.mark.parametrize("field", ["subjects", *ITEMS_OF])
def test_what_names_too_much_is_refused_before_it_is_parsed(
    monkeypatch: pytest.MonkeyPatch, field: str, *, is_strict: bool
) -> None:
    monkeypatch.setattr(jsoncodec, "values_of", broken)
    monkeypatch.setattr(jsoncodec, "one_value", broken)
    body = json.dumps({"config": {"name": "S", field: [{"name": "A"}] * (ITEMS_MAX + 1)}}).encode()
    assert len(body) > LARGE_BYTES
    with pytest.raises(ApiError, match=f"more than {ITEMS_MAX} items"):
        jsoncodec.decode_request(StreamConfigRequest, body, is_strict=is_strict, is_asked=True)


def test_a_large_text_that_is_no_json_is_left_to_the_parser_that_knows_the_words_for_it() -> None:
    body = b'{"subjects": [' + b'"a",' * LARGE_BYTES
    check_large(body)
    with pytest.raises(ApiError, match="unexpected EOF"):
        jsoncodec.decode_request(StreamConfigRequest, body, is_asked=True)
