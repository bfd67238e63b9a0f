"""Stands for the machine's clocks where a test moves time: both are trio's, which an autojump clock puts forward."""

import trio

from jetraft.store.model.clock import NS_PER_S


class TrioClock:
    """Implements Clock."""

    def mono_ns(self) -> int:
        return round(trio.current_time() * NS_PER_S)

    def unix_ns(self) -> int:
        return self.mono_ns()
