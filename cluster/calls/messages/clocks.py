"""cluster.clock: nothing -> what time it is at a node."""

from __future__ import annotations

from typing import Final

import attrs

from jetraft.raft.mesh.messages import NUMBER_MIN, Message, number, optional, protocol

METHOD: Final = "cluster.clock"
TIME_NS_MAX: Final = (1 << 63) - 1


@protocol("a reading of clocks", bytes_max=32)
@attrs.frozen(kw_only=True, slots=True)
class ClockAnswer(Message):
    """Unix time by the machine's wall clock, and by the node's steady one when that is set, nanoseconds."""

    wall_ns: int = attrs.field(metadata=number(NUMBER_MIN, TIME_NS_MAX))
    steady_ns: int | None = attrs.field(metadata=optional(number(NUMBER_MIN, TIME_NS_MAX)))
