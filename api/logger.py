"""Log lines in nats-server's format, which tools parse: `[pid] 2026/01/02 03:04:05.000000 [INF] text`."""

import logging
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Final, TextIO

import attrs

from jetraft.api.config.options import Options
from jetraft.api.created_files import made_with
from jetraft.api.syslog import Syslog, open_syslog
from jetraft.store.model.clock import NS_PER_S
from jetraft.store.model.file_modes import LOG_FILE

ESCAPES: Final = {  # what moves a terminal's cursor or begins another line; a tab does neither
    ord("\r"): "\\r",
    ord("\n"): "\\n",
    **{code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\r\n\t"},
}


@attrs.define
class Logger:
    """Writes lines to one stream, or to syslog, debug lines only with `debug_on`."""

    stream: TextIO = attrs.field(factory=lambda: sys.stderr)
    with_time: bool = True
    utc: bool = False
    debug_on: bool = False
    trace_on: bool = False
    path: str = ""
    syslog: Syslog | None = None  # it has a time of its own
    size_limit_bytes: int = 0  # of the file, which is then renamed and started again; 0: no limit
    files_max: int = 0  # files to keep, with the one in use; 0: all
    lines: int = 0

    def _write(self, label: str, text: str) -> None:
        printable = text.translate(ESCAPES)
        self.lines += 1
        if self.syslog is not None:
            self.syslog.write(label, printable)
            return
        stamp = ""
        if self.with_time:
            seconds, nanoseconds = divmod(time.time_ns(), NS_PER_S)
            moment = time.gmtime(seconds) if self.utc else time.localtime(seconds)
            stamp = f"{time.strftime('%Y/%m/%d %H:%M:%S', moment)}.{nanoseconds // 1000:06d} "
        # One write per line, so that lines of several processes in one file are not mixed.
        self.stream.write(f"[{os.getpid()}] {stamp}[{label}] {printable}\n")
        self.stream.flush()
        if self.size_limit_bytes and self.path and self.stream.tell() > self.size_limit_bytes:
            self._rotate()

    def info(self, text: str) -> None:
        """Log an expected event."""
        self._write("INF", text)

    def warning(self, text: str) -> None:
        """Log something that an operator should check."""
        self._write("WRN", text)

    def error(self, text: str) -> None:
        """Log a failure that was handled."""
        self._write("ERR", text)

    def fatal(self, text: str) -> None:
        """Log why the server stops."""
        self._write("FTL", text)

    def debug(self, text: str) -> None:
        """Log a detail for debugging, if debug lines are on."""
        if self.debug_on:
            self._write("DBG", text)

    def trace(self, text: str) -> None:
        """Log a line of the protocol, if they are on."""
        if self.trace_on:
            self._write("TRC", text)

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
        with_time=options.logtime,
        utc=options.logtime_utc,
        debug_on=options.debug,
        trace_on=options.trace,
        path=options.log_file,
        size_limit_bytes=options.log_size_limit,
        files_max=options.log_max_num,
    )


class LogBridge(logging.Handler):
    """Writes records of the standard `logging`, which the lower layers use, to the server's log."""

    def __init__(self, logger: Logger) -> None:
        super().__init__()
        self._say = logger

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record as one line at the nearest level."""
        text = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            text = f"{text}: {record.exc_info[1]!r}"
        if record.levelno >= logging.ERROR:
            self._say.error(text)
        elif record.levelno >= logging.WARNING:
            self._say.warning(text)
        elif record.levelno >= logging.INFO:
            self._say.info(text)
        else:
            self._say.debug(text)
