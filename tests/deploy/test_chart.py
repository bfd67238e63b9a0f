"""The Helm chart: what it renders is valid, is accepted by the server, and three pods of it are a cluster.

A pod is a process of this machine with the rendered configuration, environment, arguments, probes and hooks. Kubernetes
itself is not here: scheduling, volumes, policies and the order of an upgrade are its own.
"""

import base64
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

import jetraft
from tests.deploy.kubernetes import CHART, VERSIONS, Document, Pod, container, helm, mistakes, pods, rendered, the
from tests.harness.certificates import Authority
from tests.harness.patience import PATIENCE_S, until
from tests.harness.ports import HOST
from tests.harness.raw import RawClient
from tests.harness.server import ROOT, environment

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(600)]  # it fetches 60 MB, and starts servers

ACCOUNTS = """
accounts {
  SYS { users: [ {user: admin, password: "pass word"} ] }
  APP { jetstream: enabled, users: [ {user: app, password: secret} ] }
}
system_account: SYS
"""
USER: dict[str, Any] = {"user": "app", "pass": "secret"}
EVERYTHING: Document = {
    "replicas": 5,
    "image": {"repository": "registry.example/jetraft", "tag": "1", "pullPolicy": "Always", "pullSecrets": ["pull"]},
    "memory": "4Gi",
    "cpu": {"request": 2, "limit": "4"},
    "jetstream": {"maxFile": "100G", "maxMem": "512Mi", "domain": "hub"},
    "persistence": {"size": "200Gi", "storageClassName": "fast", "accessModes": ["ReadWriteOncePod"]},
    "cluster": {"name": "prod", "existingSecret": "ours", "tlsSecret": "mesh-tls"},
    "tls": {"secret": "client-tls", "verify": True},
    "accounts": {"config": ACCOUNTS},
    "extraConfig": "max_payload: 2MB\nping_interval: 30s",
    "lameDuck": {"gracePeriod": 5, "duration": 60},
    "service": {"type": "LoadBalancer", "annotations": {"example.com/internal": "true"}},
    "antiAffinity": "preferred",
    "topologySpread": {"whenUnsatisfiable": "DoNotSchedule"},
    "networkPolicy": {
        "clients": [{"namespaceSelector": {"matchLabels": {"nats": "yes"}}}],
        "monitoring": [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}],
    },
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "podAnnotations": {"a": "b"},
    "podLabels": {"c": "d"},
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"key": "dedicated", "operator": "Exists"}],
    "priorityClassName": "high",
}
FILES: dict[str, Document] = {
    "defaults": {},
    "everything": EVERYTHING,
    "one": {"replicas": 1, "antiAffinity": "none", "topologySpread": {"enabled": False}},
    "trial": {
        "persistence": {"enabled": False},
        "networkPolicy": {"enabled": False},
        "podDisruptionBudget": {"enabled": False},
        "accounts": {"existingSecret": "users"},
    },
}
REFUSED: dict[str, Document] = {
    "a word that is none": {"replica": 3},
    "two servers": {"replicas": 2},
    "a server without memory": {"memory": "128Mi"},
    "a size in words": {"persistence": {"size": "ten"}},
    "lame duck mode that the server refuses": {"lameDuck": {"duration": 20}},
    "a form of log": {"logFormat": "xml"},
}
KINDS_OF_ALL = {"ConfigMap", "Service", "ServiceAccount", "StatefulSet"}
CUSTOM = "monitoring.coreos.com/v1"  # of the operator of Prometheus: Kubernetes has no schema of it


@pytest.fixture(params=FILES)
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> list[Document]:
    """What the chart makes of one of the files of values."""
    return rendered(FILES[request.param], tmp_path)


def accepted(pod: Pod) -> subprocess.CompletedProcess[str]:
    """The answer of the server to `-t` with the configuration of a pod."""
    variables = {"PATH": "/usr/bin:/bin", **environment("jetraft"), **pod.variables()}
    return subprocess.run(
        [*pod.words(), "-t"], env=variables, capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )


