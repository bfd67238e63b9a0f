"""Values whose types nats-server finds out by itself: texts of errors have Go's names of types."""

from jetraft.api.config.grammar import Table
from jetraft.api.config.settings import OptionsError

GO_TYPES = {bool: "bool", int: "int64", float: "float64", str: "string", list: "[]interface {}"}


def go_type(value: object) -> str:
    """How Go names the type of a value of a configuration."""
    return GO_TYPES.get(type(value), "map[string]interface {}")


def wrong_type(value: object, wanted: str) -> OptionsError:
    """The error of a value that nats-server does not check itself."""
    return OptionsError(f"interface conversion: interface {{}} is {go_type(value)}, not {wanted}")


def word(_key: str, value: object) -> str:
    """A string."""
    if not isinstance(value, str):
        raise wrong_type(value, "string")
    return value


def flag(_key: str, value: object) -> bool:
    """A boolean."""
    if not isinstance(value, bool):
        raise wrong_type(value, "bool")
    return value


def number(_key: str, value: object) -> int:
    """An integer."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise wrong_type(value, "int64")
    return value


def items(title: str, value: object) -> list[Table]:
    """The maps of a list."""
    if not isinstance(value, list):
        raise OptionsError(f"{title}s should be an array, got {go_type(value)}")
    for item in value:
        if not isinstance(item, Table):
            raise OptionsError(f"{title} Items should be a map with type entry, got {go_type(item)}")
    return value
