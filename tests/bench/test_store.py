"""The short form of `make bench-store`: everything it measures works. How fast it is, `make bench-store` says."""

from pathlib import Path

import pytest

from tests.bench import codecs, opening, store
from tests.bench.measure import build_generator


def test_reads_and_compaction_are_measured(tmp_path: Path) -> None:
    reads = store.measure_reads(tmp_path / "reads", 20_000)
    assert reads["read p99 us"] > 0
    compacted = store.measure_compaction(tmp_path / "kv", 300_000, 1000)  # a third is in the block that still grows
    assert compacted["after MB"] < compacted["before MB"] / 2


def test_sealing_is_measured() -> None:
    pytest.importorskip("cryptography", reason="encryption at rest needs the package cryptography")
    assert all(value > 0 for value in store.measure_sealing().values())


def test_a_killed_server_has_all_messages_again_with_and_without_checkpoints(tmp_path: Path) -> None:
    figures = store.measure_server("jetraft", build_generator(tmp_path), messages=100_000, subjects=1000)
    assert figures["ready s"] > 0
    assert figures["full scan s"] > 0
    assert figures["purge s"] > 0


def test_the_opening_of_a_long_stream_beside_a_short_one_is_measured(tmp_path: Path) -> None:
    figures = opening.measure("jetraft", build_generator(tmp_path), messages=50_000, subjects=1000)
    assert 0 < figures["first get s"] <= figures["complete s"]
    assert figures["longest wait of the side ms"] > 0
    assert figures["scan: side get s"] > 0


def test_what_keys_and_codecs_cost_is_measured(tmp_path: Path) -> None:
    pytest.importorskip("cryptography", reason="encryption at rest needs the package cryptography")
    figures = codecs.measure(build_generator(tmp_path), codecs.WAYS["aes"], 5000)
    assert set(figures) == {"publish ns", "publish, window 1,000 ns", "afterwards ns", "bytes on disk", "read ns"}
    assert figures["bytes on disk"] > codecs.SIZE_BYTES
    assert min(figures["publish ns"], figures["read ns"]) > 0
