"""stream.infos: streams and their revisions -> the info of each as JSON, empty where the node cannot give it."""

from __future__ import annotations

from typing import Final

import attrs

from jetraft.raft.mesh.messages import Message, list_of, message_of, number, octets, protocol, text
from jetraft.store.model.limits import NAME_BYTES_MAX

METHOD: Final = "stream.infos"
QUESTION_BYTES_MAX: Final = 256 << 10  # a page of 256 streams whose names have 255 bytes, and some more
ANSWER_BYTES_MAX: Final = 64 << 20  # a configuration is bounded by the request that made it, mostly to a few KiB
STREAMS_MAX: Final = 1024  # a page has 256


@protocol("one of the streams of a question for infos", bytes_max=QUESTION_BYTES_MAX)
@attrs.frozen(kw_only=True, slots=True)
class InfoWanted(Message):
    """A stream, and the revision that has to be in force."""

    account: str = attrs.field(metadata=text(NAME_BYTES_MAX))
    name: str = attrs.field(metadata=text(NAME_BYTES_MAX))
    incarnation: int = attrs.field(metadata=number())
    revision: int = attrs.field(metadata=number())


@protocol("a question for infos", bytes_max=QUESTION_BYTES_MAX, bare=True)
@attrs.frozen(kw_only=True, slots=True)
class InfosQuestion(Message):
    """What do these streams look like?"""

    streams: tuple[InfoWanted, ...] = attrs.field(metadata=list_of(message_of(InfoWanted), STREAMS_MAX))


@protocol("infos", bytes_max=ANSWER_BYTES_MAX, bare=True)
@attrs.frozen(kw_only=True, slots=True)
class InfosAnswer(Message):
    """JSON, or nothing, for each of the question's streams."""

    infos: tuple[bytes, ...] = attrs.field(metadata=list_of(octets(ANSWER_BYTES_MAX), STREAMS_MAX))
