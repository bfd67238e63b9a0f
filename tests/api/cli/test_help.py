"""What the command says of itself: each subcommand is listed, and its help has what a user needs to run it."""

from pathlib import Path

import pytest

from jetraft import __version__
from jetraft.api.cli.main import COMMANDS, command, version_text
from jetraft.api.config.flags import help_text
from jetraft.store.model.versioning import SERVER_VERSION


def test_put_in_the_place_of_nats_server_it_first_says_what_scripts_read() -> None:
    assert version_text("jetraft").splitlines()[0] == f"jetraft: v{__version__}"
    theirs, ours = version_text("nats-server").splitlines()
    assert (theirs, ours) == (f"nats-server: v{SERVER_VERSION}", f"jetraft: v{__version__}")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_listed(name: str) -> None:
    usage = help_text().partition("\n\n")[0].splitlines()[1:]
    listed = [line.split()[1] for line in usage]
    assert name in [each for word in listed for each in word.split("|")]


@pytest.mark.parametrize(
    "words", [(name,) for name in COMMANDS if name != "chain"] + [("chain", "verify")], ids=" ".join
)
def test_every_command_has_a_usage_line_and_says_its_exit_status(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    status: str | int | None
    try:
        status = command(words[0], [*words[1:], "--help"])
    except SystemExit as end:  # how argparse ends
        status = end.code
    shown = capsys.readouterr().out
    assert status in (0, None)
    assert shown.lower().lstrip().startswith("usage: jetraft ")
    assert "exit status:" in shown.lower()


@pytest.mark.parametrize("words", [("backup",), ("restore",), ("export",), ("chain", "verify")], ids=" ".join)
def test_secrets_are_read_from_environment_variables(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        command(words[0], [*words[1:], "--help"])
    shown = capsys.readouterr().out
    assert "--password-env VARIABLE" in shown
    assert "--token-env VARIABLE" in shown
    assert "--password " not in shown


def test_the_confirmation_of_lost_data_is_spelled_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        command("recover", [str(tmp_path), "--members", "n1", "--yes"])
    assert end.value.code == 2
    assert "unrecognized arguments: --yes" in capsys.readouterr().err