def certificate(directory: Path) -> dict[str, str]:
    """A Secret of type kubernetes.io/tls with ca.crt, in clear."""
    directory.mkdir(exist_ok=True)
    authority = Authority.make(directory)
    signed = authority.sign("server")
    files = {"tls.crt": signed.cert_file, "tls.key": signed.key_file, "ca.crt": authority.ca_file}
    return {name: path.read_text(encoding="utf-8") for name, path in files.items()}


def secrets(objects: list[Document], tmp_path: Path) -> dict[str, dict[str, str]]:
    """The contents of each Secret by name: of those that the chart makes, and of those that a user makes."""
    made = {
        one["metadata"]["name"]: {key: base64.b64decode(text).decode() for key, text in one["data"].items()}
        for one in objects
        if one["kind"] == "Secret"
    }
    tls = certificate(tmp_path / "ca")
    users = {"accounts.conf": ACCOUNTS}
    return {"ours": {"cluster_secret": "s"}, "mesh-tls": tls, "client-tls": tls, "users": users} | made


def test_helm_finds_nothing_wrong_with_the_chart(tmp_path: Path) -> None:
    for number, values in enumerate(FILES.values()):
        path = tmp_path / f"{number}.yaml"
        path.write_text(yaml.safe_dump(values), encoding="utf-8")
        done = helm("lint", "--strict", str(CHART), "--values", str(path), home=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "[WARNING]" not in done.stdout


@pytest.mark.parametrize("version", VERSIONS)
def test_each_object_is_one_of_kubernetes(objects: list[Document], version: str) -> None:
    assert {one["kind"] for one in objects} >= KINDS_OF_ALL
    assert [found for one in objects if one["apiVersion"] != CUSTOM for found in mistakes(one, version)] == []


def test_an_object_with_a_mistake_is_noticed(tmp_path: Path) -> None:
    served = the(rendered({}, tmp_path), "StatefulSet")
    served["spec"]["template"]["spec"]["containers"][0]["redinessProbe"] = {}
    served["spec"]["replicas"] = "three"
    assert len(mistakes(served, VERSIONS[-1])) == 2


@pytest.mark.parametrize("values", REFUSED.values(), ids=REFUSED)
def test_values_that_are_none_are_refused(values: Document, tmp_path: Path) -> None:
    path = tmp_path / "values.yaml"
    path.write_text(yaml.safe_dump(values), encoding="utf-8")
    done = helm("template", "jetraft", str(CHART), "--values", str(path), home=tmp_path)
    assert done.returncode != 0
    assert "values don't meet the specifications of the schema" in done.stderr


def test_the_server_accepts_the_configuration(objects: list[Document], tmp_path: Path) -> None:
    for pod in pods(objects, tmp_path, secrets(objects, tmp_path)):
        done = accepted(pod)
        assert done.returncode == 0, done.stderr


def test_a_configuration_that_the_server_refuses_is_noticed(tmp_path: Path) -> None:
    objects = rendered({"extraConfig": "no_such_key: 1"}, tmp_path)
    done = accepted(pods(objects, tmp_path, secrets(objects, tmp_path))[0])
    assert done.returncode == 1
    assert "no_such_key" in done.stderr


def test_labels_ports_volumes_and_names_fit_together(objects: list[Document]) -> None:
    """No schema says that a selector finds pods, that a port has a name, or that a volume is there."""
    served = the(objects, "StatefulSet")
    labels = served["spec"]["template"]["metadata"]["labels"].items()
    assert served["spec"]["selector"]["matchLabels"].items() <= labels
    services = {one["metadata"]["name"]: one for one in objects if one["kind"] == "Service"}
    assert served["spec"]["serviceName"] in services
    ports = {one["name"] for one in container(objects)["ports"]}
    for one in services.values():
        assert one["spec"]["selector"].items() <= labels
        assert {port["targetPort"] for port in one["spec"]["ports"]} <= ports
    for one in objects:
        if one["kind"] in ("PodDisruptionBudget", "NetworkPolicy"):
            found = one["spec"].get("selector") or one["spec"]["podSelector"]
            assert found["matchLabels"].items() <= labels
        if one["kind"] == "NetworkPolicy":
            assert {port["port"] for rule in one["spec"]["ingress"] for port in rule["ports"]} == ports
    spec = served["spec"]["template"]["spec"]
    volumes = {one["name"] for one in spec["volumes"]}
    volumes |= {one["metadata"]["name"] for one in served["spec"].get("volumeClaimTemplates", ())}
    assert {one["name"] for one in container(objects)["volumeMounts"]} == volumes
    assert the(objects, "ServiceAccount")["metadata"]["name"] == spec["serviceAccountName"]
    configuration = the(objects, "ConfigMap")["data"]["node.conf"]
    places = {one["mountPath"] for one in container(objects)["volumeMounts"]}
    for path in re.findall(r'"(/[\w/.-]+)"', configuration):
        assert any(Path(path).is_relative_to(place) for place in places), f"{path} is mounted nowhere"
    named = set(re.findall(r"\$([A-Z_]+)", configuration))
    assert named <= {one["name"] for one in container(objects)["env"]}


def test_memory_and_disk_follow_what_the_pod_has(tmp_path: Path) -> None:
    objects = rendered({"memory": "2Gi", "persistence": {"size": "40Gi"}}, tmp_path)
    resources = container(objects)["resources"]
    assert resources["requests"]["memory"] == resources["limits"]["memory"] == "2Gi"
    assert f"max_file: {30 << 30}\n" in the(objects, "ConfigMap")["data"]["node.conf"]
    objects = rendered({"jetstream": {"maxFile": "7G", "maxMem": "256Mi"}}, tmp_path)
    assert f"max_file: {7 * 10**9}\n" in the(objects, "ConfigMap")["data"]["node.conf"]
    assert f"max_mem: {256 << 20}\n" in the(objects, "ConfigMap")["data"]["node.conf"]


def test_the_hook_has_the_time_that_lame_duck_mode_takes(tmp_path: Path) -> None:
    objects = rendered({"lameDuck": {"duration": 90}}, tmp_path)
    assert the(objects, "StatefulSet")["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] > 90


def test_another_configuration_is_another_pod(tmp_path: Path) -> None:
    def annotations(values: Document) -> Any:
        return the(rendered(values, tmp_path), "StatefulSet")["spec"]["template"]["metadata"]["annotations"]

    assert annotations({}) == annotations({})
    assert annotations({}) != annotations({"extraConfig": "ping_interval: 30s"})
    assert annotations({}) != annotations({"accounts": {"config": ACCOUNTS}})


def test_a_scrape_has_the_job_of_the_alert_rules(tmp_path: Path) -> None:
    objects = rendered({"serviceMonitor": {"enabled": True}}, tmp_path)
    monitor = the(objects, "ServiceMonitor")
    scraped = [
        one
        for one in objects
        if one["kind"] == "Service"
        and {endpoint["port"] for endpoint in monitor["spec"]["endpoints"]}
        <= {port["name"] for port in one["spec"]["ports"]}
    ]
    assert [one["metadata"]["labels"][monitor["spec"]["jobLabel"]] for one in scraped] == ["jetraft"]


def test_the_page_names_values_that_there_are(tmp_path: Path) -> None:
    """Each `--set` and each row of the table of docs/kubernetes.md, and the names in its commands."""
    page = (ROOT / "docs" / "kubernetes.md").read_text(encoding="utf-8")
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    named = set(re.findall(r"--set ([\w.]+)=", page)) | set(re.findall(r"^\| `([\w.]+)`", page, re.MULTILINE))
    assert len(named) > 10
    for path in named:
        at = values
        for key in path.split("."):
            assert key in at, path
            at = at[key]
    objects = rendered({}, tmp_path)
    kinds = {"statefulset": "StatefulSet", "configmap": "ConfigMap", "secret": "Secret"}
    for kind, name in re.findall(r"\b(statefulset|configmap|secret)/([\w-]+)", page):
        the(objects, kinds[kind], name)
    pod = the(objects, "StatefulSet")["metadata"]["name"]
    (claim,) = the(objects, "StatefulSet")["spec"]["volumeClaimTemplates"]
    assert set(re.findall(r"\bpvc/([\w-]+)", page)) == {f"{claim['metadata']['name']}-{pod}-1"}
    assert set(re.findall(r"\bpod/([\w-]+)", page)) <= {f"{pod}-{number}" for number in range(3)}


def test_the_chart_has_the_version_of_the_server() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert chart["version"] == chart["appVersion"] == jetraft.__version__


@contextmanager
def cluster(values: Document, tmp_path: Path) -> Iterator[list[Pod]]:
    """The pods of the chart, started and ready."""
    objects = rendered(values, tmp_path)
    found = pods(objects, tmp_path, secrets(objects, tmp_path))
    try:
        for pod in found:
            pod.start()
        for pod in found:
            pod.wait_for("startup")
            pod.wait_for("readiness")
        yield found
    finally:
        for pod in found:
            if pod.process is not None:
                pod.process.kill()


def leader(pod: Pod, stream: str) -> str:
    """The server that leads a stream, as another one is told."""
    with RawClient((HOST, pod.port(4222))) as client:
        answer = client.api(f"STREAM.INFO.{stream}", {})
    return str(answer.get("cluster", {}).get("leader", ""))


def lead(pod: Pod, other: Pod, stream: str) -> None:
    """Make a pod's server the leader of a stream, as another one sees it."""

    def does() -> bool:
        if leader(other, stream) == pod.name:
            return True
        with RawClient((HOST, other.port(4222))) as client:
            client.api(f"STREAM.LEADER.STEPDOWN.{stream}", {"placement": {"preferred": pod.name}})
        return False

    until(does)


def test_three_pods_are_a_cluster_that_survives_an_upgrade_and_the_loss_of_a_volume(tmp_path: Path) -> None:
    values = {"lameDuck": {"gracePeriod": 1}}
    with cluster(values, tmp_path) as found:
        first = found[0]
        with RawClient((HOST, first.port(4222))) as client:
            made = client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s"], "num_replicas": 3})
            assert "config" in made, made
            assert client.acknowledged("s", b"before")["seq"] == 1
        for pod in found:
            assert pod.probe("liveness")
        for upgraded in reversed(found):  # the order of a StatefulSet
            others = [pod for pod in found if pod is not upgraded]
            lead(upgraded, others[0], "S")
            hook = upgraded.before_the_end()
            assert upgraded.running.wait() == 0, "the server has ended by itself when the hook returns"
            assert hook.returncode == 0, hook.stderr
            assert leader(others[0], "S") in {pod.name for pod in others}, "a leader without an election to wait for"
            upgraded.start()
            upgraded.wait_for("readiness")
        lost = found[1]
        lost.running.kill()
        shutil.rmtree(lost.directory / "data")
        (lost.directory / "data").mkdir()
        lost.start()
        lost.wait_for("readiness")
        with RawClient((HOST, lost.port(4222))) as client:
            told = client.api("STREAM.INFO.S", {})
            assert told["state"]["messages"] == 1
            assert {one["name"] for one in told["cluster"]["replicas"]} | {told["cluster"]["leader"]} == {
                pod.name for pod in found
            }
            assert all(one["current"] for one in told["cluster"]["replicas"])


def test_pods_with_accounts_let_their_users_in(tmp_path: Path) -> None:
    with cluster({"replicas": 1, "accounts": {"config": ACCOUNTS}}, tmp_path) as (pod,):
        with RawClient((HOST, pod.port(4222)), **USER) as client:
            assert "config" in client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
        pod.running.signal(15)
        assert pod.running.wait() == 0
