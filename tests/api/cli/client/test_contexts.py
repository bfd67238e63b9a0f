"""Contexts and logins: which server, as which user; nothing secret is shown."""

import json
import stat
from pathlib import Path

import pytest

from jetraft.api.cli.client.contexts import Context
from jetraft.api.cli.client.errors import CommandError
from jetraft.api.cli.client.login import ENVIRONMENT, ClientLogin, login_of
from tests.api.cli.client.running import run

SECRET = "xyzzy-secret"


def test_a_context_is_for_its_owner_only_and_its_secrets_are_not_shown(no_login: Path) -> None:
    url = f"nats://u:{SECRET}@n1:4222,nats://n2:4222"
    done = [run("context", "save", "prod", "--server", url, "--password", SECRET, "--select")]
    path = no_login / "jetraft" / "context" / "prod.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert json.loads(path.read_text())["password"] == SECRET
    done += [run("context", each, *more) for each in ("ls", "show") for more in (["prod"] * (each == "show"),)]
    done += [run("context", "ls", "--json"), run("context", "show", "prod", "--json")]
    done += [run("stream", "ls", "--server", f"nats://u:{SECRET}@127.0.0.1:1", "--token", SECRET)]
    assert [each.status for each in done] == [0, 0, 0, 0, 0, 1]
    assert all(SECRET not in each.out + each.err for each in done)
    assert SECRET not in repr(login_of({"password": SECRET, "user": "u"}))


def test_a_password_is_read_from_the_standard_input(no_login: Path) -> None:
    assert run("context", "save", "a", "--user", "u", "--password", "-", given=f"{SECRET}\n").status == 0
    assert json.loads((no_login / "jetraft" / "context" / "a.json").read_text())["password"] == SECRET


def test_contexts_of_nats_are_read_and_never_written(no_login: Path) -> None:
    directory = no_login / "nats" / "context"
    directory.mkdir(parents=True)
    (directory / "theirs.json").write_text(json.dumps({"url": "nats://n9:4222", "user": "u", "password": SECRET}))
    (directory / "broken.json").write_text("{")
    (no_login / "nats" / "context.txt").write_text("theirs\n")
    assert login_of({}) == ClientLogin(server="nats://n9:4222", user="u", password=SECRET)
    assert [each["name"] for each in json.loads(run("context", "ls", "--json").out)] == ["theirs"]
    refused = run("context", "rm", "theirs", "--force")
    assert (refused.status, refused.out) == (1, "")
    assert "nats context rm theirs" in refused.err
    assert (directory / "theirs.json").exists()
    assert run("context", "save", "ours", "--server", "nats://n1:4222", "--select").status == 0
    assert login_of({}).server == "nats://n1:4222"
    assert run("context", "rm", "ours", "--force").status == 0
    assert login_of({}).server == "nats://n9:4222"


@pytest.mark.usefixtures("no_login")
def test_credentials_come_from_one_place_and_the_command_line_is_first() -> None:
    environment = {"NATS_URL": "nats://env:4222", "NATS_CREDS": "env.creds"}
    assert login_of({}, environment) == ClientLogin(server="nats://env:4222", creds="env.creds")
    assert login_of({"user": "u", "password": "p"}, environment) == ClientLogin(
        server="nats://env:4222", user="u", password="p"
    )
    run("context", "save", "c", "--server", "nats://ctx:4222", "--user", "c", "--password", "c")
    assert login_of({"context": "c"}, {"NATS_TOKEN": "t"}) == ClientLogin(server="nats://ctx:4222", token="t")
    assert login_of({"context": "c", "server": "n5"}, {}) == ClientLogin(server="n5", user="c", password="c")
    assert "NATS_CONTEXT" in ENVIRONMENT.values()
    with pytest.raises(CommandError, match="there is no context d"):
        login_of({"context": "d"}, {})


@pytest.mark.usefixtures("no_login")
@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "a b", "x" * 200])
def test_a_name_that_is_no_file_name_is_refused(name: str) -> None:
    done = run("context", "save", name, "--server", "nats://n1:4222")
    assert (done.status, done.out, done.err.count("\n")) == (1, "", 1)


def test_paths_of_a_context_may_begin_with_the_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    context = Context(name="a", origin="nats", path=tmp_path, values={"creds": "~/u.creds", "ca": "$HOME/ca.pem"})
    assert context.options == {"creds": str(tmp_path / "u.creds"), "tlsca": str(tmp_path / "ca.pem")}
