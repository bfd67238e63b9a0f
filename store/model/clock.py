"""Time, as every core receives it: integers in nanoseconds, handed in by the shell.

`mono_ns` counts from an arbitrary point and never goes back; ages, ack waits and leases use it. `unix_ns` counts from
the Unix epoch. A machine's may jump, and nothing that is stored reads it: the layers above are given one that follows
it and never jumps (steady.py).
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
    """A clock that moves only when told: for cores under test and for the simulator."""

    now_ns: int = 0
    epoch_ns: int = 1_700_000_000 * NS_PER_S

    def mono_ns(self) -> int:
        """Nanoseconds of virtual time."""
        return self.now_ns

    def unix_ns(self) -> int:
        """The virtual time placed on the calendar."""
        return self.epoch_ns + self.now_ns

    def elapsed_ns(self) -> int:
        """The same as `mono_ns`: this machine never sleeps."""
        return self.now_ns

    def advance(self, delta_ns: int) -> None:
        """Let `delta_ns` nanoseconds pass."""
        assert delta_ns >= 0
        self.now_ns += delta_ns
