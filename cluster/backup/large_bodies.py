"""Work on bodies whose size a client chose: a thread does what takes longer than a slice of a turn.

Only for work that looks at the body alone. The caller, which waits for it, asks again about everything else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

import trio

if TYPE_CHECKING:
    from collections.abc import Callable

IN_TURN_BYTES_MAX: Final = 16 * 1024  # a configuration of that size is decoded in 4 ms; the largest request takes 250
T = TypeVar("T")

_one_at_a_time: Final = trio.CapacityLimiter(1)  # several would only wait for the interpreter, and so would the node


async def worked_on(body: bytes, work: Callable[[], T]) -> T:
    """The result of this work on the body; it raises what the work raises."""
    if len(body) <= IN_TURN_BYTES_MAX:
        return work()
    return await trio.to_thread.run_sync(work, limiter=_one_at_a_time)
