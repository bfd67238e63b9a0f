import pytest

from jetraft.store.model.url import redacted


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("nats://host:1", "nats://host:1"),
        ("nats://u:p@host:1", "nats://xxxxx@host:1"),
        ("u:p//q@r@host", "xxxxx@host"),
        ("nats-route://u:p\n@host", "nats-route://xxxxx@host"),
        ("", ""),
    ],
)
def test_what_is_before_the_last_at_sign_is_not_shown(url: str, shown: str) -> None:
    assert redacted(url) == shown
