"""What the writers sent and what was acknowledged, and the judgement of what the replicas hold afterwards.

The checker knows nothing of the server. Its promises: an acknowledged message is on every replica, once, at the
sequence of its acknowledgement; a message that was acknowledged before another one was first sent comes before it;
nothing is there that was not sent, nothing twice; all replicas are equal.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import TextIO

import attrs


@attrs.define(kw_only=True)
class Sent:
    """One message of a writer. Times are monotonic nanoseconds; `acked_ns` is 0 until it is acknowledged."""

    payload: bytes
    first_sent_ns: int
    acked_ns: int = 0
    seq: int = 0
    attempts: int = 1


class Journal:
    """Everything the writers know. One event loop writes; other threads read counts and whole lists."""

    def __init__(self, log: TextIO) -> None:
        self.messages: dict[bytes, Sent] = {}
        self.ack_times_ns: list[int] = []
        self.contradictions: list[str] = []
        self.answered_duplicates = 0
        self._log = log

    def sent(self, payload: bytes, now_ns: int) -> None:
        """Note that a message is sent, for the first time or again."""
        known = self.messages.get(payload)
        if known is None:
            self.messages[payload] = Sent(payload=payload, first_sent_ns=now_ns)
        else:
            known.attempts += 1
        self._log.write(f"{now_ns} sent {payload.decode()}\n")

    def acked(self, payload: bytes, seq: int, now_ns: int, *, duplicate: bool) -> None:
        """Note an acknowledgement; a second one must name the same sequence."""
        message = self.messages[payload]
        self._log.write(f"{now_ns} acked {payload.decode()} {seq} {'duplicate' if duplicate else ''}\n")
        self.answered_duplicates += duplicate
        if message.acked_ns:
            if message.seq != seq:
                self.contradictions.append(f"{payload.decode()} was acknowledged at {message.seq} and at {seq}")
            return
        message.seq, message.acked_ns = seq, now_ns
        self.ack_times_ns.append(now_ns)

    def refused(self, payload: bytes, answer: str, now_ns: int) -> None:
        """Note an answer that is not an acknowledgement; the message stays unknown."""
        self._log.write(f"{now_ns} refused {payload.decode()} {answer}\n")

    def longest_gap_ns(self, from_ns: int, to_ns: int) -> int:
        """The longest time between two acknowledgements, or a bound of the interval, within an interval."""
        inside = [moment for moment in self.ack_times_ns if from_ns < moment < to_ns]
        moments = [from_ns, *inside, to_ns]
        return max(after - before for before, after in pairwise(moments))

    def pace(self, since_s: float, until_s: float) -> float:
        """Messages acknowledged per second between two moments, monotonic seconds."""
        inside = sum(since_s * 1e9 < moment < until_s * 1e9 for moment in self.ack_times_ns)
        return inside / (until_s - since_s)


@attrs.frozen(kw_only=True)
class Verdict:
    """What is wrong, counted over all replicas; a clean run has zeros everywhere."""

    acked: int
    unknown: int
    lost: int = 0
    misplaced: int = 0
    duplicates: int = 0
    strangers: int = 0
    disordered: int = 0
    unequal: int = 0
    contradictory: int = 0
    examples: tuple[str, ...] = ()

    @property
    def clean(self) -> bool:
        """Whether every promise was kept."""
        return not any(
            (self.lost, self.misplaced, self.duplicates, self.strangers, self.disordered, self.unequal)
        ) and not (self.contradictory or self.unknown)


def judge(journal: Journal, replicas: Mapping[str, Mapping[int, bytes]]) -> Verdict:
    """Compare what was acknowledged with what each replica holds."""
    acked = [sent for sent in journal.messages.values() if sent.acked_ns]
    faults: Counter[str] = Counter()
    examples: list[str] = [*journal.contradictions[:3]]

    def fault(kind: str, found: Iterable[str]) -> None:
        named = list(found)
        faults[kind] += len(named)
        examples.extend(f"{kind}: {text}" for text in named[:3])

    for node, held in replicas.items():
        copies = Counter(held.values())
        gone = [sent for sent in acked if held.get(sent.seq) != sent.payload]
        fault("lost", (f"{node} {s.payload.decode()} acked at {s.seq}" for s in gone if not copies[s.payload]))
        fault("misplaced", (f"{node} {s.payload.decode()} acked at {s.seq}" for s in gone if copies[s.payload]))
        fault("duplicates", (f"{node} {text!r} {n} times" for text, n in copies.items() if n > 1))
        fault("strangers", (f"{node} {text!r}" for text in copies if text not in journal.messages))
    fault("disordered", disordered(acked))
    first, *rest = replicas.items()
    fault(
        "unequal",
        (f"{first[0]} and {node} differ at {differences(first[1], held)}" for node, held in rest if held != first[1]),
    )
    return Verdict(
        acked=len(acked),
        unknown=len(journal.messages) - len(acked),
        contradictory=len(journal.contradictions),
        examples=tuple(examples),
        **{kind: count for kind, count in faults.items() if count},
    )


def differences(one: Mapping[int, bytes], other: Mapping[int, bytes]) -> list[int]:
    """The first sequences at which two replicas differ."""
    return sorted(seq for seq in {*one, *other} if one.get(seq) != other.get(seq))[:5]


def disordered(acked: Iterable[Sent]) -> list[str]:
    """Messages with a sequence below one that had been acknowledged before they were first sent (of any writer)."""
    moments = [(sent.acked_ns, 0, sent) for sent in acked]
    moments += [(sent.first_sent_ns, 1, sent) for _, _, sent in moments]
    highest: Sent | None = None
    wrong = []
    for _, what, sent in sorted(moments, key=lambda moment: moment[:2]):
        if what == 0:
            highest = sent if highest is None or sent.seq > highest.seq else highest
        elif highest is not None and sent.seq <= highest.seq:
            wrong.append(
                f"{sent.payload.decode()} at {sent.seq}, sent after {highest.payload.decode()} at {highest.seq}"
            )
    return wrong
