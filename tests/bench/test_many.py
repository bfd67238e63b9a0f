"""The short form of `make bench-many`: everything it measures works, and a quiet stream costs what it should."""

from tests.bench import many

STREAMS = 30
KIB = 1024


def test_a_quiet_stream_takes_little_disk_one_descriptor_and_is_back_after_sigkill() -> None:
    figures = many.measure("jetraft", STREAMS, idle_s=0.2, rest_s=0.2)
    assert figures.created_per_s > 0
    assert 0 < figures.create_p50_ms <= figures.create_p99_ms
    of_the_node = 1_000 * KIB  # the ledger twice, the meta group
    assert figures.disk_mb * 1e6 < of_the_node + STREAMS * 100 * KIB
    assert figures.disk_after_mb * 1e6 < of_the_node + STREAMS * 100 * KIB, "a start begins no new block"
    assert figures.back_s > 0
