"""Pages about what this server has none of: gateways. The document is nats-server's without any."""

from typing import Any


def gatewayz(head: dict[str, Any]) -> dict[str, Any]:
    """The document of /gatewayz."""
    return head | {"outbound_gateways": {}, "inbound_gateways": {}}
