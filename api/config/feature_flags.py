"""`feature_flags`: switches of nats-server 2.15. One that would differ from jetraft's only way is refused by name."""

from jetraft.api.config.blocks import PlacedError
from jetraft.api.config.gotypes import go_type
from jetraft.api.config.grammar import Table
from jetraft.api.config.settings import OptionsError
from jetraft.api.options.feature_flags import DEFAULTS, OF_NO_EFFECT


def feature_flags(_key: str, value: object) -> tuple[tuple[str, bool], ...]:
    """Flags by name. Others than nats-server's have no effect there, and none here."""
    if not isinstance(value, Table):
        raise OptionsError(f"error parsing feature flags: unsupported type {go_type(value)}")
    for name, flag in value.items():
        if not isinstance(flag, bool):
            text = f'error parsing feature flag "{name}": expected bool, got {go_type(flag)}'
            raise PlacedError(f"{value.place(name)}: {text}")
        if name not in OF_NO_EFFECT and flag != DEFAULTS.get(name, flag):
            raise PlacedError(f'{value.place(name)}: "feature_flags: {name}" is not served by jetraft yet')
    return tuple(sorted(value.items()))
