"""`python -m tests.bench.index`: what the index of a stream costs per message, without a server around it.

Processor time of this process, in nanoseconds per message, for 1 to a million subjects: messages of subjects that are
new, of subjects that are known, with a limit of one message per subject, and with as many removed as come; then
removals, and what a consumer's count costs. Bytes are those of index and subjects together.
"""

import random
import time
from collections.abc import Callable, Sequence
from typing import Final

from jetraft.store.frames._frame import make_record, seal
from jetraft.store.frames.format import Kind
from jetraft.store.stream._index import Index
from jetraft.store.stream._select import FilterSet

NO_LIMIT: Final = -1
SIZES: Final = (1, 1000, 100_000, 1_000_000)
MSGS: Final = 400_000
FRAME_MSGS: Final = 500  # a busy publisher's batch
BLOCK_MSGS: Final = 1 << 22
REMOVALS: Final = 50_000
SEED: Final = 1


class Bench:
    """One index, filled frame by frame; only the index's own time counts."""

    def __init__(self, *, max_msgs: int = NO_LIMIT, max_msgs_per_subject: int = NO_LIMIT) -> None:
        self.index = Index(overhead_bytes=30, hdr_overhead_bytes=4)
        self.index.limit(max_msgs=max_msgs, max_bytes=NO_LIMIT, max_msgs_per_subject=max_msgs_per_subject)
        self.next_seq = 1

    def publish(self, subjects: Sequence[bytes]) -> float:
        """Nanoseconds per message."""
        spent_ns = 0
        for at in range(0, len(subjects), FRAME_MSGS):
            records = [make_record(subject, b"", b"12345678", ts_ns=1) for subject in subjects[at : at + FRAME_MSGS]]
            frame = seal(
                Kind.MESSAGES,
                index=self.next_seq,
                term=1,
                incarnation=1,
                first_seq=self.next_seq,
                body=records,
                count=len(records),
            )
            before = time.process_time_ns()
            self.index.apply(frame, self.next_seq // BLOCK_MSGS, self.next_seq)
            spent_ns += time.process_time_ns() - before
            self.next_seq += len(records)
        return spent_ns / len(subjects)


def timed(work: Callable[[], object]) -> tuple[float, object]:
    """(nanoseconds, result)."""
    before = time.process_time_ns()
    result = work()
    return time.process_time_ns() - before, result


def publishing(size: int) -> str:
    """One row: new, known, one per subject, a full stream, bytes per subject."""
    names = [b"bench.index.%d" % number for number in range(size)]
    chosen = random.Random(SEED).choices(names, k=MSGS)
    plain = Bench()
    new_ns = plain.publish(names * max(1, MSGS // 4 // size))
    known_ns = plain.publish(chosen)
    one_each = Bench(max_msgs_per_subject=1)
    one_each.publish(names)
    one_ns = one_each.publish(chosen)
    full = Bench(max_msgs=MSGS // 4)
    full.publish(chosen[: MSGS // 4])
    full_ns = full.publish(chosen)
    subject_bytes = plain.index.tree.memory_bytes / size
    return f"{size:>10,}{new_ns:>10.0f}{known_ns:>10.0f}{one_ns:>14.0f}{full_ns:>14.0f}{subject_bytes:>14.0f}"


def removing(size: int) -> str:
    """One row: removals at random, from the oldest on, of one subject; a consumer's first count and the next one."""
    names = [b"bench.index.%d" % number for number in range(size)]
    bench = Bench()
    bench.publish(random.Random(SEED).choices(names, k=4 * MSGS))
    index = bench.index
    seqs = random.Random(SEED).sample(range(1, 4 * MSGS), REMOVALS)
    random_ns = timed(lambda: index.remove_many(seqs))[0] / REMOVALS
    consumer = FilterSet(index, (names[0], names[-1]))
    first_ns, _ = timed(lambda: consumer.num_pending(2 * MSGS))
    next_ns, _ = timed(lambda: consumer.num_pending(2 * MSGS + 1))
    by_subject = FilterSet(index, (names[1],))
    subject_ns, removed = timed(lambda: by_subject.remove_matching(4 * MSGS, MSGS))
    assert isinstance(removed, int)
    oldest_ns, gone = timed(lambda: index.remove_below(2 * MSGS))
    assert isinstance(gone, int)
    return (
        f"{size:>10,}{random_ns:>10.0f}{oldest_ns / gone:>10.0f}{subject_ns / max(1, removed):>14.0f}"
        f"{first_ns / 1000:>14.1f}{next_ns / 1000:>14.1f}"
    )


def main() -> None:
    """Print both tables."""
    print(f"{'subjects':>10}{'new':>10}{'known':>10}{'one each':>14}{'full stream':>14}{'B/subject':>14}")
    for size in SIZES:
        print(publishing(size), flush=True)
    print(f"{'subjects':>10}{'random':>10}{'oldest':>10}{'one subject':>14}{'count, us':>14}{'next count':>14}")
    for size in SIZES[1:]:
        print(removing(size), flush=True)


if __name__ == "__main__":
    main()
