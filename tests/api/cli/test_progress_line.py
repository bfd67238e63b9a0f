"""Long work says how far it is on a terminal, and nothing elsewhere."""

import io
from contextlib import redirect_stderr
from pathlib import Path

import pytest

from jetraft.api.cli import progress_line as module
from jetraft.api.cli.main import command
from jetraft.api.cli.progress_line import GONE, progress_line, shown_bytes
from tests.harness.server import Server


class Terminal(io.StringIO):
    """One that keeps what it shows."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setattr(module, "SHOWN_NS", 0)
    return Terminal()


def test_the_line_has_amount_share_and_rate_and_is_gone_in_the_end(terminal: Terminal) -> None:
    with redirect_stderr(terminal), progress_line("copying\x1b[2J", 4, shown_bytes) as done:
        done(1)
        done(9)
    first, second, rest = terminal.getvalue().removeprefix(GONE).split(GONE)
    assert first.startswith("copying?[2J: 0.0 MiB of 0.0 MiB (25 %), ")
    assert "(100 %)" in second, "an estimate that was too low"
    assert rest == ""


def test_without_a_terminal_nothing_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_line("copying", 4) as done:
        done(1)
    assert capsys.readouterr() == ("", "")


def test_backup_restore_and_verify_show_it(tmp_path: Path, terminal: Terminal) -> None:
    with Server("jetraft", directory=tmp_path / "one") as one, redirect_stderr(terminal):
        client = ("--server", one.url)
        assert command("stream", ["add", "S", "--subjects", "s", *client]) == 0
        assert command("pub", ["s", "x", "--jetstream", *client]) == 0
        assert command("backup", [str(tmp_path / "kept"), "--servers", one.url]) == 0
        assert command("stream", ["rm", "S", "--force", *client]) == 0
        assert command("restore", [str(tmp_path / "kept"), "--servers", one.url]) == 0
        one.stop()
        assert command("verify", [str(one.store_dir)]) == 0
    shown = terminal.getvalue()
    assert "backing S up: 1 of 1 (100 %)" in shown
    assert "restoring S: 1 of 1 (100 %)" in shown
    assert f"reading {one.store_dir}: " in shown
    assert shown.endswith(GONE)
