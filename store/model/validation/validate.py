"""The validation of configurations, for import by other layers.

The usual order for a create: `check_*_create_request` (against the request subject), `normalise_*` (against
nats-server's rules), then checks that need the other assets.
"""

from jetraft.store.model.limits import NO_LIMITS, ServerLimits
from jetraft.store.model.validation.validate_consumer import (
    CreateForm,
    check_consumer_action,
    check_consumer_create_request,
    check_consumer_fits,
    check_consumer_update,
    normalise_consumer,
)
from jetraft.store.model.validation.validate_stream import (
    check_stream_create_request,
    check_stream_update,
    check_stream_update_request,
    normalise_stream,
    same_stream,
)

__all__ = [
    "NO_LIMITS",
    "CreateForm",
    "ServerLimits",
    "check_consumer_action",
    "check_consumer_create_request",
    "check_consumer_fits",
    "check_consumer_update",
    "check_stream_create_request",
    "check_stream_update",
    "check_stream_update_request",
    "normalise_consumer",
    "normalise_stream",
    "same_stream",
]
