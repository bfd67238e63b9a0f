"""Log lines in nats-server's form, because tools look for them: `[pid] 2026/01/02 03:04:05.000000 [INF] text`."""

import os
import sys
import time
from pathlib import Path
from typing import TextIO

import attrs

from jetraft.store.model.clock import NS_PER_S

LABELS = {"info": "INF", "error": "ERR", "warn": "WRN", "fatal": "FTL", "debug": "DBG", "trace": "TRC"}


@attrs.define
class Logger:
    """Writes to one stream; debug and trace lines only when asked for."""

    stream: TextIO = attrs.field(factory=lambda: sys.stderr)
    with_time: bool = True
    utc: bool = False
    debug_on: bool = False
    trace_on: bool = False
    path: str = ""
    lines: int = 0

    def _write(self, label: str, text: str) -> None:
        stamp = ""
        if self.with_time:
            seconds, nanoseconds = divmod(time.time_ns(), NS_PER_S)
            moment = time.gmtime(seconds) if self.utc else time.localtime(seconds)
            stamp = f"{time.strftime('%Y/%m/%d %H:%M:%S', moment)}.{nanoseconds // 1000:06d} "
        # One write per line, so that lines of several processes in one file stay whole.
        printable = text.replace("\r", "\\r").replace("\n", "\\n")
        self.stream.write(f"[{os.getpid()}] {stamp}[{label}] {printable}\n")
        self.stream.flush()
        self.lines += 1

    def info(self, text: str) -> None:
        """Something an operator expects to see."""
        self._write("INF", text)

    def warning(self, text: str) -> None:
        """Something an operator should look at."""
        self._write("WRN", text)

    def error(self, text: str) -> None:
        """Something that went wrong and was handled."""
        self._write("ERR", text)

    def fatal(self, text: str) -> None:
        """The reason why the server stops now."""
        self._write("FTL", text)

    def debug(self, text: str) -> None:
        """For whoever looks for a fault."""
        if self.debug_on:
            self._write("DBG", text)

    def trace(self, text: str) -> None:
        """The protocol itself."""
        if self.trace_on:
            self._write("TRC", text)

    def reopen(self) -> None:
        """Open the log file anew, after somebody moved it away (SIGUSR1)."""
        if self.path:
            old, self.stream = self.stream, open_for_append(self.path)
            old.close()

    def statistics(self) -> dict[str, int]:
        """How many lines were written."""
        return {"lines": self.lines}


def open_for_append(path: str) -> TextIO:
    """The log file; it lives as long as the server."""
    return Path(path).open("a", encoding="utf-8")


def open_logger(*, path: str, with_time: bool, utc: bool, debug: bool, trace: bool) -> Logger:
    """A logger to a file, or to the standard error stream where no path is given."""
    logger = Logger(with_time=with_time, utc=utc, debug_on=debug, trace_on=trace, path=path)
    if path:
        logger.stream = open_for_append(path)
    return logger
