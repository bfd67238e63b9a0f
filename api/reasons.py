"""Why a connection was closed: the numbers of the data plane with the words of nats-server's monitoring."""

import enum


class Reason(enum.IntEnum):
    """The values are `CloseReason` of api/wire/_types.pxd."""

    NONE = 0
    CLIENT_CLOSED = 1
    PROTOCOL_VIOLATION = 2
    MAXIMUM_PAYLOAD_EXCEEDED = 3
    MAXIMUM_CONTROL_LINE_EXCEEDED = 4
    SLOW_CONSUMER_PENDING = 5
    SLOW_CONSUMER_DEADLINE = 6
    STALE_CONNECTION = 7
    AUTHENTICATION_FAILURE = 8
    AUTHENTICATION_TIMEOUT = 9
    WRITE_ERROR = 10
    SERVER_SHUTDOWN = 11
    MAXIMUM_SUBSCRIPTIONS_EXCEEDED = 12
    KICKED = 13


TEXTS = {
    Reason.CLIENT_CLOSED: "Client Closed",
    Reason.PROTOCOL_VIOLATION: "Protocol Violation",
    Reason.MAXIMUM_PAYLOAD_EXCEEDED: "Maximum Message Payload Exceeded",
    Reason.MAXIMUM_CONTROL_LINE_EXCEEDED: "Maximum Control Line Exceeded",
    Reason.SLOW_CONSUMER_PENDING: "Slow Consumer (Pending Bytes)",
    Reason.SLOW_CONSUMER_DEADLINE: "Slow Consumer (Write Deadline)",
    Reason.STALE_CONNECTION: "Stale Connection",
    Reason.AUTHENTICATION_FAILURE: "Authentication Failure",
    Reason.AUTHENTICATION_TIMEOUT: "Authentication Timeout",
    Reason.WRITE_ERROR: "Write Error",
    Reason.SERVER_SHUTDOWN: "Server Shutdown",
    Reason.MAXIMUM_SUBSCRIPTIONS_EXCEEDED: "Maximum Subscriptions Exceeded",
    Reason.KICKED: "Kicked",
}
