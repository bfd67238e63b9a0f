"""A stored message as the API gives it, for people and for programs."""

import base64
from typing import Any

from jetraft.api.cli.client.output import Printer, clean, payload_text


def headers_of(block: bytes) -> dict[str, list[str]]:
    """The headers of a message, in order, of the block that begins with NATS/1.0."""
    found: dict[str, list[str]] = {}
    for line in block.decode(errors="replace").split("\r\n")[1:]:
        name, colon, value = line.partition(":")
        if colon:
            found.setdefault(name, []).append(value.strip())
    return found


def message_json(message: dict[str, Any]) -> dict[str, Any]:
    """The stable form: `payload` is text, or `payload_base64` where it is not UTF-8."""
    payload = base64.b64decode(message.get("data") or "")
    block = base64.b64decode(message.get("hdrs") or "")
    found = {"seq": message["seq"], "subject": message["subject"], "time": message["time"]}
    return found | {"headers": headers_of(block)} | payload_json(payload)


def payload_json(payload: bytes) -> dict[str, str]:
    """`payload`, or `payload_base64` where it is not UTF-8."""
    try:
        return {"payload": payload.decode()}
    except UnicodeDecodeError:
        return {"payload_base64": base64.b64encode(payload).decode()}


def print_message(out: Printer, found: dict[str, Any], *, series: bool = False) -> None:
    """One message; in a series JSON has a line for each."""
    if out.as_json:
        (out.json_line if series else out.json)(found)
        return
    place = "  ".join(
        f"{name} {found[name]}" for name in ("stream", "consumer", "seq", "deliveries", "pending") if name in found
    )
    out.line((f"[{place}]  " if place else "") + found["subject"] + (f"  {found['time']}" if found.get("time") else ""))
    for name, values in found.get("headers", {}).items():
        for value in values:
            out.line(f"  {clean(name)}: {clean(value)}")
    data = found["payload"].encode() if "payload" in found else base64.b64decode(found["payload_base64"])
    out.line(payload_text(data))
