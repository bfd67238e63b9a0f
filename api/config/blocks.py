"""Blocks of a configuration file: a table from keys to what each of them sets.

Every error names the place, `file:line:column`, and the key. A key of nats-server's that is not served yet is refused
as that, any other as unknown.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from jetraft.api.config.not_served import NOT_SERVED
from jetraft.api.config.settings import OptionsError, Settings
from jetraft.api.config.values import host_port, table

Apply = Callable[[Settings, Any], None]


class PlacedError(OptionsError):
    """An OptionsError whose text begins with the place."""


def put(setting: str, convert: Callable[[str, Any], Any], key: str | None = None) -> Apply:
    """A key that is one setting; `key` is how the file spells it, where that differs."""

    def apply(settings: Settings, value: object) -> None:
        settings[setting] = convert(key or setting, value)

    return apply


def put_address(host: str, port: str) -> Apply:
    """A key that is `host:port`, where the host may be left out."""

    def apply(settings: Settings, value: object) -> None:
        given_host, settings[port] = host_port(value)
        if given_host:
            settings[host] = given_host

    return apply


def spelled(apply: Apply, *keys: str) -> dict[str, Apply]:
    """One setting with several names."""
    return dict.fromkeys(keys, apply)


def apply_all(name: str, value: object, keys: Mapping[str, Apply], settings: Settings) -> None:
    """Apply every key of a block but variables. Raises PlacedError at the first that is wrong."""
    block = table(name, value)
    for key, given in block.given(keys):
        apply = keys.get(key.lower(), partial(refuse, name, key))
        try:
            apply(settings, given)
        except PlacedError:
            raise
        except OptionsError as error:
            raise PlacedError(f"{block.place(key)}: {error}") from error


def refuse(name: str, key: str, _settings: Settings, _value: object) -> None:
    """Say that a key of a block is not served, or is unknown."""
    within = f" in {name}" if name else ""
    if key.lower() in NOT_SERVED.get(name, ()):
        raise OptionsError(f'"{key}"{within} is not served by jetraft yet')
    raise OptionsError(f'unknown field "{key}"{within}')
