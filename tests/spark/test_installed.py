"""The connector in places where it is not installed, or where the session is remote: `--py-files` and Spark Connect."""

import importlib.util
import json
import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pyspark_jetstream.java import JavaMissingError, ensure_java
from tests.harness.raw import RawClient
from tests.harness.server import ROOT, Server
from tests.spark.conftest import QUICK_START
from tests.spark.streams import create, delete, publish

pytestmark = [pytest.mark.campaign, pytest.mark.spark]

JOB = ROOT / "tests" / "spark" / "install_job.py"
JOB_TIMEOUT_S = 240
NOT_FOUND = "DATA_SOURCE_NOT_FOUND"
CONNECT = {"SPARK_TESTING": "1", "JAVA_TOOL_OPTIONS": QUICK_START}  # a free port instead of 15002


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python that has everything that this one has, but not the connector: its path file is not read there."""
    place = tmp_path_factory.mktemp("bare")
    venv.create(place, with_pip=False)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = place / "lib" / version / "site-packages" / "packages.pth"
    packages.write_text(sysconfig.get_paths()["purelib"] + "\n", encoding="utf-8")
    return place / "bin" / "python"


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The modules of the wheel under a name that `--py-files` takes; tests/artefacts builds the wheel."""
    path = tmp_path_factory.mktemp("archive") / "pyspark_jetstream.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for module in (ROOT / "src" / "pyspark_jetstream").rglob("*.py"):
            archive.write(module, module.relative_to(ROOT / "src"))
    return path


@pytest.fixture
def streams(client: RawClient) -> Iterator[None]:
    """IN with 40 messages, and OUT, which takes what is written."""
    create(client, "IN")
    publish(client, "IN", 40)
    create(client, "OUT", subjects=["OUT.>", "fences.>"], allow_atomic=True, allow_rollup_hdrs=True)
    yield
    delete(client, "IN")
    delete(client, "OUT")


def run(words: list[str], python: Path, **env: str) -> dict[str, Any]:
    """What each step of a job has said."""
    try:
        ensure_java()
    except JavaMissingError as error:
        pytest.skip(str(error))
    known = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "SPARK_REMOTE"}}
    done = subprocess.run(
        words,
        env=known | {"PYSPARK_PYTHON": str(python), "SPARK_LOCAL_IP": "127.0.0.1", **env},
        capture_output=True,
        text=True,
        timeout=JOB_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {step: said for line in lines for step, said in line.items()}


def copied(client: RawClient) -> int:
    """How many messages of OUT are no fences; none is there twice."""
    found = client.api("STREAM.INFO.OUT", {"subjects_filter": "OUT.>"})["state"]["subjects"]
    assert set(found.values()) == {1}
    return len(found)


@pytest.mark.usefixtures("streams")
def test_spark_submit_takes_the_package_as_a_file(
    server: Server, client: RawClient, bare: Path, archive: Path, tmp_path: Path
) -> None:
    home = Path(str(importlib.util.find_spec("pyspark").origin)).parent  # type: ignore[union-attr]
    words = [str(home / "bin" / "spark-submit"), "--py-files", str(archive), "--driver-java-options", QUICK_START]
    said = run([*words, str(JOB), "submit", server.url, str(tmp_path)], bare, SPARK_HOME=str(home))
    assert NOT_FOUND in said["found"]
    assert "pyspark_jetstream.zip" in said["package"]
    assert (said["registered"], said["copied"]) == (list(range(1, 41)), True)
    assert copied(client) == 40


@pytest.mark.usefixtures("streams")
def test_a_session_of_spark_connect_reads_and_writes(server: Server, client: RawClient, tmp_path: Path) -> None:
    words = [sys.executable, str(JOB), "connect", server.url, str(tmp_path)]
    path = {"PYTHONPATH": str(ROOT / "src"), **CONNECT}
    said = run(words, Path(sys.executable), **path)
    assert (said["found"], said["registered"], said["copied"]) == (list(range(1, 41)), list(range(1, 41)), True)
    assert copied(client) == 40


@pytest.mark.usefixtures("streams")
def test_a_session_of_spark_connect_takes_the_package_as_an_artifact_for_batch_reads(
    server: Server, bare: Path, archive: Path, tmp_path: Path
) -> None:
    """Spark 4.3 does not give artifacts to the process that plans streaming reads."""
    words = [str(bare), str(JOB), "connect", server.url, str(tmp_path), str(archive)]
    said = run(words, bare, **CONNECT)
    assert NOT_FOUND in said["found"]
    assert said["registered"] == list(range(1, 41))
    assert "No module named 'pyspark_jetstream'" in said["copied"]
