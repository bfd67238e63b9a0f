"""The machine's clocks where links and elections run in real time; a test may put either forward."""

import time

import attrs


@attrs.define
class RealClock:
    """Implements Clock."""

    ahead_ns: int = 0  # of the monotonic clock
    wrong_by_ns: int = 0  # the wall clock

    def mono_ns(self) -> int:
        return time.monotonic_ns() + self.ahead_ns

    def unix_ns(self) -> int:
        return time.time_ns() + self.wrong_by_ns
