"""One server process: its log lines, its readiness and its end.

The harness is synchronous and owns threads, not event loops, so that pytest functions, nats-py (asyncio), trio tests
and the demo can all use it. Waiting is always for an event (a log line, the end of the process) with a deadline.
"""

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.harness.patience import PATIENCE_S

READY_TIMEOUT_S = 2 * PATIENCE_S  # several processes start at once, and each reads its store
STOP_TIMEOUT_S = PATIENCE_S
LOG_TAIL_LINES = 60


class ServerFailed(RuntimeError):  # noqa: N818  (reads as a claim where it is raised and expected)
    """A server did not start, did not become ready, or ended when it should not have; the log tail is the message."""


class Process:
    """A child process whose output is kept, echoed to a file, and can be waited on line by line."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        log_path: Path,
        env: Mapping[str, str] | None = None,
        stdin: int = subprocess.DEVNULL,
    ) -> None:
        self.command = list(command)
        self.log_path = log_path
        self.lines: list[str] = []
        self._changed = threading.Condition()
        self._ended = False
        self.started_ns = time.monotonic_ns()
        self._popen = subprocess.Popen(
            self.command,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(env or {})},
        )
        self.pid = self._popen.pid
        self._reader = threading.Thread(target=self._read, name=f"log-{self.pid}", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._popen.stdout is not None
        with self.log_path.open("a", encoding="utf-8") as log, self._popen.stdout as output:
            for raw in output:
                line = raw.decode("utf-8", "replace").rstrip("\n")
                log.write(line + "\n")
                log.flush()
                with self._changed:
                    self.lines.append(line)
                    self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def wait_for_line(self, text: str, *, timeout_s: float = READY_TIMEOUT_S) -> str:
        """The first line, past or future, that contains the text. Raises ServerFailed when the process ends first."""
        deadline = time.monotonic() + timeout_s
        looked_at = 0
        with self._changed:
            while True:
                for line in self.lines[looked_at:]:
                    if text in line:
                        return line
                looked_at = len(self.lines)
                left_s = deadline - time.monotonic()
                if self._ended or left_s <= 0:
                    why = "ended" if self._ended else f"took more than {timeout_s} s"
                    raise ServerFailed(f"{why} before {text!r}\n{self.tail()}")
                self._changed.wait(left_s)

    def wait_until(self, ready: Callable[[], bool], *, what: str, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Ask again after every log line, and at least ten times a second, until the answer is yes."""
        deadline = time.monotonic() + timeout_s
        while not ready():
            if not self.running:
                raise ServerFailed(f"ended before {what}\n{self.tail()}")
            if time.monotonic() > deadline:
                raise ServerFailed(f"took more than {timeout_s} s before {what}\n{self.tail()}")
            with self._changed:
                self._changed.wait(0.1)

    @property
    def running(self) -> bool:
        """Whether the process is alive (a stopped one is)."""
        return self._popen.poll() is None

    def tail(self, count: int = LOG_TAIL_LINES) -> str:
        """The last log lines, for the message of a failure."""
        return "\n".join([" ".join(self.command), *self.lines[-count:]])

    def signal(self, number: int) -> None:
        """Send a signal to this process only; nothing happens when it has ended."""
        with contextlib.suppress(ProcessLookupError):
            self._popen.send_signal(number)

    def wait(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """The exit status; raises ServerFailed when the process outlives the timeout."""
        try:
            status = self._popen.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise ServerFailed(f"still running after {timeout_s} s\n{self.tail()}") from None
        self._reader.join(timeout_s)
        return status

    def kill(self) -> None:
        """SIGKILL and reap. The page cache keeps what was written: this is a process crash, not a power cut."""
        self.signal(signal.SIGKILL)
        self.wait()

    def terminate(self) -> int:
        """SIGTERM and the exit status; a process that does not obey is killed and reported."""
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)
        try:
            return self.wait()
        except ServerFailed:
            self.kill()
            raise
