"""Log lines in nats-server's form, because tools look for them: `[pid] 2026/01/02 03:04:05.000000 [INF] text`."""

import logging
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TextIO

import attrs

from jetraft.api.config.options import Options
from jetraft.store.model.clock import NS_PER_S


@attrs.define
class Logger:
    """Writes to one stream; debug lines only when asked for."""

    stream: TextIO = attrs.field(factory=lambda: sys.stderr)
    with_time: bool = True
    utc: bool = False
    debug_on: bool = False
    path: str = ""
    size_limit_bytes: int = 0  # of the file, which is then set aside and begun anew; 0: never
    files_max: int = 0  # how many to keep, the one in use included; 0: all
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
        if self.size_limit_bytes and self.path and self.stream.tell() > self.size_limit_bytes:
            self._rotate()

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

    def reopen(self) -> None:
        """Open the log file anew, after somebody moved it away (SIGUSR1)."""
        if self.path:
            old, self.stream = self.stream, open_for_append(self.path)
            old.close()

    def close(self) -> None:
        """Give the file back; the standard error stream stays open."""
        if self.path:
            self.stream.close()

    def _rotate(self) -> None:
        """Set the file aside under the time of day, as nats-server names it, and remove the oldest beyond files_max."""
        seconds, nanoseconds = divmod(time.time_ns(), NS_PER_S)
        stamp = time.strftime("%Y.%m.%d.%H.%M.%S", time.localtime(seconds))
        path = Path(self.path)
        with suppress(OSError):  # a directory that lost its rights: the file grows on, lines are not lost
            path.rename(f"{self.path}.{stamp}.{nanoseconds:09d}")
            self.reopen()
            if self.files_max:
                aside = sorted(path.parent.glob(f"{path.name}.[0-9]*"))
                for old in aside[: max(0, len(aside) - (self.files_max - 1))]:
                    old.unlink()

    def statistics(self) -> dict[str, int]:
        """How many lines were written."""
        return {"lines": self.lines}


def open_for_append(path: str) -> TextIO:
    """The log file; it lives as long as the server."""
    return Path(path).open("a", encoding="utf-8")


def open_logger(options: Options) -> Logger:
    """A logger to the file that the options name, or to the standard error stream. Raises OSError."""
    return Logger(
        stream=open_for_append(options.log_file) if options.log_file else sys.stderr,
        with_time=options.logtime,
        utc=options.logtime_utc,
        debug_on=options.debug,
        path=options.log_file,
        size_limit_bytes=options.log_size_limit,
        files_max=options.log_max_num,
    )


class LogBridge(logging.Handler):
    """Carries the lines of the lower layers, which know the standard logging only, into the server's log."""

    def __init__(self, logger: Logger) -> None:
        super().__init__()
        self._say = logger

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line at the level that comes nearest."""
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
