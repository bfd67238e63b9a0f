"""Keys that are checked and change nothing: they tune what nats-server does inside, in a way that its users cannot see.

docs/configuration.md says of each what stands in its place. A key that a user could notice is not among them: it is
served, or refused by name (`not_served.py`).
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from jetraft.api.config.blocks import Apply
from jetraft.api.config.settings import OptionsError, Settings
from jetraft.api.config.values import boolean, duration_ns, integer, size_bytes, texts
from jetraft.store.model.gosyntax import go_quote

Check = Callable[[str, Any], Any]
FEWEST_IO: Final = 4
MOST_IO: Final = 8192
WRITE_TIMEOUTS: Final = ("default", "close", "retry")


def checked(key: str, check: Check) -> Apply:
    """A key whose value has to be right."""

    def apply(_settings: Settings, value: object) -> None:
        check(key, value)

    return apply


def write_timeout(key: str, value: object) -> str:
    """The policy for an end that takes nothing for too long: a policy; empty for the default."""
    if value not in WRITE_TIMEOUTS:
        raise OptionsError(f"{key} must be 'default', 'close' or 'retry'")
    return "" if value == "default" else str(value)


def absolute(key: str, value: object) -> int:
    """A number that is not below zero."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise OptionsError(f"Expected an absolute size for {go_quote(key)}, got {value}")
    return value


def absolute_size(key: str, value: object) -> int:
    """Bytes, not below zero."""
    return absolute(key, size_bytes(key, value))


def concurrent_io(key: str, value: object) -> int:
    """How many reads and writes of files may be under way at a time."""
    if isinstance(value, bool) or not isinstance(value, int) or not FEWEST_IO <= value <= MOST_IO:
        raise OptionsError(
            f"Expected an absolute size for {go_quote(key)} between {FEWEST_IO} and {MOST_IO}, got {value}"
        )
    return value


def keys(checks: Mapping[str, Check]) -> dict[str, Apply]:
    """The check for each key."""
    return {key: checked(key, check) for key, check in checks.items()}


AT_THE_TOP: Final = keys(
    {
        "disable_sublist_cache": boolean,
        "no_sublist_cache": boolean,
        "connect_error_reports": integer,
        "reconnect_error_reports": integer,
        "prof_block_rate": integer,
    }
)
OF_CLUSTER: Final = keys(
    {
        "accounts": texts,
        "connect_backoff": boolean,
        "ping_interval": duration_ns,
        "ping_max": integer,
        "pool_size": integer,
        "write_deadline": duration_ns,
        "write_timeout": write_timeout,
    }
)
OF_JETSTREAM: Final = keys(
    {
        "max_outstanding_catchup": size_bytes,
        "meta_compact": absolute,
        "meta_compact_size": absolute_size,
        "meta_compact_sync": boolean,
        "max_concurrent_io": concurrent_io,
    }
)
