"""Switches of nats-server 2.15: which are in force, and how a start and the pages tell of them."""

from collections.abc import Iterator
from typing import Final

DEFAULTS: Final = {
    "js_ack_fc_v2": False,
    "js_api_reply_v2": False,
    "js_raft_delete_range": True,  # of nats-server's own log
    "js_snapshot_sources": False,
}
OF_NO_EFFECT: Final = ("js_raft_delete_range",)
WORDS: Final = {(True, True): "enabled", (True, False): "opt-out", (False, True): "opt-in", (False, False): "disabled"}


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
