"""Parquet files of streams: whole or not there, in row groups as they are read; `jetraft export` writes them."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pyspark_jetstream import offsets_of, read_arrow, to_parquet
from pyspark_jetstream.errors import BadOptionError, ServersUnavailableError, StreamNotFoundError
from pyspark_jetstream.export import OPTIONS
from pyspark_jetstream.flags import flag_of
from pyspark_jetstream.options import KNOWN
from pyspark_jetstream.parquet import groups
from tests.harness.patience import PATIENCE_S
from tests.harness.raw import RawClient
from tests.harness.server import ROOT, Server
from tests.spark.streams import create, delete, publish


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_a_file_has_the_rows_in_row_groups_and_the_positions(server: Server, client: RawClient, tmp_path: Path) -> None:
    create(client, "FILED")
    publish(client, "FILED", 1000, headers=lambda number: [("n", str(number))] if number % 5 == 0 else [])
    path = tmp_path / "filed.parquet"
    done = to_parquet(path, servers=server.url, stream="FILED", row_group_rows=300)
    assert (done.rows, done.row_groups, done.file_bytes) == (1000, 4, path.stat().st_size)
    assert [pq.ParquetFile(path).metadata.row_group(number).num_rows for number in range(4)] == [300, 300, 300, 100]
    table = read_arrow(servers=server.url, stream="FILED")
    assert pq.read_table(path).equals(table)
    assert offsets_of(path) == offsets_of(table) == {"start": done.start, "end": done.end}
    assert names(tmp_path) == ["filed.parquet"]


def test_a_group_is_cut_by_rows_and_by_bytes() -> None:
    batches = [pa.RecordBatch.from_pydict({"n": list(range(start, start + 10))}) for start in (0, 10, 20)]
    by_rows = list(groups(iter(batches), batches[0].schema, 7, 1 << 20))
    assert [len(group) for group in by_rows] == [7, 7, 7, 7, 2]
    assert pa.concat_tables(by_rows).column("n").to_pylist() == list(range(30))
    assert [len(group) for group in groups(iter(batches), batches[0].schema, 100, 100)] == [20, 10]
    assert list(groups(iter(()), batches[0].schema, 7, 1)) == []


def test_a_file_appears_when_it_is_whole_and_nothing_is_left_of_a_failure(
    server: Server, client: RawClient, tmp_path: Path
) -> None:
    """The stream is deleted while the second range is due; the first has been written."""
    create(client, "BROKEN")
    publish(client, "BROKEN", 400)
    path = tmp_path / "broken.parquet"
    path.write_bytes(b"before")
    given: dict[str, Any] = {"servers": server.url, "stream": "BROKEN", "retryTimeout": "1s", "minPartitions": 2}
    with pytest.raises(BadOptionError, match="exists"):
        to_parquet(path, **given)

    seen: list[list[str]] = []
    real = pq.ParquetWriter.write_table

    def deleting(writer: Any, *args: Any, **options: Any) -> None:
        real(writer, *args, **options)
        if not seen:
            seen.append(names(tmp_path))
            delete(client, "BROKEN")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pq.ParquetWriter, "write_table", deleting)
        with pytest.raises((StreamNotFoundError, ServersUnavailableError)):
            to_parquet(path, overwrite=True, row_group_rows=150, **given)
    assert len(seen[0]) == 2
    assert seen[0][0].endswith(".unfinished")
    assert names(tmp_path) == ["broken.parquet"]
    assert path.read_bytes() == b"before"


@pytest.mark.parametrize(
    ("path", "given", "text"),
    [
        ("none/x.parquet", {}, "the directory .*none does not exist"),
        (".", {}, "is a directory"),
        ("x", {"compression": "rar"}, "'rar' is none of zstd"),
        ("x", {"row_group_rows": 0}, "at least 1"),
    ],
)
def test_what_cannot_be_written_is_said_before_anything_is_read(
    tmp_path: Path, path: str, given: dict[str, Any], text: str
) -> None:
    with pytest.raises(BadOptionError, match=text):
        to_parquet(tmp_path / path, servers="nats://127.0.0.1:1", stream="S", **given)


# --- the command ------------------------------------------------------------------------------------------------------
COMMANDS = {"jetraft export": ["-m", "jetraft", "export"], "pyspark_jetstream": ["-m", "pyspark_jetstream", "export"]}


def export(*words: str, command: str = "jetraft export", **env: str) -> subprocess.CompletedProcess[str]:
    """Run the command."""
    return subprocess.run(
        [sys.executable, *COMMANDS[command], *words],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), **env},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def test_an_export_goes_on_after_another(server: Server, client: RawClient, tmp_path: Path) -> None:
    create(client, "EXPORT")
    publish(client, "EXPORT", 50)
    first, second = str(tmp_path / "1.parquet"), str(tmp_path / "2.parquet")
    where = ["--servers", server.url, "--stream", "EXPORT"]
    done = export(*where, "--subject", "EXPORT.s0", "--columns", "stream_seq,data", "--starting-offsets", "11", first)
    assert (done.returncode, done.stderr) == (0, "")
    said = json.loads(done.stdout)
    assert (said["path"], said["rows"], said["row_groups"], said["end"]["seq"]) == (first, 13, 1, 51)
    assert pq.read_table(first).column("stream_seq").to_pylist() == list(range(13, 51, 3))
    publish(client, "EXPORT", 10)
    done = export(*where, "--after", first, second, command="pyspark_jetstream")
    assert (done.returncode, done.stderr) == (0, "")
    assert pq.read_table(second).column("stream_seq").to_pylist() == list(range(51, 61))
    done = export(*where, second)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"jetraft export: {second} exists; overwrite replaces it\n"
    assert export(*where, "--overwrite", second).returncode == 0


def test_a_password_comes_from_the_environment(server: Server, tmp_path: Path) -> None:
    config = "authorization { user: me, password: right }\n"
    with Server(server.kind, directory=tmp_path / "server", config=config) as guarded:
        with RawClient(guarded.address, connect=False) as client:
            client.connect(user="me", **{"pass": "right"})
            create(client, "GUARDED")
        words = ["--servers", guarded.url, "--stream", "GUARDED", "--user", "me", "--password-env", "SECRET"]
        path = str(tmp_path / "x.parquet")
        wrong = export(*words, path, SECRET="wrong")
        assert wrong.returncode == 1
        assert "Authorization Violation" in wrong.stderr
        assert "wrong" not in wrong.stderr
        missing = export(*words, path)
        assert missing.returncode == 2
        assert missing.stderr.endswith("--password-env: the environment variable SECRET is not set or empty\n")
        assert export(*words, path, SECRET="right").returncode == 0
        assert pq.read_table(path).num_rows == 0


def test_errors_are_one_line_and_a_status(server: Server, tmp_path: Path) -> None:
    path = str(tmp_path / "x.parquet")
    unknown = export("--servers", server.url, "--stream", "NOWHERE", path)
    assert (unknown.returncode, unknown.stderr) == (1, "jetraft export: stream 'NOWHERE' does not exist\n")
    wrong = export("--servers", server.url, "--stream", "S", "--starting-offsets", "soon", path)
    assert wrong.returncode == 2
    assert wrong.stderr.startswith("jetraft export: option 'startingOffsets': expected earliest, latest")
    assert export("--stream", "S").returncode == 2
    assert names(tmp_path) == []
    (tmp_path / "x.txt").write_text("text")
    other = export("--servers", server.url, "--stream", "S", "--after", str(tmp_path / "x.txt"), path)
    assert other.returncode == 2
    assert "is no Parquet file" in other.stderr


def test_help_has_every_option_of_a_batch_read_and_no_flag_takes_a_secret() -> None:
    done = export("--help")
    assert done.returncode == 0
    named = {name for group in OPTIONS.values() for name in group}
    queries = {"pushdown", "durable", "minRowsPerTrigger", "maxTriggerDelay", "minPartitions", "maxPartitionRows"}
    queries |= {"decode", "mode", "subjectTokens"}  # of typed rows, which a file does not have
    assert named | queries | {"statsDir"} == set(KNOWN.values())
    assert all(flag_of(name) in done.stdout for name in named)
    assert not {"--password ", "--token ", "--jwt ", "--nkey-seed "} & {f"{word} " for word in done.stdout.split()}


def test_a_signal_in_the_middle_of_writing_leaves_nothing_behind(
    server: Server, client: RawClient, tmp_path: Path
) -> None:
    create(client, "SIGNAL")
    publish(client, "SIGNAL", 5)
    script = "import signal, sys, pyarrow.parquet as pq, jetraft.__main__ as m\n"
    script += "pq.ParquetWriter.write_table = lambda *a, **o: (print('writing', flush=True), signal.pause())\n"
    script += "sys.exit(m.main())"
    with subprocess.Popen(
        [sys.executable, "-c", script, "export", "--servers", server.url, "--stream", "SIGNAL", str(tmp_path / "x")],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "writing\n"
        assert len(names(tmp_path)) == 1
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 143
        assert process.stderr.read() == "jetraft export: stopped by SIGTERM\n"
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    ("missing", "text"),
    [
        ("pyspark_jetstream", "the extra tools is not installed: pip install 'jetraft[tools]'"),
        ("pyarrow", "pyspark_jetstream.to_parquet needs pyarrow: pip install pyarrow"),
    ],
)
def test_the_server_does_not_depend_on_what_an_export_needs(missing: str, text: str) -> None:
    script = f"import sys; sys.modules[{missing!r}] = None; import jetraft.__main__ as m; sys.exit(m.main())"
    done = subprocess.run(
        [sys.executable, "-c", script, "export", "--servers", "a", "--stream", "S", "x.parquet"],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (1, f"jetraft export: {text}\n")
