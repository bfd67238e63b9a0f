"""What two correct servers may say differently: times, identities, addresses. Everything else must be equal.

A normalised value keeps its type and its zero: a missing time, an empty id or a wrong format stays visible.
"""

import json
import re
from typing import Any

ZERO_TIME = "0001-01-01T00:00:00Z"
TIME = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)$")
ACK_V1 = re.compile(r"^(\$JS\.ACK\.[^.]+\.[^.]+\.\d+\.\d+\.\d+\.)\d{18,20}(\.\d+)$")
ACK_V2 = re.compile(r"^(\$JS\.ACK\.[^.]+\.)[^.]+(\.[^.]+\.[^.]+\.\d+\.\d+\.\d+\.)\d{18,20}(\.\d+)(?:\.[^.]+)?$")
SERVICE = re.compile(r"^_R_\.[0-9A-Za-z]+\.[0-9A-Za-z]+$")
FLOW = re.compile(r"^(\$JS\.FC\.[^.]+\.[^.]+\.).+$")

UPLOAD = re.compile(r"^(\$JS\.SNAPSHOT\.RESTORE\.[^.]+\.)\w+$")

IDENTITIES = frozenset({
    "server_id", "git_commit", "go", "xkey", "nonce", "raft_group", "leader", "peer", "host", "client_ip", "id",
    "server",
})  # fmt: skip
NUMBERS = frozenset({"port", "client_id", "cid", "active", "pause_remaining", "ack_time", "rtt", "id"})
ADDRESSES = frozenset({"connect_urls"})
NOT_COMPARED = frozenset({"total", "errors"})  # of the account's "api" counters only


def value(key: str, given: Any, parent: str = "") -> Any:
    """One JSON value, with the key that it stands under."""
    if isinstance(given, dict):
        return {name: value(name, given[name], key) for name in sorted(given)}
    if key == "sources" and isinstance(given, list) and all("lag" in item for item in given):
        return [
            value(key, item) for item in sorted(given, key=lambda item: str(item["name"]))
        ]  # in the order of a Go map
    if isinstance(given, list):
        return sorted(f"<{key}>" for _ in given) if key in ADDRESSES else [value(key, item, parent) for item in given]
    if isinstance(given, bool) or given is None:
        return given
    if isinstance(given, int | float):
        counter = parent == "api" and key in NOT_COMPARED
        return f"<{key}>" if counter or (key in NUMBERS and given) else given
    return text(key, given)


def text(key: str, given: str) -> str:
    """One JSON string."""
    if key in IDENTITIES and given:
        return f"<{key}>"
    if UPLOAD.match(given):
        return UPLOAD.sub(r"\1<id>", given)
    if TIME.match(given) and given != ZERO_TIME:
        return "<time>" if given.endswith("Z") else f"<time not UTC: {given}>"
    return given


def reply(given: str) -> str:
    """The reply subject of a delivered message, without its time and its account hash."""
    for pattern, shape in (
        (ACK_V1, r"\1<ts>\2"),
        (ACK_V2, r"\1<account>\2<ts>\3"),
        (FLOW, r"\1<token>"),
        (SERVICE, "_R_.<token>"),
    ):
        if pattern.match(given):
            return pattern.sub(shape, given)
    return given


def header(name: str, given: str) -> str:
    """One header field's value."""
    if name == "Nats-Request-Info":
        told = {key: item for key, item in json.loads(given).items() if key != "rtt"}  # there once it is measured
        return json.dumps(value("", told | ({"id": "<id>"} if told.get("id") else {})))
    if name in ("Nats-Subject", "Nats-Consumer-Stalled"):
        return reply(given)
    if name == "Nats-Stream-Identity":
        return "<identity>"
    if name == "Nats-Stream-Source":
        return re.sub(r" \w{8}$", " <identity>", given)
    if name == "Nats-Time-Stamp":
        return "<time>" if TIME.match(given) else f"<not a time: {given}>"
    return given
