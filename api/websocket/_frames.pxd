"""Frames of WebSocket: from the bytes of a connection to payloads and back."""

from jetraft.api.websocket._state cimport Piece, ws_shared_t, ws_t

cdef ws_t* ws_new(ws_shared_t* shared) noexcept nogil
cdef void ws_free(ws_t* ws) noexcept
cdef Piece frames_next(ws_t* ws, char** data, size_t* n, char** piece, size_t* piece_len) noexcept nogil
cdef size_t frame_some(ws_t* ws, const char* data, size_t n) noexcept nogil
cdef int wire_append(ws_t* ws, const char* data, size_t n) noexcept nogil
cdef void wire_free(ws_t* ws) noexcept nogil
cdef void ws_close_with(ws_t* ws, const char* payload, size_t n) noexcept nogil
cdef void ws_close_for(ws_t* ws, int reason) noexcept nogil
