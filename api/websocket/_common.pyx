"""What the connections of a WebSocket listener have in common: its limits, its close frames, its compressor.

Compression (permessage-deflate, RFC 7692) is zlib's, one call for each message of WebSocket, which has many of NATS. No
context is kept from one to the next on either side, so one compressor serves all connections; a flush makes it forget.
"""

import zlib

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memset

from jetraft.api.websocket._state cimport CLOSE_TEXTS, CONTROL_BYTES, ws_shared_t

cdef enum:
    TAIL_BYTES = 4      # 00 00 ff ff, which every flush ends with and no message has

RAW = -15               # a stream without zlib's head and checksum
BEST_SPEED = 1          # as in nats-server


cdef class WebSocketCommon:
    """Made once for a listener, or for all hubs. `closes` has the payload of the close frame for each reason with one."""

    def __cinit__(self, *, int64_t ping_interval_ns, uint64_t packed_max, uint64_t plain_max, dict closes, on_http):
        cdef bytes payload
        memset(&self.shared, 0, sizeof(ws_shared_t))
        self.shared.ping_interval_ns = ping_interval_ns
        self.shared.packed_max = packed_max
        self.shared.plain_max = plain_max
        self.shared.common = <void*>self
        self.payloads = []
        self.on_http = on_http
        for reason, payload in closes.items():
            assert 0 <= reason < CLOSE_TEXTS
            assert 2 <= len(payload) <= CONTROL_BYTES
            self.payloads.append(payload)
            self.shared.closes[<int>reason].p = PyBytes_AS_STRING(payload)
            self.shared.closes[<int>reason].n = PyBytes_GET_SIZE(payload)

    cdef bytes deflate(self, bytes plain):
        if self.compressor is None:
            self.compressor = zlib.compressobj(BEST_SPEED, zlib.DEFLATED, RAW)
        try:
            return self.compressor.compress(plain) + self.compressor.flush(zlib.Z_FULL_FLUSH)
        except BaseException:
            self.compressor = None      # what it holds now belongs to no message
            raise


cdef bint deflated(ws_shared_t* shared, const char* data, size_t n, char** packed, size_t* packed_len) noexcept with gil:
    """Compress a message; the result stays until the next call. False: send it as it is."""
    cdef WebSocketCommon common = <WebSocketCommon>shared.common
    try:
        common.packed = common.deflate(data[:n])
    except (MemoryError, zlib.error):
        return False
    packed[0] = PyBytes_AS_STRING(common.packed)
    packed_len[0] = PyBytes_GET_SIZE(common.packed) - TAIL_BYTES
    return True
