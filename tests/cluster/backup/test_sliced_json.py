"""JSON that is read a member at a time says what a parser of the whole says, and no step reads much of it."""

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetraft.cluster.backup import sliced_json
from jetraft.cluster.backup.sliced_json import SlicedJson

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5), max_leaves=30
)
LAYOUTS: list[dict[str, Any]] = [{}, {"indent": 3}, {"ensure_ascii": False}, {"separators": (" , ", " :\t")}]


@pytest.fixture(autouse=True)
def _small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sliced_json, "WINDOW_BYTES", 7)


def whole(text: SlicedJson, shape: Any) -> Any:
    """The value that starts here, taken apart as far as its shape is known."""
    if isinstance(shape, dict):
        return {key: whole(text, shape[key]) for key in text.members()}
    if isinstance(shape, list):
        return [whole(text, shape[place]) for place, _ in enumerate(text.items())]
    return text.value()


@given(value=VALUES, layout=st.sampled_from(LAYOUTS))
def test_a_text_says_the_same_in_parts(value: Any, layout: dict[str, Any]) -> None:
    body = json.dumps(value, **layout).encode()
    for shape in (value, None):
        text = SlicedJson(body)
        assert whole(text, shape) == value
        text.finish()


@given(value=VALUES, layout=st.sampled_from(LAYOUTS))
def test_what_is_passed_over_ends_where_it_ends(value: Any, layout: dict[str, Any]) -> None:
    text = SlicedJson(json.dumps([value, "next"], **layout).encode())
    items = text.items()
    next(items)
    list(text.skip())
    next(items)
    assert text.value() == "next"
    assert list(items) == []
    text.finish()


def passed_over(body: bytes) -> SlicedJson:
    text = SlicedJson(body)
    list(text.skip())
    text.finish()
    return text


@given(st.binary(max_size=30) | st.text(alphabet='[]{},:"\\ 01e-.tru', max_size=30).map(str.encode))
def test_what_is_no_json_is_refused_and_nothing_else(body: bytes) -> None:
    try:
        orjson.loads(body)
    except ValueError as error:
        if "surrogate" not in str(error):  # which the standard library reads
            with pytest.raises(ValueError, match=r"."):
                passed_over(body)
    else:
        passed_over(body)


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 200,
        b'{"a":' * 200,
        b"[" * 100_000,
        b'["' + b"a" * (4 << 20) + b'"]',
        b"[NaN]",
        b'{"a" 1}',
        b"{1:2}",
        b"[1,]",
        b'{"a":1,}',
        b'"\xff"',
        b"[1] 2",
    ],
)
def test_what_cannot_be_read_in_steps_is_refused(body: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    with pytest.raises(ValueError, match=r"."):
        passed_over(body)


def test_a_step_is_of_some_thousand_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    text = SlicedJson(orjson.dumps({"rows": [{"n": number} for number in range(100_000)], "none": [[]] * 100_000}))

    def read() -> Iterator[int]:
        for _ in text.skip():
            yield text._passed + text._at

    places = [0, *read()]
    steps = [after - before for before, after in pairwise(places)]
    assert len(steps) > 50
    assert max(steps) < 2 * sliced_json.STEP_CHARS
