"""The deployment files: compose accepts its file, and the servers in it accept their command lines; samples start."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from contextlib import ExitStack
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name

from deploy.spark_consumer import options_of, variable_of
from jetraft.api.config.build import build_options
from jetraft.api.config.file import load_settings
from pyspark_jetstream.errors import BadOptionError
from pyspark_jetstream.options import KNOWN
from tests.harness.certificates import Authority
from tests.harness.patience import PATIENCE_S
from tests.harness.ports import free_port
from tests.harness.process import Process
from tests.harness.raw_tls import TlsClient
from tests.harness.server import ROOT, Server

COMPOSE_FILE = ROOT / "deploy" / "docker-compose.yml"
NODE_CONF = ROOT / "deploy" / "node.conf"
ENVIRONMENT = re.compile(r"^  (n\d):\n(?:    .*\n)*?    environment:\n((?:      .*\n)+)", re.MULTILINE)
VALUE = re.compile(r"^ +([A-Z_]+): (.*)$", re.MULTILINE)
HIDDEN = "no-one-may-see-this"  # in no environment by chance: host names are made of words
ODD_SECRET = f"a/#?, {HIDDEN}@:%41\n"
# A client of an engine: it has the image LOCAL, and every other one where there is a REGISTRY.
ENGINE = """#!/bin/sh
case "$1 $2" in
"pull --quiet") test -n "$REGISTRY" ;;
"image inspect") case "$3" in --format) echo python@sha256:0123 ;; *) test "$3" = "$LOCAL" ;; esac ;;
build*) echo "$@" >> "$NOTES" ;;
esac
"""
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


def config(words: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    """What compose makes of the file with these variables."""
    bare = {name: value for name, value in os.environ.items() if name != "CLUSTER_SECRET_FILE"}
    return subprocess.run(
        [*words, "-f", str(COMPOSE_FILE), "--profile", "spark", "config", "--services"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**bare, **environment},
    )


def test_compose_accepts_the_file_and_knows_four_services(tmp_path: Path) -> None:
    words = compose()
    if words is None:
        pytest.skip("NEITHER `docker compose` NOR docker-compose IS INSTALLED: the compose file was not checked")
    for environment in ({"CLUSTER_SECRET_FILE": str(tmp_path / "secret")}, {}, {"CLUSTER_SECRET_FILE": ""}):
        shown = config(words, **environment)
        assert shown.returncode == 0, shown.stderr
        assert sorted(shown.stdout.split()) == ["n1", "n2", "n3", "spark"]


def test_the_secret_is_readable_for_the_nodes_behind_a_directory_that_is_not(tmp_path: Path) -> None:
    deploy = tmp_path / "deploy"
    deploy.mkdir()
    script = shutil.copy(ROOT / "deploy" / "make-secret.sh", deploy)
    (deploy / "cluster_secret").write_text("from before")
    (deploy / "cluster_secret").chmod(0o444)
    subprocess.run([script], check=True, capture_output=True, timeout=PATIENCE_S)
    secret = deploy / "private" / "cluster_secret"
    assert secret.parent.stat().st_mode & 0o777 == 0o700
    assert secret.stat().st_mode & 0o777 == 0o444
    assert (deploy / "cluster_secret").read_text() == secret.read_text() == "from before", (
        "containers name the old place"
    )
    secret.unlink()
    (deploy / "cluster_secret").unlink()
    for _ in range(2):
        subprocess.run([script], check=True, capture_output=True, timeout=PATIENCE_S)
        made = secret.read_text()
        assert re.fullmatch(r"[0-9a-f]{64}", made)
    assert secret.read_text() == made, "it is made once"
    assert "file: ${CLUSTER_SECRET_FILE:-./private/cluster_secret}" in COMPOSE_FILE.read_text(encoding="utf-8")


def test_a_service_may_do_no_more_than_the_nodes() -> None:
    """Each service has the rows that take rights away; the Spark job has a limit of memory too."""
    words = compose()
    if words is None:
        pytest.skip("NEITHER `docker compose` NOR docker-compose IS INSTALLED: the compose file was not checked")
    shown = subprocess.run(
        [*words, "-f", str(COMPOSE_FILE), "--profile", "spark", "config"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout
    for row in ("read_only: true", "no-new-privileges:true", "- ALL", "mem_limit: ", "pids_limit: ", "max-size: "):
        assert shown.count(row) == 4, row


def test_the_job_takes_every_option_of_the_source_from_its_environment() -> None:
    text = COMPOSE_FILE.read_text(encoding="utf-8")
    listed = set(re.findall(r"^      (JETSTREAM_\w+):", text, re.MULTILINE))
    assert listed == {variable_of(name) for name in KNOWN.values()}
    given = {"JETSTREAM_ACCEPT_INCARNATION": "2026-01-01T00:00:00Z", "JETSTREAM_STREAM": "", "PATH": "/bin"}
    assert options_of(given) == {
        "servers": "nats://127.0.0.1:4222",
        "stream": "ORDERS",
        "maxRecordsPerTrigger": "500000",
        "acceptIncarnation": "2026-01-01T00:00:00Z",
    }
    assert "stream" not in options_of({"JETSTREAM_STREAMS": "A,B"})
    with pytest.raises(BadOptionError, match="JETSTREAM_STREEM: the source has no such option"):
        options_of({"JETSTREAM_STREEM": "A"})


def test_the_job_waits_for_its_stream_and_says_so(tmp_path: Path) -> None:
    with Server("jetraft", directory=tmp_path) as server:
        url = f"nats://{server.address[0]}:{server.address[1]}"
        words = [sys.executable, str(ROOT / "deploy" / "spark_consumer.py"), "--servers", url, "--stream", "LATE"]
        environment = {"PYTHONPATH": str(ROOT / "src"), "JETSTREAM_RETRY_TIMEOUT": "1"}
        job = Process(words, log_path=tmp_path / "job.log", env=environment)
        try:
            line = job.wait_for_line("waiting for the stream LATE: ")
            assert "does not exist" in line or "not found" in line
            job.signal(signal.SIGTERM)
            assert job.wait() == 0
        finally:
            job.kill()


def environments() -> dict[str, dict[str, str]]:
    """The variables of each node in the compose file, with the defaults of those that it takes from outside."""
    text = VARIABLE.sub(r"\1", COMPOSE_FILE.read_text(encoding="utf-8"))
    shared = dict(VALUE.findall(text.split("x-environment:")[1].split("services:")[0]))
    blocks = ENVIRONMENT.findall(text)
    return {name: shared | {key: value.strip('"') for key, value in VALUE.findall(block)} for name, block in blocks}


def test_each_server_of_the_compose_file_accepts_its_configuration(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s")
    found = environments()
    assert sorted(found) == ["n1", "n2", "n3"]
    for name, environment in found.items():
        options = build_options(load_settings(NODE_CONF, environment | {"CLUSTER_SECRET_FILE": str(secret)}))
        assert options.server_name == name
        assert (options.host, options.http_host) == ("0.0.0.0", "127.0.0.1")
        assert options.client_advertise == f"127.0.0.1:{4221 + int(name[1:])}", "what the host can connect to"
        assert options.jetstream is not None
        assert options.jetstream.max_file_store_bytes == 10 << 30
        assert options.cluster is not None
        assert options.cluster.host == f"{name}.mesh", "links are on the mesh network only"
        assert {re.split(r"//|[.]", route)[1] for route in options.cluster.routes} == set(found) - {name}


@pytest.mark.parametrize("word", ["change-me", "--mount", "nats://mesh:"])
def test_the_deployment_has_no_secret_of_its_own_and_needs_no_buildkit(word: str) -> None:
    for path in (COMPOSE_FILE, NODE_CONF, ROOT / "deploy" / "Dockerfile"):
        assert word not in path.read_text(encoding="utf-8")


def test_one_service_builds_the_image_of_the_servers() -> None:
    text = COMPOSE_FILE.read_text(encoding="utf-8")
    assert text.count("target: server") == 1


def test_the_classic_builder_makes_the_server_without_the_stages_of_spark() -> None:
    """It runs every stage above the one that is asked for."""
    text = (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8")
    stages = re.findall(r"^FROM .* AS (\S+)$", text, re.MULTILINE)
    assert stages == ["cython", "installer", "build", "server", "spark-build", "spark"]


def test_no_stage_that_runs_keeps_a_package_installer() -> None:
    text = (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8")
    for name in ("jetraft", "spark"):
        assert f"/opt/{name}/bin/python -m pip uninstall --yes setuptools pip" in text
    assert not re.search(r"^RUN (python3? -m )?pip install", text, re.MULTILINE)


def test_compose_has_one_name_for_the_project_wherever_it_is_called() -> None:
    """In a file that both compose programs read: docker-compose 1.29 refuses the key `name`."""
    assert (COMPOSE_FILE.parent / ".env").read_text(encoding="utf-8") == "COMPOSE_PROJECT_NAME=jetraft\n"


def locked(name: str) -> dict[NormalizedName, tuple[str, int]]:
    """Version, and number of hashes, of each package in a file of deploy/requirements."""
    text = (ROOT / "deploy" / "requirements" / f"{name}.txt").read_text(encoding="utf-8").replace("\\\n", "")
    found: dict[NormalizedName, tuple[str, int]] = {}
    for line in text.splitlines():
        named = re.match(r"([\w.-]+)==([\w.]+) ", line)
        assert named is not None, line
        found[canonicalize_name(named[1])] = named[2], len(re.findall(r"--hash=sha256:[0-9a-f]{64}", line))
    return found


def test_every_package_of_the_images_has_one_version_and_its_hashes() -> None:
    lines = (ROOT / "deploy" / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = dict(line.split("==") for line in lines if not line.startswith("#"))
    versions = {canonicalize_name(name): version for name, version in pinned.items()}
    server = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    source = tomllib.loads((ROOT / "src" / "pyspark-jetstream" / "pyproject.toml").read_text(encoding="utf-8"))
    of_spark = [*source["project"]["dependencies"], *source["project"]["optional-dependencies"]["spark"]]
    wanted = {
        "build": server["build-system"]["requires"],
        "server": [*server["project"]["dependencies"], *server["project"]["optional-dependencies"]["cli"]],
        "spark": of_spark,
    }
    for name, requirements in wanted.items():
        found = locked(name)
        assert {canonicalize_name(Requirement(one).name) for one in requirements} <= found.keys()
        for package, (version, hashes) in found.items():
            assert hashes >= 1, package
            assert versions.get(package, version) == version, "make requirements"
    dockerfile = (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8")
    installs = re.findall(r"pip install ([^\n]*)", dockerfile)
    assert all("--no-index" in line or "--require-hashes" in line for line in installs)


def test_an_image_is_built_again_like_the_one_before(tmp_path: Path) -> None:
    """With an engine that notes what it is asked: BASE and NO_INDEX are remembered, and a base is pinned by digest."""
    deploy, programs = tmp_path / "deploy", tmp_path / "bin"
    for folder in (deploy, programs):
        folder.mkdir()
    script = shutil.copy(ROOT / "deploy" / "build-image.sh", deploy)
    docker = programs / "docker"
    docker.write_text(ENGINE)
    docker.chmod(0o755)

    def build(**variables: str) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": f"{programs}:{os.environ['PATH']}", "NOTES": str(tmp_path / "notes"), **variables}
        return subprocess.run(
            [script, "server", "jetraft:test"], env=environment, capture_output=True, text=True, check=False, timeout=60
        )

    def asked() -> str:
        return (tmp_path / "notes").read_text().splitlines()[-1]

    none = build()
    assert none.returncode == 1
    assert "docs/containers.md#images" in none.stderr
    assert not (tmp_path / "notes").exists(), "nothing was built"
    assert build(BASE="made:here", NO_INDEX="1", LOCAL="made:here").returncode == 0
    assert "BASE=made:here --build-arg PIP_NO_INDEX=1" in asked()
    assert build(LOCAL="made:here").returncode == 0, "an upgrade says nothing of either"
    assert "BASE=made:here --build-arg PIP_NO_INDEX=1" in asked()
    assert build(BASE="python:3.12-slim", REGISTRY="1").returncode == 0
    assert "BASE=python@sha256:0123 --build-arg PIP_NO_INDEX= " in asked()
    assert build().returncode == 0, "no registry is asked for what has a digest"
    assert "BASE=python@sha256:0123" in asked()


def test_three_servers_with_the_configuration_are_a_cluster_and_show_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "secret"
    secret.write_text(ODD_SECRET)
    config_text, ports = NODE_CONF.read_text(encoding="utf-8"), [free_port() for _ in range(3)]
    addresses = [f"127.0.0.1:{port}" for port in ports]
    monkeypatch.setenv("CLUSTER_SECRET_FILE", str(secret))
    monkeypatch.setenv("NODE_MAX_FILE", "1GB")
    with ExitStack() as stack:
        servers: list[Server] = []
        for number, address in enumerate(addresses):
            others = ", ".join(f"nats://{other}" for other in addresses if other != address)
            monkeypatch.setenv("NODE_NAME", f"n{number}")
            monkeypatch.setenv("NODE_CLIENT_ADVERTISE", f"host{number}.example:4222")
            monkeypatch.setenv("NODE_CLUSTER_LISTEN", address)
            monkeypatch.setenv("NODE_ROUTES", f"[{others}]")
            (tmp_path / f"n{number}").mkdir()
            server = Server("jetraft", directory=tmp_path / f"n{number}", name=f"n{number}", config=config_text)
            servers.append(stack.enter_context(server))
        for server in servers:
            server.wait_healthy()
            assert HIDDEN not in Path(f"/proc/{server.running.pid}/cmdline").read_text()
            assert HIDDEN not in Path(f"/proc/{server.running.pid}/environ").read_text()
            assert HIDDEN not in "\n".join(server.running.lines)
            environment = {**os.environ, "JETRAFT_HEALTH_ADDRESS": f"127.0.0.1:{server.http_port}"}
            for words in ([], ["--ready"], ["/varz"]):
                check = [sys.executable, str(ROOT / "deploy" / "healthcheck.py"), *words]
                subprocess.run(check, check=True, env=environment, timeout=PATIENCE_S, stdout=subprocess.DEVNULL)
        status, told = servers[0].get("/varz")
        assert (status, told["cluster"]["name"]) == (200, "jetraft")


def test_a_node_with_another_secret_says_so_and_is_not_healthy(tmp_path: Path) -> None:
    config = 'cluster { name: C, listen: "127.0.0.1:%d", routes: ["nats://127.0.0.1:%d"], secret: "%s" }'
    ports = free_port(), free_port()
    with ExitStack() as stack:
        servers: list[Server] = []
        nodes = (("n1", ports, "right"), ("n2", ports[::-1], "wrong"))
        for name, (own, other), secret in nodes:
            (tmp_path / name).mkdir()
            text = config % (own, other, secret)
            servers.append(stack.enter_context(Server("jetraft", directory=tmp_path / name, name=name, config=text)))
        wrong = servers[1]
        wrong.running.wait_for_line("it does not take this node's proof")
        environment = {**os.environ, "JETRAFT_HEALTH_ADDRESS": f"127.0.0.1:{wrong.http_port}"}
        check = [sys.executable, str(ROOT / "deploy" / "healthcheck.py")]

        def shown() -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                check, check=False, env=environment, timeout=PATIENCE_S, capture_output=True, text=True
            )

        wrong.running.wait_until(lambda: shown().returncode == 1, what="the container is unhealthy")
        assert "its secret is another one" in shown().stderr


def test_a_server_that_does_not_answer_is_unhealthy_with_a_reason() -> None:
    port = free_port()
    environment = {**os.environ, "JETRAFT_HEALTH_ADDRESS": f"127.0.0.1:{port}"}
    check = [sys.executable, str(ROOT / "deploy" / "healthcheck.py"), "--ready"]
    shown = subprocess.run(check, check=False, env=environment, timeout=PATIENCE_S, capture_output=True, text=True)
    assert shown.returncode == 1
    assert shown.stderr.startswith("unhealthy: /healthz: ")


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
