"""The get that most clients send: one message by its sequence or the last of a subject, without a pass through JSON.

`messages.get_confirmed` defines what a get answers; this gives the same bytes for requests and messages that are that
plain, tested against it, and costs a third. A request that is not (other fields, other spacing, escapes, a message that
is not there) is left to it.
"""

from __future__ import annotations

import re
from binascii import b2a_base64
from typing import TYPE_CHECKING, Final

from jetraft.cluster.streams.gets.asked import message_at
from jetraft.store.model.gotime import format_time
from jetraft.store.model.responses import ResponseType
from jetraft.store.model.subject import is_literal

if TYPE_CHECKING:
    from jetraft.store.stream.stream_store import StreamStore

# A number of 19 digits is below 2**64. A subject without what JSON escapes, or what is not ASCII.
_ASKED: Final = re.compile(rb'\{"(?:seq": ?([1-9][0-9]{0,18})|last_by_subj": ?"([!#-\[\]-~]+)")\}')
_PLAIN_TEXT: Final = re.compile(rb"[ !#-\[\]-~]*")
_BEGIN: Final = b'{"type":"%s","message":{"subject":"' % ResponseType.STREAM_MSG_GET.type_name.encode()


def plain_answer(store: StreamStore, body: bytes) -> bytes | None:
    """The JSON of the answer; None where the request, or what it finds, is not plain."""
    asked = _ASKED.fullmatch(body)
    if asked is None:
        return None
    seq, subject = asked.groups()
    if seq is None and not is_literal(subject):
        return None
    message = message_at(store, int(seq) if seq is not None else store.last_for(subject) or 0)
    if message is None or message.ts_ns <= 0 or _PLAIN_TEXT.fullmatch(message.subject) is None:
        return None  # 0 is the time that is not set
    return b'%s%s","seq":%d%s%s,"time":"%s"}}' % (
        _BEGIN,
        message.subject,
        message.seq,
        b',"hdrs":"%s"' % b2a_base64(message.hdr, newline=False) if message.hdr else b"",
        b',"data":"%s"' % b2a_base64(message.payload, newline=False) if message.payload else b"",
        format_time(message.ts_ns).encode(),
    )
