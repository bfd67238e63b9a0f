"""The deployment files: compose accepts its file, and the servers in it accept their command lines; samples start."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from jetraft.api.config.build import build_options
from jetraft.api.config.flags import parse_flags
from tests.harness.certificates import Authority
from tests.harness.raw_tls import TlsClient
from tests.harness.server import ROOT, Server

COMPOSE_FILE = ROOT / "deploy" / "docker-compose.yml"
COMMAND = re.compile(r"^  (n\d):\n(?:    .*\n)*?    command: >-\n((?:      .*\n)+)", re.MULTILINE)
VARIABLE = re.compile(r"\$\{\w+:-([^}]*)\}")


def compose() -> list[str] | None:
    """The words that start compose here: docker's plugin, or the older program."""
    for words in (["docker", "compose"], ["docker-compose"]):
        if shutil.which(words[0]) is None:
            continue
        shown = subprocess.run([*words, "version"], capture_output=True, check=False, timeout=60)
        if shown.returncode == 0:
            return words
    return None


def test_compose_accepts_the_file_and_knows_four_services() -> None:
    words = compose()
    if words is None:
        pytest.skip("NEITHER `docker compose` NOR docker-compose IS INSTALLED: the compose file was not checked")
    shown = subprocess.run(
        [*words, "-f", str(COMPOSE_FILE), "--profile", "spark", "config", "--services"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert shown.returncode == 0, shown.stderr
    assert sorted(shown.stdout.split()) == ["n1", "n2", "n3", "spark"]


def test_the_servers_in_the_compose_file_accept_their_command_lines() -> None:
    text = VARIABLE.sub(r"\1", COMPOSE_FILE.read_text(encoding="utf-8"))
    commands = {name: shlex.split(words) for name, words in COMMAND.findall(text)}
    assert sorted(commands) == ["n1", "n2", "n3"]
    for name, words in commands.items():
        options = build_options(parse_flags(words))
        assert options.server_name == name
        assert options.jetstream is not None
        assert options.cluster is not None
        peers = {other for other in commands if other != name}
        assert {re.split(r"[@.]", route)[1] for route in options.cluster.routes} == peers


def test_the_image_does_not_run_as_root() -> None:
    stages = (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8").split("\nFROM ")
    running = [stage for stage in stages if "ENTRYPOINT" in stage]
    assert len(running) == 2
    assert all(re.search(r"^USER (?!root)\w+$", stage, re.MULTILINE) for stage in running)


def test_the_sample_with_tls_starts_and_asks_for_a_certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority.make(tmp_path)
    served = authority.server()
    monkeypatch.setenv("SERVER_CERT", str(served.cert_file))
    monkeypatch.setenv("SERVER_KEY", str(served.key_file))
    monkeypatch.setenv("CLIENTS_CA", str(authority.ca_file))
    monkeypatch.setenv("STORE", str(tmp_path / "store"))
    config = (ROOT / "deploy" / "tls.conf").read_text(encoding="utf-8")
    shown = authority.client_context(authority.sign("client"))
    with (
        Server("jetraft", directory=tmp_path, config=config) as server,
        TlsClient(server.address, shown) as client,
    ):
        client.settle()
        assert client.info["tls_verify"] is True
        assert not client.closed
