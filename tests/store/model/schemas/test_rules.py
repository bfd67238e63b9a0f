"""The keys of schemas: what they may be, and which schema judges which subject."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from jetraft.store.model.config import StreamConfig, StreamSource
from jetraft.store.model.errors import ApiError
from jetraft.store.model.extensions import NO_STREAM_EXTENSIONS, check_stream_extensions, stream_extensions
from jetraft.store.model.schemas import compiled
from jetraft.store.model.schemas.rules import SCHEMA_BYTES_MAX, SCHEMAS_MAX, SchemaRule, rule_for

ANY = {"jetraft.schema_type": "json", "jetraft.schema": "{}"}


def config(metadata: dict[str, str], **fields: Any) -> StreamConfig:
    return StreamConfig(name="S", subjects=("s.>",), metadata=metadata, **fields)


def test_keys_with_the_same_number_are_one_schema() -> None:
    metadata = ANY | {
        "jetraft.schema.10": "true",
        "jetraft.schema_type.10": "json",
        "jetraft.schema.9": '{"type":"string"}',
        "jetraft.schema_type.9": "json",
        "jetraft.schema_subject.9": "s.*",
        "jetraft.max_subjects": "3",
    }
    found = stream_extensions(config(metadata))
    assert found.max_subjects == 3
    assert [rule.key for rule in found.schemas] == ["jetraft.schema", "jetraft.schema.9", "jetraft.schema.10"]
    assert found.schemas[1] == SchemaRule(kind="json", text='{"type":"string"}', subject="s.*", number="9")
    assert rule_for(found.schemas, b"s.a") is found.schemas[0]
    assert rule_for(found.schemas[1:], b"s.a") is found.schemas[1]
    assert rule_for(found.schemas[1:2], b"s.a.b") is None


@pytest.mark.parametrize(
    ("metadata", "text"),
    [
        ({"jetraft.schema_type": "json"}, "jetraft.schema is missing"),
        ({"jetraft.schema_type.3": "json"}, "jetraft.schema.3 is missing"),
        (ANY | {"jetraft.schema_type": "xml"}, "jetraft.schema_type is json, avro or protobuf, not 'xml'"),
        ({"jetraft.schema.2": "{}"}, "jetraft.schema_type.2 is json, avro or protobuf, not ''"),
        (
            ANY | {"jetraft.schema_subject": "a..b"},
            "jetraft.schema_subject is a subject, with wildcards or without, not 'a..b'",
        ),
        (ANY | {"jetraft.schema": " " * (SCHEMA_BYTES_MAX + 1)}, "jetraft.schema is larger than 32768 bytes"),
        (
            ANY | {"jetraft.schema_message": "M"},
            "jetraft.schema_message names the message of a protobuf schema, and of no other one",
        ),
        (ANY | {"jetraft.schema.0": "{}"}, "unknown key jetraft.schema.0 in the metadata of a stream"),
        (ANY | {"jetraft.schema.100": "{}"}, "unknown key jetraft.schema.100 in the metadata of a stream"),
        (ANY | {"jetraft.schemas": "{}"}, "unknown key jetraft.schemas in the metadata of a stream"),
        (
            {f"jetraft.schema.{n}": "{}" for n in range(1, SCHEMAS_MAX + 2)},
            "a stream has 16 schemas at most, not 17",
        ),
        (
            ANY | {"jetraft.schema": '{"type":7}'},
            "jetraft.schema: /type: not a JSON schema: fits none of the 2 schemas of anyOf",
        ),
    ],
)
def test_a_schema_that_cannot_be_is_refused_by_the_name_of_its_key(metadata: dict[str, str], text: str) -> None:
    with pytest.raises(ApiError) as refused:
        check_stream_extensions(config(metadata))
    assert (refused.value.err_code, refused.value.description) == (10052, text)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"allow_msg_counter": True}, "jetraft.schema is not for streams with counters"),
        ({"mirror": StreamSource(name="O")}, "jetraft.schema_type is for streams without origins"),
        ({"sources": (StreamSource(name="O"),)}, "jetraft.schema_type is for streams without origins"),
    ],
)
def test_streams_that_take_no_publishes_of_clients_have_no_schema(fields: dict[str, Any], text: str) -> None:
    with pytest.raises(ApiError) as refused:
        check_stream_extensions(config(ANY, **fields))
    assert refused.value.description == text


def test_a_schema_without_its_library_is_refused_when_it_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled._compiled.cache_clear()
    monkeypatch.setitem(sys.modules, "jsonschema_rs", None)
    monkeypatch.delitem(sys.modules, "jetraft.store.model.schemas.json_schema", raising=False)
    with pytest.raises(ApiError, match=r"jetraft\.schema: this server has no library for json schemas: pip install"):
        check_stream_extensions(config(ANY))
    compiled._compiled.cache_clear()


def test_reading_what_is_in_force_looks_into_no_schema() -> None:
    """A bad one that nobody has checked is still a schema: it refuses every message."""
    bad = stream_extensions(config(ANY | {"jetraft.schema": "{"})).schemas
    assert len(bad) == 1
    with pytest.raises(compiled.UnusableSchemaError, match=r"jetraft\.schema: not JSON at character 1"):
        compiled.fault_in(bad[0], b"{}")
    assert stream_extensions(config({"owner": "me"})) is NO_STREAM_EXTENSIONS
