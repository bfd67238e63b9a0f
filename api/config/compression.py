"""`compression` of leaf nodes: a word, a boolean, or `{ mode, rtt_thresholds }`."""

from typing import Any, Final

from jetraft.api.config.blocks import Apply, PlacedError, apply_all
from jetraft.api.config.gotypes import go_type
from jetraft.api.config.grammar import Table
from jetraft.api.config.settings import OptionsError, Settings
from jetraft.api.config.values import duration_ns
from jetraft.api.options.compression import OFF, Compression, CompressionError, wish_of
from jetraft.store.model.gotime import format_duration

THRESHOLDS: Final = ("rtt_thresholds", "thresholds", "rtts", "rtt")


def compression(settings: Settings, value: object) -> None:
    """The wish of this server. Raises OptionsError with nats-server's text."""
    mode: Any = value
    rtts_ns: tuple[int, ...] = ()
    if isinstance(value, Table):
        mode, rtts_ns = _of_table(value)
    if isinstance(mode, bool):
        mode = "on" if mode else OFF
    if not isinstance(mode, str):
        raise OptionsError(f'field "compression" should be a boolean or a structure, got {go_type(mode)}')
    shown = f"[{' '.join(map(format_duration, rtts_ns))}]"
    try:
        settings["compression"] = wish_of(mode, rtts_ns, shown)
    except CompressionError as error:
        raise OptionsError(str(error)) from None


def compression_of_links(settings: Settings, value: object) -> None:
    """Links between nodes are not compressed: the value is checked, and a start warns of one that asks for it."""
    found: Settings = {}
    compression(found, value)
    wished: Compression = found["compression"]
    settings["cluster_compression"] = wished.compresses


def _of_table(block: Table) -> tuple[str, tuple[int, ...]]:
    found: dict[str, Any] = {}

    def mode(_settings: Settings, given: object) -> None:
        if not isinstance(given, str):
            raise OptionsError(f"interface conversion: interface {{}} is {go_type(given)}, not string")
        found["mode"] = given

    def thresholds(_settings: Settings, given: object) -> None:
        if not isinstance(given, list):
            raise OptionsError(f"interface conversion: interface {{}} is {go_type(given)}, not []interface {{}}")
        found["rtts"] = tuple(_duration_ns(one) for one in given)

    keys: dict[str, Apply] = {"mode": mode, **dict.fromkeys(THRESHOLDS, thresholds)}
    for key, _ in block.given(keys):
        if key.lower() not in keys:
            raise PlacedError(f'{block.place(key)}: unknown field "{key}"')
    apply_all("compression", block, keys, {})
    return found.get("mode", ""), found.get("rtts", ())


def _duration_ns(given: object) -> int:
    """A duration, which may be negative."""
    if not isinstance(given, str):
        raise OptionsError(f"interface conversion: interface {{}} is {go_type(given)}, not string")
    try:
        length_ns = duration_ns("time", given.removeprefix("-"))
    except OptionsError:
        raise OptionsError(f'time: invalid duration "{given}"') from None
    return -length_ns if given.startswith("-") else length_ns
