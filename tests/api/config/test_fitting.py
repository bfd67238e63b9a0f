"""Below a memory limit the defaults leave memory to the process; what was configured stays."""

import attrs
import pytest

from jetraft.api.config.build import build_options
from jetraft.api.config.fitting import PROCESS_BYTES, default_memory_bytes, fitted
from jetraft.api.config.flags import FlagError, parse_flags
from jetraft.api.options.options import CACHE_BYTES_MAX, MAX_PENDING_BYTES

MIB = 1 << 20


def test_without_a_limit_nothing_changes() -> None:
    options = build_options(parse_flags(["-js"]))
    assert fitted(options, None) is options


@pytest.mark.parametrize("limit_mib", [32, 128, 256, 1024, 65536])
def test_streams_cache_and_process_fit_below_the_limit(limit_mib: int) -> None:
    limit = limit_mib * MIB
    options = fitted(build_options(parse_flags(["-js"])), limit)
    assert options.jetstream is not None
    streams = options.jetstream.max_memory_store_bytes
    assert streams == default_memory_bytes(limit) > 0
    assert options.jetstream.cache_bytes_max == min(CACHE_BYTES_MAX, limit // 16)
    if limit > 2 * PROCESS_BYTES:
        assert streams + options.jetstream.cache_bytes_max + options.max_unread_bytes + PROCESS_BYTES < limit
    assert options.max_payload_bytes <= options.max_pending_bytes <= MAX_PENDING_BYTES
    assert options.max_unread_bytes == limit // 8
    assert options.max_closed_clients * 4096 <= limit // 64


def test_what_waits_for_one_peer_is_a_share_and_a_batch_of_publishes_fits_into_it() -> None:
    route = "nats://127.0.0.1:1"
    flags = parse_flags(["-js", "-n", "n1", "--cluster", route, "--cluster_name", "C", "--routes", route])
    for limit_mib, waiting_mib in ((32, 32), (256, 32), (384, 48), (65536, 64)):
        options = fitted(build_options(flags), limit_mib * MIB)
        assert options.cluster is not None
        assert options.jetstream is not None
        assert options.cluster.max_waiting_bytes == waiting_mib * MIB
        batch = options.jetstream.limits.batch
        assert 2 * batch.bytes_max <= options.cluster.max_waiting_bytes
        assert batch.bytes_max <= batch.staged_bytes <= max(limit_mib * MIB // 8, waiting_mib * MIB)


def test_what_was_configured_stays() -> None:
    options = build_options(parse_flags(["-js", "--max_mem_store", "1GB", "--max_file_store=3"]))
    options = fitted(attrs.evolve(options, max_pending_bytes=7 * MIB), 256 * MIB)
    assert options.jetstream is not None
    assert options.jetstream.max_memory_store_bytes == 1 << 30
    assert options.jetstream.max_file_store_bytes == 3
    assert options.max_pending_bytes == 7 * MIB


@pytest.mark.parametrize("word", ["", "much", "-1", "true"])
def test_a_size_that_is_none_is_refused(word: str) -> None:
    with pytest.raises(FlagError, match="max_mem_store"):
        parse_flags([f"--max_mem_store={word}"])
