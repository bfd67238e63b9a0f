"""Questions between nodes about the table and the streams in it (cluster/requests/inquiries.py).

stream.info:     StreamRevision -> the info as JSON      stream.settled: SettledReport -> nothing
meta.index:      MetaStateQuestion -> MetaState                      meta.caught-up: MetaIndex -> nothing
                 nothing -> MetaIndex                    (of nodes before 0.2.0, which answer so, too)
meta.look:       nothing -> nothing                      (cluster/meta/members/exclusion.py)
stream.read:     ReadIndexQuestion -> ReadIndex          (cluster/requests/read_confirmations.py)
stream.in-force: ConfigQuestion -> nothing               (cluster/requests/in_force.py)
"""

from __future__ import annotations

from typing import Final

import attrs

from jetraft.raft.mesh.messages import Message, flag, json_object, number, protocol, text
from jetraft.store.model.ids import NODE_ID_CHARS
from jetraft.store.model.limits import NAME_BYTES_MAX

INFO: Final = b"stream.info"
SETTLED: Final = b"stream.settled"
INDEX: Final = b"meta.index"
LOOK: Final = b"meta.look"
READ_INDEX: Final = b"stream.read"
CAUGHT_UP: Final = "meta.caught-up"
IN_FORCE: Final = "stream.in-force"
QUESTION_BYTES_MAX: Final = 4096  # two names, whose characters have 4 bytes at most, and two numbers
INFO_BYTES_MAX: Final = 64 << 20


@protocol("a question for a stream's info", bytes_max=QUESTION_BYTES_MAX)
@attrs.frozen(kw_only=True, slots=True)
class StreamRevision(Message):
    """The stream that was created by this entry of the meta log, with this revision in force."""

    incarnation: int = attrs.field(metadata=number())
    revision: int = attrs.field(metadata=number())


@protocol("a stream's info", bytes_max=INFO_BYTES_MAX, bare=True, as_json=True)
@attrs.frozen(kw_only=True, slots=True)
class StreamInfoAnswer(Message):
    """The info as clients see it."""

    info: dict[str, object] = attrs.field(metadata=json_object())


@protocol("a report that a stream has settled", bytes_max=QUESTION_BYTES_MAX)
@attrs.frozen(kw_only=True, slots=True)
class SettledReport(Message):
    """The group of this stream has the members of its row."""

    name: str = attrs.field(metadata=text(NAME_BYTES_MAX))
    incarnation: int = attrs.field(metadata=number())
    revision: int = attrs.field(metadata=number())


@protocol("a question for a config", bytes_max=QUESTION_BYTES_MAX)
@attrs.frozen(kw_only=True, slots=True)
class ConfigQuestion(Message):
    """The stream that was created by this entry of the meta log, with the config of this revision of its row."""

    account: str = attrs.field(metadata=text(NAME_BYTES_MAX))
    name: str = attrs.field(metadata=text(NAME_BYTES_MAX))
    incarnation: int = attrs.field(metadata=number())
    revision: int = attrs.field(metadata=number())


@protocol("an index of the meta log", bytes_max=16, bare=True)
@attrs.frozen(kw_only=True, slots=True)
class MetaIndex(Message):
    """How far the meta group has committed, or a node has to have applied."""

    index: int = attrs.field(metadata=number())


@protocol("a question for the state of the meta group", bytes_max=64)
@attrs.frozen(kw_only=True, slots=True)
class MetaStateQuestion(Message):
    """The node that asks: the request may come over a third one."""

    node_id: str = attrs.field(metadata=text(NODE_ID_CHARS))


@protocol("the state of the meta group", bytes_max=16)
@attrs.frozen(kw_only=True, slots=True)
class MetaState(Message):
    """How far the meta group had committed when its leader was asked, and whether the asker is a member of it."""

    index: int = attrs.field(metadata=number())
    is_member: bool = attrs.field(metadata=flag())


@protocol("a question for a read index", bytes_max=16)
@attrs.frozen(kw_only=True, slots=True)
class ReadIndexQuestion(Message):
    """The stream that was created by this entry of the meta log."""

    incarnation: int = attrs.field(metadata=number())


@protocol("a read index", bytes_max=16)
@attrs.frozen(kw_only=True, slots=True)
class ReadIndex(Message):
    """The index that a replica has to have applied to have all that was committed when this was asked."""

    index: int = attrs.field(metadata=number())
