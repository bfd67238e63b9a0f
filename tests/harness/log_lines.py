"""What the lines of a server's log say, in each of their forms."""

import json
import re
from typing import Any, Final

import pytest

from jetraft.store.model import events as catalogue
from tests.harness.patience import PATIENCE_S
from tests.harness.process import Process

FORMS: Final = ("text", "logfmt", "json")
KINDS: Final = {kind.name: kind for kind in catalogue.KINDS}
VALUE: Final = re.compile(r'(\w+)=("(?:[^"\\]|\\.)*"|\S*)(?: |$)')


def events(process: Process, form: str, name: str, **fields: object) -> list[dict[str, Any]]:
    """The events of a kind so far that have these fields, with all those that the form has."""
    lines, shown = list(process.lines), {key: str(value) for key, value in fields.items()}
    if form == "text":
        pattern = _pattern(name, shown)
        return [match.groupdict() for line in lines if (match := pattern.search(line))]
    rows = [json.loads(line) if form == "json" else parsed(line) for line in lines if _is_formed(line, form)]
    return [
        row
        for row in rows
        if row.get("event") == name and shown.items() <= {key: str(value) for key, value in row.items()}.items()
    ]


def wait_for_event(process: Process, form: str, name: str, **fields: object) -> dict[str, Any]:
    """The first event of this kind with these fields."""
    process.wait_until(
        lambda: bool(events(process, form, name, **fields)),
        what=f"the log has {name} {fields}",
        timeout_s=PATIENCE_S,
    )
    return events(process, form, name, **fields)[0]


def kinds_in(caplog: pytest.LogCaptureFixture) -> set[str]:
    """The kinds of events that a test without a server has written; those of INFO where it has set that level."""
    return {record.msg.kind.name for record in caplog.records if isinstance(record.msg, catalogue.Event)}


def parsed(line: str) -> dict[str, str]:
    """The fields of a line of logfmt, whose quotes are JSON's."""
    return {match[1]: json.loads(match[2]) if match[2].startswith('"') else match[2] for match in VALUE.finditer(line)}


def _is_formed(line: str, form: str) -> bool:
    """Whether a line is of this form: what Python itself writes is not."""
    return line.startswith("{" if form == "json" else "time=")


def _pattern(name: str, fields: dict[str, str]) -> re.Pattern[str]:
    """What the text of a kind looks like with these fields, with a group for each other one."""

    def group(match: re.Match[str]) -> str:
        return re.escape(fields[match[1]]) if match[1] in fields else f"(?P<{match[1]}>.*?)"

    escaped = re.escape(KINDS[name].text).replace(r"\{", "{").replace(r"\}", "}")
    return re.compile(r"\[(?:INF|WRN|ERR)\] " + re.sub(r"{(\w+)}", group, escaped) + "$")
