"""Which messages of a stream are damaged on every member: runs of sequences, until something removes them."""

from collections.abc import Sequence

Runs = Sequence[tuple[int, int]]  # (first, last) of sequences, ascending


class LostMessages:
    """Noted runs, and the entries at the end of the stream of which nobody knows how many messages they were."""

    __slots__ = ("_first_seq", "_runs", "drops_oldest", "entries_at_end", "forgotten_by_all", "forgotten_ns")

    def __init__(self, first_seq: int) -> None:
        self._runs: list[tuple[int, int]] = []
        self._first_seq = first_seq  # of the stream when they were noted
        self.entries_at_end = 0
        self.forgotten_ns = 0  # when so many members had forgotten the stream that messages may be gone; Unix time
        self.forgotten_by_all = False
        self.drops_oldest = False  # by a limit: what lies below the first message then is gone on purpose

    def __bool__(self) -> bool:
        return bool(self._runs or self.entries_at_end)

    def noted(self, first_seq: int) -> list[tuple[int, int]]:
        """The runs that are known, of a stream with this first sequence."""
        if first_seq != self._first_seq and self.drops_oldest:
            self._runs = [(max(low, first_seq), high) for low, high in self._runs if high >= first_seq]
        return self._runs

    def note(self, runs: Runs, first_seq: int) -> None:
        """More are lost, above those that are known; `first_seq` is the stream's first one now."""
        self._runs = [*self.noted(first_seq), *runs]
        self._first_seq = first_seq

    def removed(self, seqs: Sequence[int], first_seq: int) -> None:
        """These were removed one by one, live or not; what is lost beside them stays so, wherever the stream begins.

        `noted` was called before that. Under a limit also those stay that were removed: while they counted, other
        replicas dropped something older for them, which this one still has.
        """
        if not self.drops_oldest:
            self._runs = missing_runs(self._runs, [(seq, seq) for seq in sorted(seqs)])
        self._first_seq = first_seq

    def forget_below(self, seq: int, first_seq: int) -> None:
        """Everything below a sequence was removed on purpose."""
        self._runs = [(max(low, seq), high) for low, high in self._runs if high >= seq]
        self._first_seq = first_seq


def missing_runs(gone: Runs, dead: Runs) -> list[tuple[int, int]]:
    """What of the runs that are gone is in none of the runs that were removed on purpose."""
    missing = []
    for first, last in gone:
        low = first
        for dead_first, dead_last in dead:
            if low < dead_first <= last:
                missing.append((low, dead_first - 1))
            if dead_first <= last and dead_last >= low:
                low = dead_last + 1
        if low <= last:
            missing.append((low, last))
    return missing
