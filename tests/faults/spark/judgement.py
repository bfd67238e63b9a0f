"""What is in the stream after a run, compared with what should be: each row once, and each atomic batch whole.

It knows nothing of fences or of Spark: rows are numbers, and the headers of a message say of which batch it is, where
in it, and whether it is the last one.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator

import attrs

from tests.faults.journal import Verdict
from tests.harness.process import ServerFailed
from tests.harness.raw import RawClient

BATCH = 1_000
SILENT_MAX = 20
EXAMPLES = 5


@attrs.frozen(kw_only=True)
class Stored:
    """One message: `number` is None for what is no row, `place` its number in the batch."""

    seq: int
    number: int | None
    batch_id: str
    place: int
    is_last: bool


def read(client: RawClient, stream: str) -> list[Stored]:
    """All messages of a stream, in its order. Raises ServerFailed when nobody answers."""
    found: list[Stored] = []
    silent = 0
    while silent < SILENT_MAX:
        body = json.dumps({"seq": found[-1].seq + 1 if found else 1, "batch": BATCH}).encode()
        answers = client.request(f"$JS.API.DIRECT.GET.{stream}", body, replies=BATCH + 1, until_status=True)
        for answer in answers:
            fields = dict(answer.headers)
            if "Nats-Sequence" in fields:
                found.append(_stored(stream, fields, answer.payload))
        status = answers[-1].status if answers else ""
        if status.startswith("404"):
            return found
        silent += not status.startswith("204")
    raise ServerFailed(f"{stream} cannot be read: {status or 'no answer'}")


def _stored(stream: str, fields: dict[str, str], payload: bytes) -> Stored:
    is_row = fields["Nats-Subject"].startswith(f"{stream}.")
    return Stored(
        seq=int(fields["Nats-Sequence"]),
        number=int(payload) if is_row and payload.strip().isdigit() else None,
        batch_id=fields.get("Nats-Batch-Id", ""),
        place=int(fields.get("Nats-Batch-Sequence", "0")),
        is_last="Nats-Batch-Commit" in fields,
    )


def judge(stored: list[Stored], rows: int, replicas: dict[str, object]) -> Verdict:
    """Compare with rows 0 to `rows` - 1; `replicas` says what each node holds, and has to be the same of each.

    In the verdict, `misplaced` are messages of a batch that is not whole, or of none.
    """
    copies = Counter(one.number for one in stored if one.number is not None)
    lost = [number for number in range(rows) if not copies[number]]
    twice = [number for number, count in copies.items() if count > 1]
    strangers = [number for number in copies if not 0 <= number < rows]
    broken = list(not_whole(stored))
    different = len({json.dumps(one, sort_keys=True) for one in replicas.values()}) - 1
    named = {"lost": lost, "twice": twice, "strangers": strangers, "not whole": broken}
    return Verdict(
        acked=rows - len(lost),
        unknown=0,
        lost=len(lost),
        duplicates=len(twice),
        strangers=len(strangers),
        misplaced=len(broken),
        unequal=different,
        examples=tuple(f"{what}: {found[:EXAMPLES]}" for what, found in named.items() if found),
    )


def not_whole(stored: list[Stored]) -> Iterator[int]:
    """The sequences of messages that are of no batch, or of one that is not there from its first to its last message.

    The stream takes no rollups, so that the last message of each batch, a fence, stays in it.
    """
    batches: dict[str, list[Stored]] = defaultdict(list)
    for one in stored:
        batches[one.batch_id].append(one)
    for batch_id, messages in batches.items():
        first = messages[0]
        in_a_row = all((one.seq - first.seq, one.place) == (at, at + 1) for at, one in enumerate(messages))
        if not batch_id or not in_a_row or not messages[-1].is_last:
            yield from (one.seq for one in messages)
