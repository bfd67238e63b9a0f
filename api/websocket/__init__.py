"""WebSocket for clients: which requests are upgraded, how frames become bytes of the protocol and back.

It answers what a `websocket` block asks for. It never parses the protocol of NATS, and no byte of a client reaches a
parser before its request for an upgrade is accepted.
"""
