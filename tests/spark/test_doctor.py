import sys
from pathlib import Path

import pytest

from pyspark_jetstream import doctor
from pyspark_jetstream.__main__ import main
from pyspark_jetstream.errors import JetStreamSourceError
from pyspark_jetstream.java import JavaMissingError, ensure_java
from tests.harness.raw import RawClient
from tests.harness.server import ROOT, Server
from tests.spark.streams import create


def test_a_healthy_place_gets_a_line_for_each_check(
    server: Server, client: RawClient, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        ensure_java()
    except JavaMissingError as error:
        pytest.skip(f"NO HEALTHY PLACE TO LOOK AT: {error}")
    create(client, "CHECKED")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    status = main(["doctor", "--servers", server.url, "--stream", "CHECKED"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == [
        "ok   java",
        "ok   pyspark",
        "ok   pyarrow",
        "ok   PYSPARK_PYTHON",
        "ok   servers",
    ]
    assert "stream CHECKED has 0 messages and is read from any replica" in lines[-1]
    assert status == 0


def test_a_failed_check_is_one_line_and_the_status(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        "pyspark_jetstream.__main__.findings",
        lambda *_: [doctor._guarded("servers", lambda: doctor.check_servers("127.0.0.1:1", None))],
    )
    assert main(["doctor"]) == 1
    assert capsys.readouterr().out == "FAIL servers: none of 127.0.0.1:1 answers\n"


def test_an_interpreter_without_the_package_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", str(tmp_path / "python"))
    with pytest.raises(JetStreamSourceError, match="does not exist; set PYSPARK_PYTHON"):
        doctor.check_python()


def test_a_neighbour_that_breaks_the_lookup_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "pyspark_broken.py").write_text("import no_such_thing\n")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{ROOT / 'src'}")
    with pytest.raises(JetStreamSourceError, match="pyspark_broken: ModuleNotFoundError"):
        doctor.check_python()
