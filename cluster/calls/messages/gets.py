"""A STREAM.MSG.GET on its way to the node that leads the stream (api/jetstream/prompt_gets.py).

js.get: ForwardedGet -> ForwardedAnswer, which is never LOST
"""

from __future__ import annotations

from typing import Final

import attrs

from jetraft.raft.mesh.messages import Message, number, octets, protocol, text
from jetraft.store.model.limits import NAME_BYTES_MAX

GET: Final = "js.get"
GET_BYTES_MAX: Final = 64 << 10  # more than a get says; a longer one goes the way of all requests
HEAD_BYTES: Final = 1024  # around headers and payload


@protocol("a forwarded get", bytes_max=GET_BYTES_MAX)
@attrs.frozen(kw_only=True, slots=True)
class ForwardedGet(Message):
    """The request, and in which term of this group its sender follows the receiver; 0: it has no replica.

    The term is that of a moment after the request came: the leader counts it as the sender's word that it is still
    followed, as it would an answer to a question of its own (rule 21).
    """

    account: str = attrs.field(metadata=text(NAME_BYTES_MAX))
    stream: str = attrs.field(metadata=text(NAME_BYTES_MAX))
    incarnation: int = attrs.field(metadata=number())
    term: int = attrs.field(metadata=number())
    hdr: bytes = attrs.field(metadata=octets(GET_BYTES_MAX))
    payload: bytes = attrs.field(metadata=octets(GET_BYTES_MAX))
