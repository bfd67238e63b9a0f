"""SIGINT and SIGTERM at any moment of a start: the process ends soon and says nothing of Python.

As with nats-server the status is 0, or, in the first moments, that of a process that the signal has ended.
"""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.harness.forms import examples
from tests.harness.patience import PATIENCE_S
from tests.harness.ports import HOST
from tests.harness.process import Process
from tests.harness.raw import RawClient
from tests.harness.server import Server, command, environment

MOMENTS = examples(5, long=20)  # of each signal
POLL_S = 0.002  # the interpreter's own handler of SIGINT is there for some 30 ms


@pytest.fixture(scope="module")
def store_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with streams, which a start has to open."""
    with (
        Server("jetraft", directory=tmp_path_factory.mktemp("signals")) as server,
        RawClient(server.address) as client,
    ):
        for number in range(5):
            client.api(f"STREAM.CREATE.s{number}", {"name": f"s{number}", "subjects": [f"s{number}.>"]})
            client.acknowledged(f"s{number}.x", b"x")
        return server.store_dir


def start(store_dir: Path, log_path: Path, *more: str) -> Process:
    words = [*command("jetraft"), "-a", HOST, "-p", "-1", "-js", "-sd", str(store_dir), "-n", "n1", *more]
    return Process(words, log_path=log_path, env=environment("jetraft"))


def wait_for_the_first_line(process: Process) -> None:
    """Until the interpreter has set up itself, and its handler that raises KeyboardInterrupt is gone again."""
    deadline = time.monotonic() + PATIENCE_S
    is_set_up = False
    while not is_set_up or signal.SIGINT in caught(process):
        is_set_up |= signal.SIGINT in caught(process)
        if signal.SIGTERM in caught(process):
            return  # this test was slower than the server, which waits for signals already: a moment like any other
        assert time.monotonic() < deadline
        time.sleep(POLL_S)


def caught(process: Process) -> set[int]:
    """The signals that a process has handlers for."""
    found = re.search(r"SigCgt:\s+([0-9a-f]+)", Path(f"/proc/{process.pid}/status").read_text(encoding="ascii"))
    mask = int(found[1], 16) if found is not None else 0
    return {number for number in (signal.SIGINT, signal.SIGTERM) if mask >> (number - 1) & 1}


@pytest.mark.long_form
def test_a_signal_at_any_moment_of_a_start_ends_it_cleanly(store_dir: Path, tmp_path: Path) -> None:
    whole = start(store_dir, tmp_path / "whole.log")
    wait_for_the_first_line(whole)
    began = time.monotonic()
    whole.wait_for_line("Server is ready")
    start_s = time.monotonic() - began
    assert whole.terminate() == 0

    for number in range(MOMENTS):
        for sent in (signal.SIGINT, signal.SIGTERM):
            process = start(store_dir, tmp_path / f"{number}-{sent.name}.log")
            wait_for_the_first_line(process)
            time.sleep(1.2 * start_s * number / MOMENTS)  # the moment is what is tested; some are after the start
            process.signal(sent)
            status = process.wait(PATIENCE_S)
            said = "\n".join(process.lines)
            assert status in {0, -sent}, (number, sent, said)
            assert "Traceback" not in said, (number, sent, said)
            assert "Error" not in said, (number, sent, said)


def blocked(process: Process) -> set[int]:
    """The signals that ask for something and do not get through to a process."""
    found = re.search(r"SigBlk:\s+([0-9a-f]+)", Path(f"/proc/{process.pid}/status").read_text(encoding="ascii"))
    mask = int(found[1], 16) if found is not None else 0
    return {number for number in (signal.SIGHUP, signal.SIGUSR1) if mask >> (number - 1) & 1}


@pytest.mark.parametrize("part", [0.0, 2.0, 5.0])
def test_what_is_asked_of_a_server_that_starts_is_done_when_it_is_ready(
    store_dir: Path, tmp_path: Path, part: float
) -> None:
    config = tmp_path / "server.conf"
    config.write_text("debug: false\n", encoding="utf-8")
    process = start(store_dir, tmp_path / "server.log", "-c", str(config))
    began = time.monotonic()
    while not blocked(process):
        assert time.monotonic() < began + PATIENCE_S
        time.sleep(POLL_S)
    time.sleep(part * (time.monotonic() - began))  # the moment is what is tested: of a start the interpreter is a part
    config.write_text("debug: true\n", encoding="utf-8")
    process.signal(signal.SIGHUP)
    process.wait_for_line("Server is ready")
    process.wait_for_line("Reloaded server configuration")
    assert blocked(process) == set()
    assert process.terminate() == 0


def test_a_server_that_stops_is_not_ended_by_what_is_asked_of_it(store_dir: Path, tmp_path: Path) -> None:
    process = start(store_dir, tmp_path / "server.log")
    process.wait_for_line("Server is ready")
    process.signal(signal.SIGTERM)
    while process.running:
        process.signal(signal.SIGHUP)
        time.sleep(POLL_S)
    assert process.wait(PATIENCE_S) == 0


def test_commands_end_with_their_terminal() -> None:
    code = (
        "import signal, sys\n"
        "from jetraft.api.cli import inspect\n"
        "inspect.main = lambda *_: print(signal.pthread_sigmask(signal.SIG_BLOCK, ()))\n"
        "sys.argv = ['jetraft', 'inspect', '/nowhere']\n"
        "from jetraft.__main__ import main\n"
        "main()\n"
    )
    assert run(code).stdout == "set()\n"


@pytest.mark.parametrize("words", [["--version"], ["inspect", "/nowhere"]])
def test_before_any_import_a_sigint_is_no_exception(words: list[str]) -> None:
    code = (
        "import os, signal, sys, types\n"
        "import jetraft.__main__\n"
        "slow = types.ModuleType('jetraft.api.cli.main')\n"
        "slow.main = lambda **_: os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.modules['jetraft.api.cli.main'] = slow\n"
        "sys.exit(jetraft.__main__.main())\n"
    )
    ended = run(code, *words)
    assert ended.returncode == -signal.SIGINT
    assert ended.stderr == ""


def test_the_first_module_of_a_start_needs_no_others() -> None:
    code = "import sys\nbefore = set(sys.modules)\nimport jetraft.__main__\nprint(sorted(set(sys.modules) - before))\n"
    loaded = run(code).stdout.strip()
    assert loaded == "['jetraft', 'jetraft.__main__']"


def test_no_exception_appears_in_what_is_being_imported() -> None:
    code = (
        "import os, signal\n"
        "from jetraft.api.startup.start_signals import end_at_once\n"
        "end_at_once()\n"
        "try:\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "except BaseException:\n"
        "    print('caught')\n"
        "print('lives on')\n"
    )
    ended = run(code)
    said = "jetraft: ended by SIGINT before it was ready, or after it was stopped\n"
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", said)


def test_the_server_is_imported_when_signals_end_it() -> None:
    code = (
        "import os, signal, sys\n"
        "def hook(event, arguments):\n"  # before any finder is asked
        "    if event == 'import' and arguments[0] == 'jetraft.api.server':\n"
        "        print(signal.getsignal(signal.SIGINT).__module__, flush=True)\n"
        "        os._exit(0)\n"
        "sys.addaudithook(hook)\n"
        "from jetraft.__main__ import main\n"
        "sys.argv = ['jetraft', '-p', '-1']\n"
        "main()\n"
    )
    assert run(code).stdout.strip() == "jetraft.api.startup.start_signals"


def run(code: str, *words: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, **environment("jetraft")}
    return subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=60, check=False, env=env
    )
