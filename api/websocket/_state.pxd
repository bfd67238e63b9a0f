"""The data dictionary of a WebSocket connection: what the plane, the frames and the compression share."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

cdef enum WebSocketPhase:
    WS_UPGRADE = 0      # what arrives is HTTP, and Python reads it
    WS_OPEN = 1         # frames

cdef enum:
    HEAD_BYTES = 14             # the longest head of a frame
    CONTROL_BYTES = 125         # the longest payload of a control frame
    FRAME_BYTES = 64 * 1024     # of the protocol, in a frame that is sent; a busy connection has one in memory
    BROWSER_FRAME_BYTES = 4096  # in one that is sent to a browser, as nats-server does
    UNSENT_CONTROL_BYTES = 64 * 1024    # answers to a peer that never reads them
    CLOSE_TEXTS = 64

cdef enum Piece:        # what `frames_next` has found
    PIECE_NONE = 0      # all was taken
    PIECE_DATA = 1      # bytes of the protocol, or of a compressed message
    PIECE_CLOSE = 2     # the client ends the connection
    PIECE_ERROR = 3     # it broke the rules

cdef struct close_text_t:
    const char* p       # status and text
    size_t n            # 0: this reason ends a connection without a close frame

cdef struct ws_shared_t:        # what all connections of a listener have in common; it outlives them
    int64_t ping_interval_ns    # 0: that of the server
    uint64_t packed_max         # bytes of a compressed message as they arrive
    uint64_t plain_max          # and as they are after that
    close_text_t closes[64]     # by CloseReason: CLOSE_TEXTS
    void* common                # WebSocketCommon

cdef struct ws_t:
    ws_shared_t* shared
    uint8_t phase           # WebSocketPhase
    uint8_t masked          # frames of the other end have a mask
    uint8_t masks           # and those that are sent to it
    uint8_t deflates        # permessage-deflate is agreed on
    uint8_t compressed      # the message that is being received
    uint8_t in_message      # its final frame has not begun
    uint8_t in_payload      # the head of a frame is complete
    uint8_t opcode          # of the frame that is being received
    uint8_t final
    uint8_t head_len
    uint8_t control_len
    uint8_t key_at
    uint8_t ending          # the close frame is chosen; only the first one counts
    uint8_t ended           # and in `wire`
    uint8_t close_len
    uint8_t head[14]        # HEAD_BYTES
    uint8_t key[4]
    uint8_t control[125]    # CONTROL_BYTES
    uint8_t close[125]
    uint64_t left           # bytes of the payload that have not arrived
    uint32_t frame_bytes    # FRAME_BYTES or BROWSER_FRAME_BYTES
    uint64_t packed         # of the compressed message that is being received
    uint64_t plain
    void* inflater          # zlib's object for it
    const char* error       # why PIECE_ERROR
    char error_text[64]
    char* wire              # frames that wait for the socket, whole but for the first
    size_t wire_start
    size_t wire_end
    size_t wire_cap
