"""Whether a consumer is paused, from step to step, and when time has ended a pause. Pure.

An end by a request is told by the server of the request (frontend.py); an end by time, by the consumer's next step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from jetraft.store.model.gotime import until_ns

if TYPE_CHECKING:
    from jetraft.cluster.consumers.effects import Now
    from jetraft.store.model.config import ConsumerConfig


@attrs.define(eq=False)
class Pausing:
    """The pause of one consumer, as its last step found it."""

    is_paused: bool = False
    _until_ns: int | None = None  # Unix time of the pause that was found; None: there was none

    def look(self, config: ConsumerConfig, now: Now) -> bool:
        """Note whether the consumer is paused now; True when a pause that the last look found has run out."""
        self.is_paused = left_ns(config, now) > 0
        found, self._until_ns = self._until_ns, config.pause_until if self.is_paused else None
        return not self.is_paused and found is not None and found == config.pause_until


def left_ns(config: ConsumerConfig, now: Now) -> int:
    """How long the consumer is paused from now on; 0 or less when it is not."""
    return 0 if config.pause_until is None else until_ns(config.pause_until, now.unix_ns)
