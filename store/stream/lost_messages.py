"""The messages of a stream that are damaged on every member, as runs of sequences, until they are removed."""

from collections.abc import Sequence

Runs = Sequence[tuple[int, int]]  # (first, last) of sequences, ascending


class LostMessages:
    """Known runs of lost messages, and lost entries at the end of the stream with an unknown number of messages."""

    __slots__ = ("_first_seq", "_runs", "drops_oldest", "entries_at_end", "forgotten_by_all", "forgotten_ns")

    def __init__(self, first_seq: int) -> None:
        self._runs: list[tuple[int, int]] = []
        self._first_seq = first_seq  # of the stream when they were noted
        self.entries_at_end = 0
        self.forgotten_ns = 0  # Unix time when a majority of the members lost the stream; 0: never
        self.forgotten_by_all = False
        self.drops_oldest = False  # by a limit: then sequences below the first message were removed on purpose

    def __bool__(self) -> bool:
        return bool(self._runs or self.entries_at_end)

    def noted(self, first_seq: int) -> list[tuple[int, int]]:
        """The known runs, of a stream with this first sequence.

        What a limit has dropped is taken out here, so this is called before each change that moves the first sequence
        for another reason: then the runs depend on what was applied, and not on who asked for them meanwhile.
        """
        if first_seq != self._first_seq and self.drops_oldest:
            self._runs = [(max(low, first_seq), high) for low, high in self._runs if high >= first_seq]
        return self._runs

    def note(self, runs: Runs, first_seq: int) -> None:
        """Add runs above the known ones; `first_seq` is the stream's current first sequence."""
        self._runs = [*self.noted(first_seq), *runs]
        self._first_seq = first_seq

    def removed(self, seqs: Sequence[int], first_seq: int) -> None:
        """Remove individual sequences, live or not; the other runs stay, wherever the stream begins.

        `noted` must be called before. Under a limit the removed sequences stay too: while they counted, other replicas
        dropped older messages in favour of them, which this replica still has.
        """
        if not self.drops_oldest:
            self._runs = missing_runs(self._runs, [(seq, seq) for seq in sorted(seqs)])
        self._first_seq = first_seq

    def forget_below(self, seq: int, first_seq: int) -> None:
        """Remove everything below a sequence."""
        self._runs = [(max(low, seq), high) for low, high in self._runs if high >= seq]
        self._first_seq = first_seq


def missing_runs(gone: Runs, dead: Runs) -> list[tuple[int, int]]:
    """The parts of the runs `gone` that are in none of the runs `dead`, which were removed on purpose."""
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
