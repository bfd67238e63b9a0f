"""The client protocol as bytes and values: parsing what a client sent, writing what it is sent.

Parsers keep their state between reads and hold a bounded amount; a violation is a value with the protocol's own text.
Nothing here knows a subscription, an account or a socket.
"""
