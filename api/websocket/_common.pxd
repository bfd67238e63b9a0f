"""What the connections of a WebSocket listener have in common: its limits, its close frames, its compressor."""

from jetraft.api.websocket._state cimport ws_shared_t

cdef class WebSocketCommon:
    cdef ws_shared_t shared
    cdef object on_http     # called with the id of a connection and what it sends before its upgrade
    cdef object compressor  # of zlib
    cdef bytes packed       # its last result
    cdef list payloads      # `shared` points into them

    cdef bytes deflate(self, bytes plain)

cdef bint deflated(ws_shared_t* shared, const char* data, size_t n, char** packed, size_t* packed_len) noexcept nogil
