"""`jetstream { limits { ... } }`: what requests may ask of this server.

A value of zero or less is no limit, or the default of a batch, as in nats-server.
"""

import attrs

from jetraft.api.config.blocks import apply_all, put
from jetraft.api.config.settings import Settings
from jetraft.api.config.values import go_duration_ns, integer
from jetraft.store.model.limits import BatchLimits, ServerLimits


def _batch(settings: Settings, value: object) -> None:
    found: Settings = {}
    keys = {
        "max_inflight_per_stream": put("per_stream", integer, "max_inflight_per_stream"),
        "max_inflight_total": put("per_server", integer, "max_inflight_total"),
        "max_msgs": put("messages", integer, "max_msgs"),
        "timeout": put("idle_ns", go_duration_ns, "timeout"),
    }
    apply_all("jetstream.limits.batch", value, keys, found)
    settings["batch"] = attrs.evolve(BatchLimits(), **{name: number for name, number in found.items() if number > 0})


def jetstream_limits(settings: Settings, value: object) -> None:
    """The block, as a ServerLimits. Raises PlacedError."""
    found: Settings = {}
    keys = {
        "max_ack_pending": put("max_ack_pending", integer),
        "max_request_batch": put("max_request_batch", integer),
        "duplicate_window": put("duplicate_window_ns", go_duration_ns, "duplicate_window"),
        "default_max_consumers": put("default_max_consumers", integer),
        "max_ha_assets": put("max_ha_assets", integer),
        "batch": _batch,
    }
    apply_all("jetstream.limits", value, keys, found)
    batch = found.pop("batch", BatchLimits())
    settings["jetstream_limits"] = ServerLimits(**{name: max(0, number) for name, number in found.items()}, batch=batch)
