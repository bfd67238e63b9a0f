"""Write docs/logs.md from store/model/events.py: `python tools/gen_logs.py`; `--check` compares."""

# ruff: noqa: INP001, E501  (a script, not part of a package; rows of a table)

import difflib
import logging
import sys
from pathlib import Path
from typing import Final

from jetraft.store.model.events import BURST, KINDS, LINES_LEFT_OUT, PER_HOUR, EventKind

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "logs.md"
LEVELS: Final = {logging.INFO: "info", logging.WARNING: "warn", logging.ERROR: "error"}
HEAD: Final = f"""# Log events

Made by `make docs` from `store/model/events.py`; do not edit. It lists each kind of event that the log of a server
has, with its level, its text, its fields and the limit of its lines.

One event is one line. `log_format` chooses its form; a reload changes it:

| `log_format` | A line |
|---|---|
| `text` | `[7] 2026/01/02 03:04:05.000000 [INF] stream $G > ORDERS: n2 leads in term 12` |
| `logfmt` | `time=2026-01-02T03:04:05.000000000Z level=info pid=7 event=stream_leader msg="stream $G > ORDERS: n2 leads in term 12" account=$G stream=ORDERS node=n2 term=12` |
| `json` | `{{"time": "2026-01-02T03:04:05.000000000Z", "level": "info", "pid": 7, "event": "stream_leader", "msg": "…", "account": "$G", "stream": "ORDERS", "node": "n2", "term": 12}}` |

`text` is nats-server's form. `time` is UTC. An event with the field `group`, a Raft group, has `account` and `stream`
as well while the server runs a replica of it, and its text names the stream. `node`, `voters`, `learners` and `members` are names of servers, or ids where a name was
never heard. Lines that are no event have no `event`.
`user` is the name or the public key of a user, `-` where a client has none. No field has a password, a token, a seed or
a payload.

Of each kind {BURST} lines are written at once and {PER_HOUR} an hour in the long run, where the table says nothing
else; the same holds for other lines with the same template. `lines_left_out` says how many lines of a kind were left
out, at most once in ten minutes for each. `jetraft_log_events_total` of `/metrics` counts every event by kind, also those
that have no line.
"""


def limit(kind: EventKind) -> str:
    """Lines at once, and an hour."""
    if kind is LINES_LEFT_OUT:
        return "6 an hour for each kind"
    return "" if (kind.burst, kind.per_hour) == (BURST, PER_HOUR) else f"{kind.burst}, {kind.per_hour} an hour"


def page() -> str:
    """The text of the page."""
    parts = [HEAD, "\n| Event | Level | Text | When | More fields | Limit |\n|---|---|---|---|---|---|\n"]
    for kind in KINDS:
        text = kind.text.replace("|", "\\|")
        more = ", ".join(f"`{name}`" for name in kind.more)
        row = (f"`{kind.name}`", LEVELS[kind.level], f"`{text}`", kind.about, more, limit(kind))
        parts.append(f"| {' | '.join(row)} |\n")
    return "".join(parts)


def main(arguments: list[str]) -> int:
    """Write the page, or say how it differs."""
    wanted = page()
    found = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    if arguments == ["--check"]:
        sys.stdout.writelines(
            difflib.unified_diff(found.splitlines(keepends=True), wanted.splitlines(keepends=True), "found", "wanted")
        )
        return int(found != wanted)
    PAGE.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
