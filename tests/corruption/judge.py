"""Compares what was acknowledged with what is there. Pure: no file, socket or clock."""

import re
from collections.abc import Mapping, Sequence

import attrs

from tests.corruption.verdicts import Finding, Verdict, worst

ADVICE_WORDS = ["restore", "restart", "delete", "remove", "replace", "recreate", "operator"]
ADVICE = re.compile(rf"\b({'|'.join(ADVICE_WORDS)}|jetraft (verify|inspect|recover))\b|docs/", re.IGNORECASE)
TRACEBACKS = ("Traceback (most recent call last)", "Exception Group Traceback", "ExceptionGroup:")
SHOWN = 5


@attrs.frozen(kw_only=True)
class Promise:
    """What clients were told about a stream."""

    stream: str
    group: str  # its group's id, by which a log line may call it; "" when it is unknown
    live: Mapping[int, bytes]  # by sequence, of what was acknowledged and not removed
    last_seq: int  # the highest that was acknowledged
    consumer: str = ""
    floor: int = 0  # up to here the consumer's acknowledgements were confirmed


@attrs.frozen(kw_only=True)
class Seen:
    """What a server says of a stream after the damage."""

    messages: Mapping[int, bytes]
    lost: frozenset[int]
    next_seq: int  # of a message that was published then
    floor: int | None = None  # None: there is no such consumer


@attrs.frozen(kw_only=True)
class Unavailable:
    """A stream that is not served."""

    answer: str  # to whoever asked


def judge(promise: Promise, seen: Seen | Unavailable | None, said: Sequence[str]) -> Finding:
    """The verdict on one stream; None: the server says that there is no such stream. `said` is what operators see."""
    notices = [text for text in said if _names(text, promise)]
    if isinstance(seen, Unavailable):
        return _unavailable(promise, seen, notices)
    kept = [text for text in notices if promise.group and promise.group in text]
    if seen is None and kept and any(text.startswith("healthz:") for text in said):
        return _unavailable(promise, Unavailable(answer="no such stream"), kept)  # its data is there, and is told of
    if seen is None:
        detail = f"{promise.stream}: no such stream"
        return Finding(verdict=Verdict.EMPTY_STORE, detail=detail) if promise.live else Finding(verdict=Verdict.SAME)
    is_unwell = any(text.startswith("healthz:") for text in said)  # it names one reason, the lists have all
    return worst(
        Finding(verdict=verdict, detail=f"{promise.stream}: {detail}")
        for verdict, detail in _served(promise, seen, is_noticed=bool(notices), is_unwell=is_unwell)
    )


def _served(promise: Promise, seen: Seen, *, is_noticed: bool, is_unwell: bool) -> list[tuple[Verdict, str]]:
    found = []
    wrong = [seq for seq, content in seen.messages.items() if promise.live.get(seq, content) != content]
    missing = [seq for seq in promise.live if seq not in seen.messages]
    unlisted = [seq for seq in missing if seq not in seen.lost]
    extra = [seq for seq in seen.messages if seq not in promise.live and seq <= promise.last_seq]
    if wrong:
        found.append((Verdict.WRONG_BYTES, f"messages {_some(wrong)} are not what was stored"))
    if seen.next_seq <= promise.last_seq:
        found.append((Verdict.SEQUENCE_REUSED, f"{seen.next_seq} is given out again, up to {promise.last_seq} were"))
    if unlisted:
        found.append((Verdict.SILENT_LOSS, f"messages {_some(unlisted)} are gone, {len(seen.lost)} are listed as lost"))
    if extra and not seen.lost and not is_noticed:
        found.append((Verdict.CAME_BACK, f"messages {_some(extra)} had been removed"))
    if promise.consumer and not is_noticed and not seen.lost and (seen.floor is None or seen.floor < promise.floor):
        found.append((Verdict.CONSUMER_WENT_BACK, f"acknowledged up to {promise.floor}, now {seen.floor}"))
    if missing and not unlisted:
        found.append((Verdict.LOST_LISTED, f"messages {_some(missing)} are listed as lost"))
        if not is_noticed and not is_unwell:
            found.append((Verdict.NO_REASON, f"messages {_some(missing)} are lost, and no log line says it"))
    return found


def _unavailable(promise: Promise, seen: Unavailable, notices: Sequence[str]) -> Finding:
    if not notices:
        return Finding(verdict=Verdict.NO_REASON, detail=f"{promise.stream}: {seen.answer or 'no answer'}")
    verdict = Verdict.UNAVAILABLE if any(ADVICE.search(text) for text in notices) else Verdict.NO_ADVICE
    return Finding(verdict=verdict, detail=f"{promise.stream}: {notices[-1]}")


def judge_end(lines: Sequence[str], status: int) -> Finding:
    """The verdict on a server that has ended by itself."""
    if (traceback := tracebacks(lines)) is not None:
        return traceback
    said = [line for line in lines if "[FTL]" in line or "[ERR]" in line]
    if not said:
        return Finding(verdict=Verdict.NO_REASON, detail=f"the server ended with status {status}")
    verdict = Verdict.UNAVAILABLE if any(ADVICE.search(line) for line in said) else Verdict.NO_ADVICE
    return Finding(verdict=verdict, detail=f"the server ended: {said[-1]}")


def judge_unwell(name: str, said: Sequence[str]) -> Finding:
    """The verdict on a member that does not come back, while the others serve everything."""
    if not said:
        return Finding(verdict=Verdict.NO_REASON, detail=f"{name} has not caught up")
    verdict = Verdict.UNAVAILABLE if any(ADVICE.search(text) for text in said) else Verdict.NO_ADVICE
    return Finding(verdict=verdict, detail=f"{name} has not caught up: {said[-1]}")


def tracebacks(lines: Sequence[str]) -> Finding | None:
    """A violation when a server has shown one."""
    if not any(word in line for line in lines for word in TRACEBACKS):
        return None
    last = next((line for line in reversed(lines) if re.search(r"\b\w*(Error|Exception|Corrupt|Refused)\b", line)), "")
    return Finding(verdict=Verdict.TRACEBACK, detail=last.strip(" |+-"))


def _names(text: str, promise: Promise) -> bool:
    """Whether a line or page speaks of a stream: by its name, its group, or because it is about all of them."""
    by_name = re.search(rf"[>'\" ]{re.escape(promise.stream)}\b", text) is not None
    return by_name or bool(promise.group and promise.group in text) or "meta" in text


def _some(seqs: Sequence[int]) -> str:
    shown = ", ".join(map(str, seqs[:SHOWN]))
    return shown if len(seqs) <= SHOWN else f"{shown} and {len(seqs) - SHOWN} more"
