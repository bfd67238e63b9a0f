"""Runs a command of `jetraft` in this process, and the examples of a page."""

import contextlib
import io
import os
import pty
import re
import select
import shlex
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any, Final

import attrs

from jetraft.api.cli.main import COMMANDS, command
from tests.harness.patience import PATIENCE_S
from tests.harness.server import environment as server_environment

GROUPS: Final = {name: module for name, module in COMMANDS.items() if ".client." in module}
CONSOLE: Final = re.compile(r"```console\n(.*?)```", re.DOTALL)
MASKS: Final = (  # what differs from run to run: times, durations, ids, ports and sizes of processes
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)?"), "<time>"),
    (re.compile(r"\bN?[A-Z0-9]{54,56}\b"), "<id>"),
    (re.compile(r"\b(\d+(\.\d+)?(ns|µs|us|ms|s|m|h|d))+(?![\w.])"), "<duration>"),
    (re.compile(r"_INBOX\.\S+"), "<inbox>"),
    (re.compile(r"127\.0\.0\.1:\d+"), "127.0.0.1:<port>"),
    (re.compile(r"\d+(\.\d+)? (MiB|GiB|KiB|TiB)"), "<size>"),
    (re.compile(r"─+"), "─"),
    (re.compile(r"[ ]+"), " "),
)


@attrs.frozen
class Done:
    """What a command did."""

    status: int
    out: str
    err: str


class Bytes(io.TextIOWrapper):
    """Standard output of a test, with its bytes."""


def run(*words: str, given: str = "") -> Done:
    """Run it, with that standard input, which is no terminal."""
    out, err = Bytes(io.BytesIO(), encoding="utf-8"), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), _stdin(given):
        try:
            status = command(words[0], words[1:])
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 1
    out.flush()
    buffer = out.buffer
    assert isinstance(buffer, io.BytesIO)
    return Done(status, buffer.getvalue().decode(), err.getvalue())


@contextlib.contextmanager
def _stdin(text: str) -> Any:
    before, sys.stdin = sys.stdin, io.TextIOWrapper(io.BytesIO(text.encode()), encoding="utf-8")
    try:
        yield
    finally:
        sys.stdin = before


def on_terminal(*words: str, typed: str = "", after: str = "", whole: bool = False) -> Done:
    """Run it in a process of its own, on a terminal on which that is typed; `err` has what the terminal shows.

    It is typed once the terminal shows `after`. With `whole` the standard output is the terminal, too.
    """
    ours, its = pty.openpty()
    termios.tcsetwinsize(ours, (40, 120))
    env = {**os.environ, **server_environment("jetraft"), "TERM": "xterm-256color"}
    command = [sys.executable, "-m", "jetraft", *words]
    with subprocess.Popen(command, env=env, stdin=its, stdout=its if whole else subprocess.PIPE, stderr=its) as process:
        os.close(its)
        shown = b""
        with contextlib.suppress(OSError):  # the other end is closed
            while True:
                if typed and after in shown.decode(errors="replace"):
                    os.write(ours, typed.encode())
                    typed = ""
                if not select.select([ours], [], [], PATIENCE_S)[0]:
                    process.kill()
                shown += os.read(ours, 65_536)
        out = "" if process.stdout is None else process.stdout.read().decode()
        status = process.wait(PATIENCE_S)
    os.close(ours)
    return Done(status, out, shown.decode(errors="replace"))


@attrs.frozen
class Example:
    """A line of a page that begins with `$ jetraft`, and what the page says that it prints."""

    words: tuple[str, ...]
    shown: str


def examples(page: Path) -> list[Example]:
    """All of a page, in order."""
    found = []
    for block in CONSOLE.findall(page.read_text(encoding="utf-8")):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            line, _, shown = part.partition("\n")
            words = shlex.split(line)
            assert words[0] == "jetraft", line
            found.append(Example(tuple(words[1:]), shown))
    return found


def masked(text: str) -> str:
    """The text without what differs from run to run."""
    for pattern, instead in MASKS:
        text = pattern.sub(instead, text)
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


def written_again(page: Path, outputs: list[str]) -> str:
    """The page with these outputs instead of its own."""
    left = list(outputs)

    def block(match: re.Match[str]) -> str:
        lines = [line for line in match[1].splitlines() if line.startswith("$ ")]
        shown = "".join(f"{line}\n{left.pop(0)}" for line in lines)
        return f"```console\n{shown}```"

    return CONSOLE.sub(block, page.read_text(encoding="utf-8"))
