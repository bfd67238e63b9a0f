"""Why a connection was closed: the data plane's numbers and the texts of nats-server's monitoring."""

import enum


class Reason(enum.IntEnum):
    """The values are `CloseReason` of api/plane/_types.pxd."""

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
    AUTHENTICATION_EXPIRED = 14
    TLS_HANDSHAKE_FAILURE = 20
    MAXIMUM_CONNECTIONS_EXCEEDED = 21
    DUPLICATE_LEAFNODE = 22
    WRONG_PORT = 23
    CLUSTER_NAMES_IDENTICAL = 24
    MINIMUM_VERSION_REQUIRED = 25
    MAXIMUM_ACCOUNT_CONNECTIONS_EXCEEDED = 26
    READ_ERROR = 30
    CREDENTIALS_REVOKED = 40
    PROXY_NOT_TRUSTED = 41
    PROXY_REQUIRED = 42


SLOW = frozenset({Reason.SLOW_CONSUMER_PENDING, Reason.SLOW_CONSUMER_DEADLINE})
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
    Reason.AUTHENTICATION_EXPIRED: "Authentication Expired",
    Reason.TLS_HANDSHAKE_FAILURE: "TLS Handshake Failure",
    Reason.MAXIMUM_CONNECTIONS_EXCEEDED: "Maximum Connections Exceeded",
    Reason.DUPLICATE_LEAFNODE: "Duplicate Remote LeafNode Connection",
    Reason.WRONG_PORT: "Wrong Port",
    Reason.CLUSTER_NAMES_IDENTICAL: "Cluster Names Identical",
    Reason.MINIMUM_VERSION_REQUIRED: "Minimum Version Required",
    Reason.MAXIMUM_ACCOUNT_CONNECTIONS_EXCEEDED: "Maximum Account Connections Exceeded",
    Reason.READ_ERROR: "Read Error",
    Reason.CREDENTIALS_REVOKED: "Credentials Revoked",
    Reason.PROXY_NOT_TRUSTED: "Proxy Not Trusted",
    Reason.PROXY_REQUIRED: "Proxy Required",
}
