"""`accounts { A { msg_trace: "subject" } }`, or `{ dest, sampling }`: where messages with `traceparent` are traced to.

Keys and texts of errors are nats-server's.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from jetraft.api.config.blocks import PlacedError
from jetraft.api.config.grammar import Table
from jetraft.api.config.settings import OptionsError, Settings
from jetraft.store.model.gosyntax import go_quote
from jetraft.store.model.subject import valid_publish_subject

PERCENT = 100
GO_TYPES = {bool: "bool", int: "int64", float: "float64", str: "string", list: "[]interface {}"}


def go_type(value: object) -> str:
    """Go's name for the type of a value."""
    return GO_TYPES.get(type(value), "map[string]interface {}")


def message_trace(key: str, settings: Settings, value: object) -> None:
    """Read the destination, and how many messages of a hundred are traced."""
    if isinstance(value, str):
        settings["trace_dest"] = destination(key, value)
        return
    if not isinstance(value, Table):
        text = f'Expected account message trace "{key}" to be a string or a map/struct, got {go_type(value)}'
        raise OptionsError(text)
    for name, given in value.given(FIELDS):
        try:
            apply = FIELDS.get(name.lower(), partial(unknown, key))
            apply(settings, name, given)
        except OptionsError as error:
            raise PlacedError(f"{value.place(name)}: {error}") from error
    if "trace_sampling" in settings and not settings.get("trace_dest"):
        raise OptionsError("Trace destination sampling ignored since no destination was set")


def put_destination(settings: Settings, key: str, value: object) -> None:
    """The field `dest`."""
    settings["trace_dest"] = destination(key, value)


def put_sampling(settings: Settings, key: str, value: object) -> None:
    """The field `sampling`."""
    settings["trace_sampling"] = sampling(key, value)


FIELDS: Mapping[str, Callable[[Settings, str, Any], None]] = {"dest": put_destination, "sampling": put_sampling}


def unknown(key: str, _settings: Settings, name: str, _value: object) -> None:
    """Any other field."""
    raise OptionsError(f'Unknown field {go_quote(name)} parsing account message trace map/struct "{key}"')


def destination(key: str, value: object) -> str:
    """A subject to publish to."""
    if not isinstance(value, str):
        raise OptionsError(f"Field {go_quote(key)} should be a string, got {go_type(value)}")
    if not valid_publish_subject(value.encode()):
        raise OptionsError(f"Trace destination {go_quote(value)} is not valid")
    return value


def sampling(key: str, value: object) -> int:
    """A number from 1 to 100, or the same with a sign of percent."""
    if isinstance(value, str):
        digits = value.removesuffix("%")
        if not digits.isascii() or not digits.lstrip("+-").isdigit():
            raise OptionsError(f"Invalid trace destination sampling value {go_quote(value)}")
        number = int(digits)
    elif isinstance(value, int) and not isinstance(value, bool):
        number = value
    else:
        wrong = f"Trace destination sampling field {go_quote(key)} should be an integer or a percentage"
        raise OptionsError(f"{wrong}, got {go_type(value)}")
    if not 0 < number <= PERCENT:
        raise OptionsError(f"Ttrace destination sampling value {number} is invalid, needs to be [1..100]")
    return number
