"""The records that peers send each other on the channel ROUTE: messages, and changes of interest.

Those of the account `$G` are ROUTE_MESSAGE and ROUTE_INTEREST. Those of another one carry its number as a u32 right
behind the head; ROUTE_ACCOUNT has told its name before: the number in the place of the headers' length, the name in that
of the subject. A number is the sender's and of its link; it may be given to another name, and is free when the name is
empty. A peer is sent such records when it has said that it knows them (api/routes.py).

The kind of a message has its origin (cluster/capture/reach.py) in the upper four bits, 0 for a client's; a peer is sent origins
when it has said that it knows them. What one sends that has not said so is of an unknown origin, or a delivery where the
subject shown is another one.

Behind the head, and that number: for each queue group a u16 length and its name, then subject, shown subject (empty: the same), reply,
headers, payload. A record of interest has its weight in the place of the headers' length, the queue group (if it is about
one) as the only queue, and the subject.
"""

from libc.stdint cimport uint8_t, uint16_t, uint32_t

cdef enum:
    ROUTE_HEAD_BYTES = 20
    ROUTE_MESSAGE = 1
    ROUTE_INTEREST = 2
    ROUTE_ACCOUNT = 3
    ROUTE_ACCOUNT_MESSAGE = 4
    ROUTE_ACCOUNT_INTEREST = 5
    ROUTE_ORIGIN_SHIFT = 4      # in a kind
    ROUTE_KIND_MASK = 15

cdef packed struct RouteHead:   # little endian
    uint32_t length             # the whole record, bytes
    uint8_t kind                # ROUTE_MESSAGE, ...
    uint8_t queue_count
    uint16_t shown_len
    uint32_t hdr_len            # of interest: how many members the sender has now, 0 ends it; of an account: its number
    uint32_t payload_len
    uint16_t subject_len
    uint16_t reply_len
