"""Frames of WebSocket: from the bytes of a connection to payloads."""

from jetraft.api.websocket._state cimport Piece, ws_shared_t, ws_t

cdef ws_t* ws_new(ws_shared_t* shared) noexcept nogil
cdef void ws_free(ws_t* ws) noexcept
cdef Piece frames_next(ws_t* ws, char** data, size_t* n, char** piece, size_t* piece_len) noexcept nogil
