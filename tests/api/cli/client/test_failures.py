"""A command that fails prints one line that says what to do, and nothing else."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from jetraft.api.cli.client.output import clean
from tests.api.cli.client.running import GROUPS, run
from tests.harness.patience import PATIENCE_S
from tests.harness.server import Server, environment

CASES = (
    (1, "stream info NONE", "stream not found (10059): `jetraft stream ls`"),
    (1, "stream get S1 7", "message found (10037)"),
    (1, "stream rm S1", "add --force"),
    (1, "stream purge S1", "add --force"),
    (2, "stream add", "Missing argument"),
    (1, "stream info a.b", "is no name of a stream"),
    (1, "stream ls --server nats://127.0.0.1:1", "Connection refused: check that the server runs"),
    (1, "stream ls --creds /nowhere/u.creds", "--creds /nowhere/u.creds: No such file or directory"),
    (1, "stream ls --context none", "there is no context none: `jetraft context ls` lists them"),
    (1, "stream add S2 --config /nowhere.json", "No such file"),
    (2, "stream ls --server http://x", "is no URL of a server"),
    (2, "stream ls --server nats://x:99999", "is no URL of a server"),
    (2, "stream none", "No such command"),
    (2, "stream ls --none", "No such option"),
    (2, "stream add X --subjects x --max-age 3q", "--max-age: '3q' is no duration"),
    (2, "stream add X --subjects x --max-bytes lots", "--max-bytes: 'lots' is no size"),
    (2, "stream add X --subjects x --max-bytes 99999999999999999T", "is too large"),
    (2, "stream add X --subjects x --storage tape", "one of file, memory"),
    (2, "stream get S1 1 --last-for x", "give a sequence or --last-for SUBJECT"),
    (1, "stream add S1 --subjects elsewhere --replicas 9", "(1"),
)


@pytest.fixture(autouse=True)
def stream(login: None) -> None:
    assert run("stream", "add", "S1", "--subjects", "s1").status == 0


@pytest.mark.parametrize(("status", "line", "said"), CASES)
def test_a_failure_is_one_line_that_says_what_to_do(status: int, line: str, said: str) -> None:
    done = run(*line.split())
    assert (done.status, done.out, done.err.count("\n")) == (status, "", 1), done
    assert done.err.startswith("jetraft stream")
    assert said in done.err


def test_a_login_that_is_refused_is_said_and_its_password_is_not(tmp_path: Path) -> None:
    config = 'authorization { users: [ {user: u, password: right, permissions: {publish: ["$JS.API.INFO"]}} ] }'
    with Server("jetraft", directory=tmp_path, config=config) as other:
        refused = run("stream", "ls", "--server", other.url, "--user", "u", "--password", "wrong-one")
        assert refused.status == 1
        assert "refused the login: check --user" in refused.err
        assert "wrong-one" not in refused.err
        denied = run("stream", "ls", "--server", other.url, "--user", "u", "--password", "right", "--timeout", "60s")
        assert (denied.status, denied.out) == (1, "")
        assert "permissions violation" in denied.err.lower()
        assert "log in as another" in denied.err


def test_without_the_extra_one_line_names_it(tmp_path: Path) -> None:
    code = (
        "import sys, importlib.abc\n"
        "class Absent(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'typer': raise ModuleNotFoundError(name=name)\n"
        "sys.meta_path.insert(0, Absent())\n"
        "from jetraft.api.cli.main import main\n"
        f"raise SystemExit(max(main([name]) for name in {sorted(GROUPS)!r}))"
    )
    env = os.environ | environment("jetraft")
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    said = [f"jetraft {name}: the extra cli is not installed: pip install 'jetraft[cli]'" for name in sorted(GROUPS)]
    assert (done.returncode, done.stdout, done.stderr.splitlines()) == (1, "", said)


def test_what_others_named_cannot_move_the_cursor() -> None:
    assert clean("a\x1b[2Jb\x9b\x7f\u202ec\n") == "a\\x1b[2Jb\\x9b\\x7f\\x202ec\\x0a"
    assert clean("ä\n\tö", lines=True) == "ä\n\tö"
