"""Blocks of what is not served, where they ask for nothing: those are read, as in nats-server, and any other refused.

`gateway {}` and `mqtt {}` open no listener there either, `ocsp: false` staples nothing, and a cache of answers about
certificates stays empty where none are asked for. Texts of errors are nats-server's.
"""

from collections.abc import Mapping
from typing import Final

from jetraft.api.config.blocks import Apply, apply_all, put
from jetraft.api.config.gotypes import go_type
from jetraft.api.config.grammar import Table
from jetraft.api.config.settings import OptionsError, Settings
from jetraft.api.config.values import cipher, integer, secret_text, text

TPM_KEYS: Final[Mapping[str, Apply]] = {
    "keys_file": put("keys_file", text),
    "encryption_password": put("encryption_password", secret_text),
    "srk_password": put("srk_password", secret_text),
    "pcr": put("pcr", integer),
    "cipher": put("cipher", cipher),
}
TPM_MISSING: Final = "Can't start JetStream: TPM functionality is not supported on this platform"


def empty(name: str) -> Apply:
    """A block that is served as long as nothing is in it."""

    def apply(_settings: Settings, value: object) -> None:
        if not isinstance(value, Table):
            raise OptionsError(f"Expected {name} to be a map, got {go_type(value)}")
        if value.given(()):
            raise OptionsError(f'"{name}" is not served by jetraft yet')

    return apply


def ocsp(_settings: Settings, value: object) -> None:
    """`false`, or `{ mode: never }`."""
    if not isinstance(value, bool | Table):
        raise OptionsError(f"error parsing ocsp config: unsupported type {go_type(value)}")
    mode = value.get("mode", "auto") if isinstance(value, Table) else "auto" if value else "never"
    if str(mode).lower() != "never":
        raise OptionsError('"ocsp" is not served by jetraft yet')


def ocsp_cache(_settings: Settings, value: object) -> None:
    """Any: what would fill it is refused."""
    if not isinstance(value, bool | Table):
        raise OptionsError(f"error parsing tags: unsupported type {go_type(value)}")


def tpm(_settings: Settings, value: object) -> None:
    """A TPM that keeps the key of the store: nats-server has it on Windows alone, and says so in these words."""
    if not isinstance(value, Table):
        raise OptionsError(f"Expected a map to define JetStreamLimits, got {go_type(value)}")
    found: Settings = {}
    apply_all("jetstream.tpm", value, TPM_KEYS, found)
    if found.get("keys_file"):
        raise OptionsError(TPM_MISSING)


def prof_port(_settings: Settings, value: object) -> None:
    """A port for profiles of Go, or 0 for none."""
    if integer("prof_port", value):
        raise OptionsError('"prof_port" is not served by jetraft yet')


TOP: Final[Mapping[str, Apply]] = {
    "gateway": empty("gateway"),
    "mqtt": empty("mqtt"),
    "prof_port": prof_port,
    "ocsp": ocsp,
    "ocsp_cache": ocsp_cache,
}
