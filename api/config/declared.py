"""`jetstream { streams: [ ... ] }`: streams that are made at the start where they are absent.

Each is a block with the fields of STREAM.CREATE, and an `account` where it is not `$G`. Durations are texts such as
"24h"; sizes may have a suffix. A stream that could not be made is found at the start.
"""

from typing import Any, Final

import orjson

from jetraft.api.config.grammar import Table
from jetraft.api.config.settings import OptionsError, Settings
from jetraft.api.config.values import duration_ns, text
from jetraft.api.options.options import DeclaredStream
from jetraft.store.model.api_error import ApiError
from jetraft.store.model.config import StreamConfig
from jetraft.store.model.encoding.jsoncodec import decode_request
from jetraft.store.model.extensions import check_stream_extensions
from jetraft.store.model.ids import GLOBAL_ACCOUNT
from jetraft.store.model.validation.validate import check_stream_create_request, normalise_stream

DURATIONS: Final = frozenset({"max_age", "duplicate_window", "subject_delete_marker_ttl", "inactive_threshold"})


def streams(settings: Settings, value: object) -> None:
    """The list of blocks. Raises OptionsError."""
    if not isinstance(value, list) or not all(isinstance(one, Table) for one in value):
        raise OptionsError("streams: expected a list of blocks")
    found = [_stream(dict(one)) for one in value]
    names = [(one.account, one.name) for one in found]
    for account, name in names:
        if names.count((account, name)) > 1:
            raise OptionsError(f'streams: "{name}" of account "{account}" is there twice')
    settings["declared_streams"] = tuple(found)


def _stream(block: dict[str, Any]) -> DeclaredStream:
    account = text("account", block.pop("account", GLOBAL_ACCOUNT))
    name = str(block.get("name", ""))
    try:
        body = orjson.dumps(_plain(block))
        config = decode_request(StreamConfig, body)
        check_stream_create_request(config.name, config)
        config = normalise_stream(config)
        check_stream_extensions(config)
    except ApiError as error:
        raise OptionsError(f'streams: "{name}": {error.description}') from error
    except orjson.JSONEncodeError as error:
        raise OptionsError(f'streams: "{name}": {error}') from error
    return DeclaredStream(account=account, name=config.name, body=body)


def _plain(value: object, key: str = "") -> Any:
    """The same as JSON, durations as nanoseconds."""
    if isinstance(value, dict):
        return {name: _plain(one, name) for name, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if key not in DURATIONS:
        return value
    if not isinstance(value, str):
        raise OptionsError(f'{key}: a duration is a text, such as "5m"')  # the number 5m is five million
    return duration_ns(key, value)
