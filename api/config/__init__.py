"""The server's options: nats-server's flags and configuration grammar, as one frozen value.

An error in a file has its place (`file:line:column`). This package opens no port and starts nothing. A key of
nats-server that is not served is refused by name, never ignored.
"""
