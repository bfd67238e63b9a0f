"""Below a memory limit the defaults leave memory to the process; what was configured stays."""

import attrs
import pytest

from jetraft.api.config.build import build_options
from jetraft.api.config.fitting import PROCESS_BYTES, default_memory_bytes, fitted
from jetraft.api.config.flags import FlagError, parse_flags
from jetraft.api.config.options import CACHE_BYTES_MAX, MAX_PENDING_BYTES

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
