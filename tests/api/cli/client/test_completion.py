"""The script of `jetraft completion`, in a real bash."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.api.cli.client.running import run
from tests.harness.patience import PATIENCE_S


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize(
    ("typed", "words"),
    [
        (("str",), ["stream"]),
        (("stream", "in"), ["info"]),
        (("consumer", "pau"), ["pause"]),
        (("stream", "add", "S", "--max-m"), ["--max-msg-size", "--max-msgs", "--max-msgs-per-subject"]),
        (("pub", "subject", "--jet"), ["--jetstream"]),
        (("stream", "none", "--"), []),
    ],
)
def test_bash_completes_commands_and_options(typed: tuple[str, ...], words: list[str], tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text(run("completion", "bash").out)
    line = " ".join(["jetraft", *typed])
    ask = f'source "$0"; COMP_WORDS=({line}); COMP_CWORD={len(typed)}; _jetraft; printf "%s\\n" "${{COMPREPLY[@]}}"'
    done = subprocess.run(
        ["bash", "-c", ask, str(script)], capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    assert sorted(done.stdout.split()) == sorted(words)
    assert done.stderr == ""


def test_another_shell_is_refused_in_one_line() -> None:
    done = run("completion", "tcsh")
    assert (done.status, done.out, done.err.count("\n")) == (2, "", 1)
