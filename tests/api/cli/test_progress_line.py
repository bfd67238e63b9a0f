"""Long work says how far it is on a terminal, and nothing elsewhere."""

import io
from contextlib import redirect_stderr
from pathlib import Path

import pytest

from jetraft.api.cli import progress_line as module
from jetraft.api.cli.main import command
from jetraft.api.cli.progress_line import GONE, progress_line, shown_bytes
from tests.harness.cluster import Cluster
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


def test_export_chain_verify_and_recover_show_it(tmp_path: Path, terminal: Terminal) -> None:
    with Cluster("jetraft", 2, directory=tmp_path) as (one, _), redirect_stderr(terminal):
        client = ("--server", one.url)
        chained = ("--metadata", "jetraft.chain=sha256", "--deny-delete", "--deny-purge")
        assert command("stream", ["add", "S", "--subjects", "s.>", *chained, *client]) == 0
        for subject in ("s.a", "s.b", "s.b"):
            assert command("pub", [subject, "x", "--jetstream", *client]) == 0
        assert command("chain", ["verify", "S", "--servers", one.url]) == 0
        where = ("--servers", one.url, "--stream", "S", "--subject", "s.a")
        assert command("export", [*where, str(tmp_path / "s.parquet")]) == 0
        one.stop()
        assert command("recover", [str(one.store_dir), "--members", "n1"]) == 1, "nothing is changed yet"
    shown = terminal.getvalue()
    assert "verifying S, leaves: 3 of 3 (100 %)" in shown
    assert "exporting, sequences: 3 of 3 (100 %)" in shown, "also those that a filter leaves out"
    assert "looking at groups: " in shown
    assert shown.endswith(GONE)
