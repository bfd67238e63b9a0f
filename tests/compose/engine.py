"""Docker and compose as programs: what is missing of them, and the cluster that they run for the check."""

import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import attrs

from tests.harness.ports import HOST, free_port
from tests.harness.server import ROOT

DEPLOY: Final = ROOT / "deploy"
COMPOSE_FILE: Final = DEPLOY / "docker-compose.yml"
NODES: Final = ("n1", "n2", "n3")
COMMAND_S: Final = 300.0
BUILD_S: Final = 3600.0  # of an image with Spark on a machine with other work
READY_S: Final = 120.0
LOOK_S: Final = 0.1
SECRET: Final = "check/# ?,@:%41 hidden"  # each of these characters once broke a URL or a command line
NEXT_SECRET: Final = "next hidden/#"


class CheckFailedError(Exception):
    """The cluster did not do what it should; the message says what."""


def run(
    words: list[str],
    *,
    environment: dict[str, str] | None = None,
    check: bool = True,
    stdin: str = "",
    timeout_s: float = COMMAND_S,
) -> str:
    """What a program prints. Raises CheckFailedError when it fails, unless `check` is off."""
    done = subprocess.run(
        words,
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout_s,
        env={**os.environ, **(environment or {})},
        cwd=ROOT,
    )
    if check and done.returncode != 0:
        raise CheckFailedError(f"{' '.join(words)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def compose_words() -> list[str] | None:
    """What starts compose here: docker's plugin, or the older program; None without either."""
    for words in (["docker", "compose"], ["docker-compose"]):
        if shutil.which(words[0]) is not None:
            shown = subprocess.run([*words, "version"], capture_output=True, check=False, timeout=COMMAND_S)
            if shown.returncode == 0:
                return words
    return None


def build_images(images: dict[str, str]) -> None:
    """The images of these targets of the Dockerfile, from the present sources. Raises CheckFailedError."""
    for target, image in images.items():
        run([str(DEPLOY / "build-image.sh"), target, image], timeout_s=BUILD_S)


def missing() -> list[str]:
    """What the check cannot do without, and is not here."""
    lacks: list[str] = []
    if shutil.which("docker") is None:
        lacks.append("docker: no client of a container engine")
    elif not run(["docker", "version", "--format", "{{.Server.Version}}"], check=False).strip():
        lacks.append("docker: no engine answers")
    if compose_words() is None:
        lacks.append("compose: neither `docker compose` nor docker-compose")
    return lacks


@attrs.define(eq=False)
class ComposeCluster:
    """A project of its own: ports, volumes, networks and a secret that no other cluster has."""

    image: str
    spark_image: str
    project: str = attrs.Factory(lambda: f"jetraft-check-{os.getpid()}")
    ports: dict[str, int] = attrs.Factory(lambda: {name: free_port() for name in NODES})
    directory: Path = attrs.Factory(lambda: Path(tempfile.mkdtemp(prefix="jetraft-check-")))
    variables: dict[str, str] = attrs.Factory(dict)
    made_images: list[str] = attrs.Factory(list)

    # Commands.

    @property
    def secret_file(self) -> Path:
        """The file that is mounted into the nodes."""
        return self.directory / "secret"

    def write_secrets(self, *secrets: str) -> None:
        """In place, as the file is mounted."""
        self.directory.chmod(0o755)
        self.secret_file.write_text("".join(f"{secret}\n" for secret in secrets), encoding="utf-8")
        self.secret_file.chmod(0o444)

    @property
    def environment(self) -> dict[str, str]:
        """What compose and deploy/rolling-upgrade.sh read."""
        told = {f"{name.upper()}_PORT": str(port) for name, port in self.ports.items()}
        told |= {f"{name.upper()}_CLIENT_ADVERTISE": f"{HOST}:{port}" for name, port in self.ports.items()}
        return {
            "COMPOSE_PROJECT_NAME": self.project,
            "CLUSTER_SECRET_FILE": str(self.secret_file),
            "JETRAFT_IMAGE": self.image,
            "JETRAFT_SPARK_IMAGE": self.spark_image,
            "PROJECT": self.project,  # of the Makefile
            "IMAGE": self.image,
            "SPARK_IMAGE": self.spark_image,
            **told,
            **self.variables,
        }

    def compose(self, *words: str) -> str:
        """One command of compose."""
        return run([*(compose_words() or []), "-f", str(COMPOSE_FILE), *words], environment=self.environment)

    def container(self, node: str) -> str:
        """The id of a node's container."""
        return self.compose("ps", "-q", node).strip()

    def inspect(self, node: str) -> dict[str, Any]:
        """What the engine says of a node's container."""
        (found,) = json.loads(run(["docker", "inspect", self.container(node)]))
        assert isinstance(found, dict)
        return found

    def page(self, node: str, path: str) -> dict[str, Any]:
        """A monitoring page of a node, which is asked within its container."""
        found = json.loads(self.compose("exec", "-T", node, "python", "/opt/jetraft/healthcheck.py", path))
        assert isinstance(found, dict)
        return found

    def is_ready(self, node: str) -> bool:
        """Whether all streams of a node are current."""
        words = [*(compose_words() or []), "-f", str(COMPOSE_FILE), "exec", "-T", node]
        done = subprocess.run(
            [*words, "python", "/opt/jetraft/healthcheck.py", "--ready"],
            capture_output=True,
            check=False,
            timeout=COMMAND_S,
            env={**os.environ, **self.environment},
        )
        return done.returncode == 0

    def wait_ready(self) -> None:
        """Return when all nodes are. Raises CheckFailedError."""
        for node in NODES:
            wait_until(partial(self.is_ready, node), f"{node} is current")

    # The life of the project.

    def up(self) -> None:
        """Start the nodes, or start them again with what has changed, and wait until they are current."""
        self.compose("up", "--no-build", "--detach", *NODES)
        self.wait_ready()

    def next_image(self, tag: str, *lines: str) -> str:
        """Another image with the same contents and these lines more, as after a build of new code."""
        name, text = f"{self.project}:{tag}", "\n".join([f"FROM {self.image}", f"LABEL check={tag}", *lines, ""])
        run(["docker", "build", "-t", name, "-"], stdin=text)
        self.made_images.append(name)
        return name

    def upgrade(self, wait_s: float = COMMAND_S) -> str:
        """Put the present image on one node after the other; returns what is said. Raises CheckFailedError."""
        words = [str(DEPLOY / "rolling-upgrade.sh"), f"{wait_s:.0f}"]
        return run(words, environment=self.environment, timeout_s=4 * COMMAND_S)

    def down(self) -> None:
        """Remove everything that this object has made."""
        self.compose("--profile", "spark", "down", "--volumes", "--timeout", "20")
        for image in self.made_images:
            run(["docker", "rmi", "--force", image], check=False)
        shutil.rmtree(self.directory)

    def left_behind(self) -> list[str]:
        """What of the project is still there."""
        label = f"label=com.docker.compose.project={self.project}"
        kinds = (["ps", "--all"], ["volume", "ls"], ["network", "ls"])
        found = [line for kind in kinds for line in run(["docker", *kind, "-q", "--filter", label]).split()]
        return found + run(["docker", "images", "-q", self.project]).split()


def wait_until(holds: Callable[[], bool], what: str, timeout_s: float = READY_S) -> None:
    """Return when it holds. Raises CheckFailedError."""
    deadline = time.monotonic() + timeout_s
    while not holds():
        if time.monotonic() > deadline:
            raise CheckFailedError(f"not within {timeout_s:.0f} s: {what}")
        time.sleep(LOOK_S)


def answers(port: int) -> bool:
    """Whether something listens at this port of the host."""
    try:
        socket.create_connection((HOST, port), 1.0).close()
    except OSError:
        return False
    return True
