"""The machine's clocks."""

import time

BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # the other one stands still in a suspended laptop


class SystemClock:
    """The clocks of this machine, as `store.model.clock.Clock` wants them."""

    # No methods of its own: each turn asks half a dozen times.
    mono_ns = staticmethod(time.monotonic_ns)
    unix_ns = staticmethod(time.time_ns)

    @staticmethod
    def elapsed_ns() -> int:
        """Nanoseconds that passed since some moment, also those in which the machine slept."""
        return time.clock_gettime_ns(BOOT_CLOCK)
