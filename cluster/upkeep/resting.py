"""How long a task rests that looks again and again, mostly in vain. Pure.

A walk over all replicas of a node costs a processor the same, whether something has happened or not. With a fixed pause
a thousand quiet streams cost more than ten; so a long walk is followed by a long rest. Tasks rest until the same
moments: what wakes together costs one pass of the event loop.
"""

from typing import Final

from jetraft.store.model.clock import NS_PER_S

SHARE: Final = 1000  # a walk takes at most this part of the time of the thread
TICK_S: Final = 0.25
REST_S_MAX: Final = 5.0  # what has no event of its own is found as late as that


def rest_s(least_s: float, took_ns: int) -> float:
    """The pause after a walk that took so long: at least `least_s`."""
    return max(least_s, min(took_ns * SHARE / NS_PER_S, REST_S_MAX))


def tick_s(now_s: float, pause_s: float) -> float:
    """The last moment within the pause at which others wake too; `pause_s` is at least TICK_S."""
    return (now_s + pause_s) // TICK_S * TICK_S
