"""TLS for clients: who may use it, how a handshake goes, how records become bytes of the protocol.

It answers what a `tls` block asks for, and owns OpenSSL's objects. It never parses the protocol, and no byte that
arrived outside of a record reaches a parser once a connection speaks TLS.
"""
