"""The close frame for each reason of the server: nats-server's status and text. Pure."""

from collections.abc import Mapping
from typing import Final

from jetraft.api.plane.reasons import TEXTS, Reason

NORMAL: Final = 1000
GOING_AWAY: Final = 1001
PROTOCOL_ERROR: Final = 1002
POLICY_VIOLATION: Final = 1008
TOO_BIG: Final = 1009
INTERNAL_ERROR: Final = 1011

STATUS: Final[Mapping[Reason, int]] = {
    Reason.CLIENT_CLOSED: NORMAL,
    Reason.AUTHENTICATION_FAILURE: POLICY_VIOLATION,
    Reason.AUTHENTICATION_TIMEOUT: POLICY_VIOLATION,
    Reason.AUTHENTICATION_EXPIRED: POLICY_VIOLATION,
    Reason.MAXIMUM_CONNECTIONS_EXCEEDED: POLICY_VIOLATION,
    Reason.MAXIMUM_CONTROL_LINE_EXCEEDED: POLICY_VIOLATION,
    Reason.MAXIMUM_SUBSCRIPTIONS_EXCEEDED: POLICY_VIOLATION,
    Reason.PROTOCOL_VIOLATION: PROTOCOL_ERROR,
    Reason.MAXIMUM_PAYLOAD_EXCEEDED: TOO_BIG,
    Reason.STALE_CONNECTION: GOING_AWAY,
    Reason.SERVER_SHUTDOWN: GOING_AWAY,
}
# The peer is not there or does not read, or the frame was chosen where the rules of WebSocket were broken.
WITHOUT_FRAME: Final = frozenset({
    Reason.NONE, Reason.SLOW_CONSUMER_PENDING, Reason.SLOW_CONSUMER_DEADLINE, Reason.WRITE_ERROR, Reason.READ_ERROR,
    Reason.TLS_HANDSHAKE_FAILURE,
})  # fmt: skip


def close_frames() -> dict[int, bytes]:
    """The payload of the close frame, by reason."""
    told = [reason for reason in Reason if reason not in WITHOUT_FRAME]
    return {
        int(reason): STATUS.get(reason, INTERNAL_ERROR).to_bytes(2, "big") + TEXTS[reason].encode() for reason in told
    }
