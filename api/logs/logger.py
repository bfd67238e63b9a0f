"""Log lines in nats-server's format, which tools parse: `[pid] 2026/01/02 03:04:05.000000 [INF] text`.

With `log_format: logfmt` or `json` they have the forms of api/logs/log_forms.py.
"""

import logging
import os
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol, TextIO

import attrs

from jetraft.api.logs.log_budget import LogBudget
from jetraft.api.logs.syslog import Syslog, open_syslog
from jetraft.api.options.options import TEXT, Options
from jetraft.api.startup.created_files import made_with
from jetraft.store.model.clock import NS_PER_S, Clock
from jetraft.store.model.events import BURST, KINDS, LINES_LEFT_OUT, PER_HOUR, Event, Field
from jetraft.store.model.files.file_modes import LOG_FILE

LINE_CHARS_MAX: Final = 8192  # a control line may be longer than is worth reading
TEMPLATE_CHARS_MAX: Final = 80  # of a line that is no event: so much of its template says which one it is
NODES: Final = frozenset({"node", "voters", "learners", "members"})  # fields with servers
LABELS: Final = ((logging.ERROR, "ERR"), (logging.WARNING, "WRN"), (logging.INFO, "INF"), (0, "DBG"))
ESCAPES: Final = {  # what moves a terminal's cursor or begins another line; a tab does neither
    ord("\r"): "\\r",
    ord("\n"): "\\n",
    **{code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\r\n\t"},
}


@attrs.define
class Logger:
    """Writes lines to one stream, or to syslog, debug lines only with `debug_on`."""

    stream: TextIO = attrs.field(factory=lambda: sys.stderr)
    form: str = TEXT
    with_time: bool = True
    utc: bool = False
    debug_on: bool = False
    trace_on: bool = False
    path: str = ""
    syslog: Syslog | None = None  # it has a time of its own
    size_limit_bytes: int = 0  # of the file, which is then renamed and started again; 0: no limit
    files_max: int = 0  # files to keep, with the one in use; 0: all
    lines: int = 0

    def write(self, label: str, text: str, event: str = "", fields: Mapping[str, Field] | None = None) -> None:
        """Write a line, of an event with its fields, if lines of this level are on."""
        if (label == "DBG" and not self.debug_on) or (label == "TRC" and not self.trace_on):
            return
        printable = text.translate(ESCAPES)
        self.lines += 1
        if self.form != TEXT:
            from jetraft.api.logs.log_forms import formed  # noqa: PLC0415  only servers with another form pay for it

            line = formed(self.form, label, text, event, fields or {})
            if self.syslog is not None:
                self.syslog.write(label, line)
            else:
                self._put(line + "\n")
            return
        if self.syslog is not None:
            self.syslog.write(label, printable)
            return
        stamp = ""
        if self.with_time:
            seconds, nanoseconds = divmod(time.time_ns(), NS_PER_S)
            moment = time.gmtime(seconds) if self.utc else time.localtime(seconds)
            stamp = f"{time.strftime('%Y/%m/%d %H:%M:%S', moment)}.{nanoseconds // 1000:06d} "
        self._put(f"[{os.getpid()}] {stamp}[{label}] {printable}\n")

    def _put(self, line: str) -> None:
        # One write per line, so that lines of several processes in one file are not mixed.
        self.stream.write(line)
        self.stream.flush()
        if self.size_limit_bytes and self.path and self.stream.tell() > self.size_limit_bytes:
            self._rotate()

    def info(self, text: str) -> None:
        """Log an expected event."""
        self.write("INF", text)

    def warning(self, text: str) -> None:
        """Log something that an operator should check."""
        self.write("WRN", text)

    def error(self, text: str) -> None:
        """Log a failure that was handled."""
        self.write("ERR", text)

    def fatal(self, text: str) -> None:
        """Log why the server stops."""
        self.write("FTL", text)

    def debug(self, text: str) -> None:
        """Log a detail for debugging, if debug lines are on."""
        self.write("DBG", text)

    def trace(self, text: str) -> None:
        """Log a line of the protocol, if they are on."""
        self.write("TRC", text)

    def reopen(self) -> None:
        """Open the log file again after it was renamed (SIGUSR1). Raises OSError; the old file stays in use then."""
        if self.path:
            old, self.stream = self.stream, open_for_append(self.path)
            old.close()

    def write_to(self, path: str, target: TextIO | Syslog | None) -> None:
        """Write to a file that was opened, to syslog, or with None to the standard error stream."""
        self.close()
        self.syslog = target if isinstance(target, Syslog) else None
        self.path, self.stream = path, sys.stderr if target is None or isinstance(target, Syslog) else target

    def close(self) -> None:
        """Close the log file, or send what waits for syslog; the standard error stream stays open."""
        if self.path:
            self.stream.close()
        if self.syslog is not None:
            self.syslog.close()

    def _rotate(self) -> None:
        """Rename the file to nats-server's name with a time stamp, start a new one, keep the newest `files_max`."""
        seconds, nanoseconds = divmod(time.time_ns(), NS_PER_S)
        stamp = time.strftime("%Y.%m.%d.%H.%M.%S", time.localtime(seconds))
        path = Path(self.path)
        with suppress(OSError):  # such as a read-only directory: the file grows, no line is lost
            path.rename(f"{self.path}.{stamp}.{nanoseconds:09d}")
            self.reopen()
            if self.files_max:
                aside = sorted(path.parent.glob(f"{path.name}.[0-9]*"))
                for old in aside[: max(0, len(aside) - (self.files_max - 1))]:
                    old.unlink()

    def statistics(self) -> dict[str, int]:
        """The number of lines written."""
        return {"lines": self.lines}


def open_for_append(path: str) -> TextIO:
    """Open the log file. Raises OSError."""
    return open(path, "a", encoding="utf-8", opener=made_with(LOG_FILE))


def open_target(options: Options) -> TextIO | Syslog | None:
    """Open where lines go: a file, else a remote syslog, else that of this machine. Raises OSError, SyslogError."""
    if options.log_file:
        return open_for_append(options.log_file)
    return open_syslog(options.remote_syslog) if options.remote_syslog or options.syslog else None


def open_logger(options: Options) -> Logger:
    """Return a logger to where the options say, or to the standard error stream. Raises OSError, SyslogError."""
    target = open_target(options)
    return Logger(
        stream=sys.stderr if target is None or isinstance(target, Syslog) else target,
        syslog=target if isinstance(target, Syslog) else None,
        form=options.log_format,
        with_time=options.logtime,
        utc=options.logtime_utc,
        debug_on=options.debug,
        trace_on=options.trace,
        path=options.log_file,
        size_limit_bytes=options.log_size_limit,
        files_max=options.log_max_num,
    )


class ClusterNames(Protocol):
    """A source of the streams of Raft groups, and of the names of servers. Implemented by api/jetstream/node.py."""

    def stream_of_group(self, group_id: str) -> tuple[str, str] | None:
        """Account and name; None for a group that is of no stream here."""

    def name_of_node(self, node_id: str) -> str:
        """The name of the server of this id; what was given, for one that is not known."""


class LogBridge(logging.Handler):
    """Writes records of the standard `logging`, which all layers use, to the server's log, and counts events.

    The lines of each kind have a limit (api/logs/log_budget.py), but for debug lines. Events of Raft groups get account
    and stream as fields, and servers their names, where there is JetStream: raft/ knows ids only.
    """

    def __init__(self, logger: Logger, clock: Clock) -> None:
        super().__init__()
        self._say = logger
        self.budget = LogBudget(clock)
        self.events: dict[str, int] = dict.fromkeys(
            (kind.name for kind in KINDS), 0
        )  # since the start, with those left out
        self._names: ClusterNames | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record as one line at the nearest level, or count it as left out."""
        event = record.msg if isinstance(record.msg, Event) else None
        if event is not None:
            kind = event.kind
            self.events[kind.name] += 1
            if kind is not LINES_LEFT_OUT and not self.budget.admits(kind.name, kind.burst, kind.per_hour):
                return
        elif record.levelno >= logging.INFO and not self.budget.admits(
            f"{record.name}: {record.msg!s:.{TEMPLATE_CHARS_MAX}}", BURST, PER_HOUR
        ):
            return
        if event is None:
            self._write(record, record.getMessage())
        else:
            fields, shown = self._fields(event)
            self._write(record, event.told(shown), event.kind.name, fields)

    def follow(self, names: ClusterNames | None) -> None:
        """Name servers and the streams of groups from now on."""
        self._names = names

    def tell_left_out(self) -> None:
        """Say how many lines of each kind were left out, when that is due."""
        for kind, count in self.budget.take_left_out():
            LINES_LEFT_OUT.log(kind=kind, count=count)

    def _fields(self, event: Event) -> tuple[dict[str, Field], dict[str, Field]]:
        """The fields of an event, and as its text shows them: a group by the stream that it is of."""
        if event.kind.only_text:
            return {name: one for name, one in event.fields.items() if name not in event.kind.only_text}, event.fields
        if self._names is None:
            return event.fields, event.fields
        of = self._names.name_of_node
        fields = {
            name: ", ".join(of(each) for each in str(value).split(", ")) if name in NODES else value
            for name, value in event.fields.items()
        }
        group = fields.get("group")
        found = None if group is None else self._names.stream_of_group(str(group))
        if found is None:
            return fields, fields
        account, stream = found
        return {**fields, "account": account, "stream": stream}, {**fields, "group": f"stream {account} > {stream}"}

    def _write(
        self, record: logging.LogRecord, text: str, event: str = "", fields: Mapping[str, Field] | None = None
    ) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            text = f"{text}: {record.exc_info[1]!r}"
        label = next(label for level, label in LABELS if record.levelno >= level)
        self._say.write(label, text[:LINE_CHARS_MAX], event, fields)
