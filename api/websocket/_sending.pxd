"""Frames of WebSocket on their way out."""

from libc.stdint cimport uint8_t

from jetraft.api.websocket._state cimport ws_t

cdef int wire_append(ws_t* ws, const char* data, size_t n) noexcept nogil
cdef int wire_frame(ws_t* ws, uint8_t first, const char* data, size_t n) noexcept nogil
cdef void wire_free(ws_t* ws) noexcept nogil
cdef size_t frame_some(ws_t* ws, const char* data, size_t n) noexcept nogil
cdef void ws_close_with(ws_t* ws, const char* payload, size_t n) noexcept nogil
cdef void ws_close_for(ws_t* ws, int reason) noexcept nogil
