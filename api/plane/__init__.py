"""The compiled data plane: from the bytes of clients and peers to deliveries, without a Python object per message.

Bytes: `_reader` receives, `_parser` acts on each protocol line as it is read, `_writer` fills output buffers. Subjects:
`_tree` and `_sublist` find the receivers of a message, `_ahead` prefetches the memory for the next messages, `_deliver`
delivers to clients, sinks and peers. They are one package, because a line is parsed and routed in one pass over the
receive buffer.

Everything here works on subjects and bytes, never on the meaning of a message. Python is called once per turn, not per
message; `_plane` is the interface to it. A protocol violation of a client is answered with the protocol's text.
"""
