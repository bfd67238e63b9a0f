"""`feature_flags`: switches of nats-server 2.15. One that would differ from jetraft's only way is refused by name."""

from collections.abc import Iterator
from typing import Any, Final

from jetraft.api.config.blocks import PlacedError
from jetraft.api.config.build import OptionsError
from jetraft.api.config.gotypes import go_type
from jetraft.api.config.grammar import Table

DEFAULTS: Final = {
    "js_ack_fc_v2": False,
    "js_api_reply_v2": False,
    "js_raft_delete_range": True,  # of nats-server's own log
    "js_snapshot_sources": False,
}
OF_NO_EFFECT: Final = ("js_raft_delete_range",)
WORDS: Final = {(True, True): "enabled", (True, False): "opt-out", (False, True): "opt-in", (False, False): "disabled"}


def feature_flags(_key: str, value: Any) -> tuple[tuple[str, bool], ...]:
    """Flags by name. Others than nats-server's have no effect there, and none here."""
    if not isinstance(value, Table):
        raise OptionsError(f"error parsing feature flags: unsupported type {go_type(value)}")
    for name, flag in value.items():
        if not isinstance(flag, bool):
            text = f'error parsing feature flag "{name}": expected bool, got {go_type(flag)}'
            raise PlacedError(f"{value.place(name)}: {text}")
        if name not in OF_NO_EFFECT and flag != DEFAULTS.get(name, flag):
            raise PlacedError(f'{value.place(name)}: "feature_flags: {name}" is not served by jetraft yet')
    return tuple(sorted(value.items()))


def flags_in_force(flags: tuple[tuple[str, bool], ...]) -> dict[str, bool]:
    """The value of each switch, as pages and answers say it: but for one that changes nothing here."""
    configured = dict(flags)
    return {name: configured.get(name, usual) for name, usual in DEFAULTS.items() if name not in OF_NO_EFFECT}


def flag_lines(flags: tuple[tuple[str, bool], ...]) -> Iterator[str]:
    """The lines of a start about them."""
    if not flags:
        return
    known = [f"{name} ({WORDS[DEFAULTS[name], flag]})" for name, flag in flags if name in DEFAULTS]
    others = [name for name, _ in flags if name not in DEFAULTS]
    yield "  Feature flags:"
    yield f"    Configured:    {', '.join(known) or 'none'}"
    if others:
        yield f"    Unsupported:   {', '.join(others)}"
