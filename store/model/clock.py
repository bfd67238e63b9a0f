"""Time, as cores receive it from their shell: integers in nanoseconds.

`mono_ns` counts from an arbitrary point and never goes back; ages, ack waits and leases use it. `unix_ns` counts from
the Unix epoch. The machine's wall clock may jump, so stored times come from a clock that follows it without jumps
(steady.py).
"""

from typing import Final, Protocol

import attrs

NS_PER_S = 1_000_000_000
NS_PER_MS = 1_000_000


class Clock(Protocol):
    """The two clocks of a node."""

    def mono_ns(self) -> int:
        """Nanoseconds from an arbitrary point; never goes back."""
        ...

    def unix_ns(self) -> int:
        """Nanoseconds since the Unix epoch; may jump when the machine's clock is set."""
        ...


@attrs.define
class ManualClock:
    """A clock that advances only by `advance`, for tests of cores and for the simulator."""

    now_ns: int = 0
    epoch_ns: int = 1_700_000_000 * NS_PER_S

    def mono_ns(self) -> int:
        """Nanoseconds of virtual time."""
        return self.now_ns

    def unix_ns(self) -> int:
        """Virtual time as nanoseconds since the Unix epoch."""
        return self.epoch_ns + self.now_ns

    def elapsed_ns(self) -> int:
        """The same as `mono_ns`: this machine never sleeps."""
        return self.now_ns

    def moment(self) -> tuple[int, int]:
        """Both of one moment."""
        return self.elapsed_ns(), self.unix_ns()

    def advance(self, delta_ns: int) -> None:
        """Advance the clock by `delta_ns` nanoseconds."""
        assert delta_ns >= 0
        self.now_ns += delta_ns


# A task that looks again and again, mostly in vain, costs the same whether something has happened or not. A walk over
# all replicas that took long is followed by a long rest, so a thousand quiet streams do not cost a hundred times what
# ten do; and tasks rest until the same moments, as what wakes together costs one pass of the event loop.
WALK_SHARE: Final = 2000  # a walk takes at most this part of the time of the thread
TICK_S: Final = 0.25
REST_S_MAX: Final = 5.0  # what has no event of its own is found as late as that


def rest_s(least_s: float, took_ns: int) -> float:
    """The pause after a walk that took so long: at least `least_s`."""
    return max(least_s, min(took_ns * WALK_SHARE / NS_PER_S, REST_S_MAX))


def tick_s(now_s: float, pause_s: float) -> float:
    """The last moment within the pause at which others wake too; `pause_s` is at least TICK_S."""
    return (now_s + pause_s) // TICK_S * TICK_S
