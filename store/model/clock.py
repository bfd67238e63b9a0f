"""Time, as cores receive it from their shell: integers in nanoseconds.

`mono_ns` counts from an arbitrary point and never goes back; ages, ack waits and leases use it. `unix_ns` counts from
the Unix epoch. The machine's wall clock may jump, so stored times come from a clock that follows it without jumps
(steady.py).
"""

from typing import Protocol

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
