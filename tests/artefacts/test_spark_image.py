"""The stages of deploy/Dockerfile for the Spark job, and the extra `spark`: both read a stream of a real server."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from jetraft.store.model.extras import EXTRAS
from pyspark_jetstream.java import JavaMissingError, ensure_java
from tests.artefacts.building import OF_THE_SERVER, Artefacts, construct, spark_context, stages
from tests.artefacts.dockerfile import OF_THE_BASE, Construction
from tests.artefacts.environments import Environment, closure, requirements_in
from tests.harness.raw import RawClient
from tests.harness.server import ROOT, Server

pytestmark = [
    pytest.mark.campaign,
    pytest.mark.timeout(900),  # a compiler beside other tests on two cores
    pytest.mark.slow("packs and installs 800 MB of Spark and its libraries"),
    pytest.mark.spark,
]
OF_SPARK = ("spark-build", "spark")
JOB = ROOT / "deploy" / "spark_consumer.py"
COUNTED = {"orders.0": 4, "orders.1": 3}


@pytest.fixture(scope="module")
def image(artefacts: Artefacts, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Construction]:
    """The stages of the Spark job, carried out on the wheels that the server's stages have made."""
    root = tmp_path_factory.mktemp("spark_image")
    (root / "stages").mkdir()
    (root / "stages" / "build").symlink_to(artefacts.stage("build"))
    wanted = [stage for stage in stages() if stage.name in ("installer", *OF_SPARK)]
    yield construct(root, spark_context(root / "context"), wanted)
    shutil.rmtree(root)  # 3 GB


@pytest.fixture
def orders(tmp_path: Path) -> Iterator[tuple[str, int]]:
    """The address of a server that has messages in the stream ORDERS."""
    try:
        ensure_java()
    except JavaMissingError as error:
        pytest.skip(str(error))
    (tmp_path / "server").mkdir()
    with Server("jetraft", directory=tmp_path / "server") as server, RawClient(server.address) as client:
        assert "error" not in client.api("STREAM.CREATE.ORDERS", {"name": "ORDERS", "subjects": ["orders.>"]})
        for subject, count in COUNTED.items():
            for _ in range(count):
                client.acknowledged(subject, b"1")
        yield server.address


def check_job(environment: Environment, orders: tuple[str, int], place: Path) -> None:
    """The job of the image, once to the present end, with the Python of this environment."""
    place.mkdir()
    host, port = orders
    words = ["--servers", f"nats://{host}:{port}", "--stream", "ORDERS", "--once"]
    done = environment.run("-I", str(JOB), *words, cwd=place)
    assert done.returncode == 0, done.stderr[-4000:]
    counted = {subject: int(count) for subject, count in re.findall(r"\|(orders\.\d)\s*\|\s*(\d+)", done.stdout)}
    assert counted == COUNTED, done.stdout


def test_every_step_of_the_job_is_carried_out_but_those_that_change_the_base(image: Construction) -> None:
    of_the_job = [stage for stage in stages() if stage.name not in OF_THE_SERVER]
    assert [stage.name for stage in of_the_job] == list(OF_SPARK)
    steps = [step for stage in of_the_job for step in stage.instructions if step.word == "RUN"]
    assert [step for step in steps if step not in image.done] == [step for step in steps if step in image.passed_over]
    for step in image.passed_over:
        assert any(program in step.rest for program in OF_THE_BASE)
        assert "/opt/" not in step.rest, "what is ours is in a step of its own"


def test_the_image_of_the_job_reads_a_stream_without_an_installer(
    image: Construction, orders: tuple[str, int], tmp_path: Path
) -> None:
    own = image.directory("spark")
    (site,) = (own / "opt" / "spark" / "lib").glob("python3*/site-packages")
    packages = {path.name for path in site.iterdir()}
    assert {"pyspark_jetstream", "pyspark", "pyarrow"} <= packages
    assert not packages & {"pip", "setuptools", "Cython", "jetraft"}
    check_job(Environment(own / "opt" / "spark", is_there=True), orders, tmp_path / "job")


def test_the_extra_spark_brings_what_a_job_needs(artefacts: Artefacts, orders: tuple[str, int], tmp_path: Path) -> None:
    environment = Environment(tmp_path / "venv")
    (connector,) = [one for one in requirements_in(artefacts.server_wheel, "spark") if one.name == "pyspark-jetstream"]
    assert connector.extras == {"spark"}
    wanted = requirements_in(artefacts.server_wheel) + requirements_in(artefacts.spark_wheel, "spark")
    environment.link(closure(wanted).values())
    environment.install(artefacts.server_wheel, artefacts.spark_wheel)
    assert environment.pip("check").stdout == "No broken requirements found.\n"
    done = environment.run("-m", "jetraft.api.cli.prepare", cwd=tmp_path)
    missing = {line.split("the extra ")[1].split()[0] for line in done.stderr.splitlines()}
    assert missing == {extra.name for extra in EXTRAS} - {"tools"}, "the connector is what the tools need"
    check_job(environment, orders, tmp_path / "job")
