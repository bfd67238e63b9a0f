"""`jetstream { streams }`: what a file declares, and what is wrong with it."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from jetraft.api.config.build import build_options
from jetraft.api.config.file import load_settings
from jetraft.api.config.settings import OptionsError
from jetraft.api.options.options import DeclaredStream


def declared(tmp_path: Path, streams: str) -> tuple[DeclaredStream, ...]:
    path = tmp_path / "n.conf"
    path.write_text(f"jetstream {{ store_dir: s, streams: {streams} }}")
    options = build_options(load_settings(path)).jetstream
    assert options is not None
    return options.streams


def test_a_block_has_the_fields_of_the_api_with_units(tmp_path: Path) -> None:
    streams = '[ { name: A, subjects: ["a.>"], max_age: 24h, duplicate_window: "1m", max_bytes: 10MB } ]'
    (found,) = declared(tmp_path, streams)
    expected: dict[str, Any] = {"name": "A", "subjects": ["a.>"], "max_age": 86_400 * 10**9}
    assert (found.account, found.name) == ("$G", "A")
    assert orjson.loads(found.body) == {**expected, "duplicate_window": 60 * 10**9, "max_bytes": 10 << 20}


def test_blocks_within_blocks_and_accounts(tmp_path: Path) -> None:
    streams = """[
        { name: A, account: HR, metadata: { "jetraft.max_subjects": "5" }
          consumer_limits { inactive_threshold: "1m" } }
        { name: A, placement { tags: [ssd] } }
    ]"""
    one, other = declared(tmp_path, streams)
    assert (one.account, other.account) == ("HR", "$G")
    body = orjson.loads(one.body)
    assert (body["metadata"], body["consumer_limits"]) == (
        {"jetraft.max_subjects": "5"},
        {"inactive_threshold": 60 * 10**9},
    )


@pytest.mark.parametrize(
    ("streams", "text"),
    [
        ("7", "streams: expected a list of blocks"),
        ("[A]", "streams: expected a list of blocks"),
        ("[{name: A}, {name: A}]", 'streams: "A" of account "$G" is there twice'),
        ("[{subjects: [a]}]", "stream name is required and can not contain"),
        ("[{name: A, max_age: 1ms}]", 'streams: "A": max age needs to be >= 100ms'),
        ("[{name: A, max_age: 5m}]", 'max_age: a duration is a text, such as "5m"'),
        ("[{name: A, max_age: soon}]", 'max_age: invalid duration "soon"'),
        ("[{name: A, colour: red}]", 'json: unknown field "colour"'),
        ("[{name: A, max_msgs: many}]", "json: cannot unmarshal string"),
        ("[{name: A, metadata {jetraft.x: 1}}]", 'streams: "A"'),
        ('[{name: A, metadata {"jetraft.x": "1"}}]', "unknown key jetraft.x in the metadata of a stream"),
    ],
)
def test_what_could_not_be_made_is_refused_with_its_place(tmp_path: Path, streams: str, text: str) -> None:
    with pytest.raises(OptionsError) as refused:
        declared(tmp_path, streams)
    assert str(refused.value).startswith(f"{tmp_path}/n.conf:1:")
    assert text in str(refused.value)
