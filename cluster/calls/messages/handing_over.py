"""How publishes pass from a leader that was asked to go to the next one (cluster/calls/handing_over.py).

stream.handover: HandoverQuestion -> HeldMessages
cluster.fence: nothing -> nothing, behind all that was sent before
"""

from __future__ import annotations

from typing import Final

import attrs

from jetraft.raft.mesh.messages import Message, number, octets, protocol, text
from jetraft.store.model.limits import NAME_BYTES_MAX

METHOD: Final = "stream.handover"
FENCE: Final = "cluster.fence"
QUESTION_BYTES_MAX: Final = 2048
HELD_BYTES_MAX: Final = 16 << 20  # a transfer takes some milliseconds, in which a link brings less


@protocol("a question for the publishes that a leader holds", bytes_max=QUESTION_BYTES_MAX)
@attrs.frozen(kw_only=True, slots=True)
class HandoverQuestion(Message):
    """The group that the asking node leads now."""

    group_id: str = attrs.field(metadata=text(NAME_BYTES_MAX))
    incarnation: int = attrs.field(metadata=number())


@protocol("publishes that a leader held", bytes_max=HELD_BYTES_MAX + 16, bare=True)
@attrs.frozen(kw_only=True, slots=True)
class HeldMessages(Message):
    """Capture records back to back, in the order in which they came."""

    batch: bytes = attrs.field(metadata=octets(HELD_BYTES_MAX))
