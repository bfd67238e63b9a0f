"""How much of what waits is taken: keys of the `jetstream` block, with the defaults of nats-server 2.15."""

from pathlib import Path

import pytest

from jetraft.api.config.build import build_options
from jetraft.api.config.file import load_settings
from jetraft.api.config.settings import OptionsError
from jetraft.store.model.limits import QueueLimits


def limits(directory: Path, text: str) -> QueueLimits:
    path = directory / "c.conf"
    path.write_text(f"jetstream {{ {text} }}", encoding="utf-8")
    found = build_options(load_settings(path)).jetstream
    assert found is not None
    return found.limits.queues


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", QueueLimits(requests=10_000, infos=10_000, messages=100_000, bytes=128 << 20)),
        ("request_queue_limit: 5", QueueLimits(requests=5, infos=5)),
        ("request_queue_limit: 5, info_queue_limit: 7", QueueLimits(requests=5, infos=7)),
        ("info_queue_limit: 7, limits { max_ack_pending: 3 }", QueueLimits(infos=7)),
        ("max_buffered_msgs: 9, max_buffered_size: 2KB", QueueLimits(messages=9, bytes=2048)),
        ("request_queue_limit: 0, info_queue_limit: -1, max_buffered_msgs: -1", QueueLimits()),
    ],
)
def test_what_is_not_positive_is_the_default(tmp_path: Path, text: str, found: QueueLimits) -> None:
    assert limits(tmp_path, text) == found


def test_a_limit_is_a_number(tmp_path: Path) -> None:
    with pytest.raises(OptionsError, match="max_buffered_msgs"):
        limits(tmp_path, "max_buffered_msgs: many")
