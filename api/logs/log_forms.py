"""The forms of log lines for programs: logfmt (`key=value`) and JSON, one line an event.

`time`, `level`, `pid` and `msg` are in each line; of an event also `event`, its kind, and its fields
(store/model/events.py). `msg` is the text of the usual form.
"""

import json
import os
import re
import time
from collections.abc import Mapping
from typing import Final

from jetraft.store.model.events import Field
from jetraft.store.model.gotime import format_time

JSON: Final = "json"  # the other one is logfmt
LEVELS: Final = {"FTL": "fatal", "ERR": "error", "WRN": "warn", "INF": "info", "DBG": "debug", "TRC": "trace"}
OWN: Final = ("time", "level", "pid", "event", "msg")  # no event has fields of these names
BARE: Final = re.compile(r"[A-Za-z0-9_.:/$@>+*,~%-]+")


def formed(form: str, label: str, text: str, event: str, fields: Mapping[str, Field]) -> str:
    """One line, without its end."""
    head: dict[str, Field] = {"time": format_time(time.time_ns()), "level": LEVELS[label], "pid": os.getpid()}
    row = {**head, **({"event": event} if event else {}), "msg": text, **fields}
    if form == JSON:
        return json.dumps(row, ensure_ascii=False).encode("utf-8", "backslashreplace").decode()
    return " ".join(f"{key}={_value(value)}" for key, value in row.items())


def _value(value: Field) -> str:
    if not isinstance(value, str):
        return str(value)
    return value if BARE.fullmatch(value) else json.dumps(value)
