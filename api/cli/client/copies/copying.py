"""Messages of a stream as they are stored, copied by a client into another stream exactly once, and compared.

The copy continues from what the other stream holds: each message there names the one that it was made of, and expects
the sequence before its own, so one that is lost, sent twice or overtaken is refused rather than stored.
"""

import asyncio
import base64
import hashlib
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any, Final

import attrs
import nats.errors

from jetraft.api.cli.client.connection import CommandConnection
from jetraft.api.cli.client.copies.acknowledged import Acknowledged, NoStreamError, acknowledgement
from jetraft.api.cli.client.copies.asking import AGAIN_S, TRIES, UNAVAILABLE, asked
from jetraft.api.cli.client.errors import AnsweredError, CommandError

IN_FLIGHT: Final = 128  # gets, and publishes, at a time
NO_MESSAGE: Final = 10037
PASSING: Final = (UNAVAILABLE, 10071)  # no leader just now; the sequence is another one, after what was lost
MSG_ID: Final = "Nats-Msg-Id"
ORIGINAL_ID: Final = "Jetraft-Copied-Msg-Id"  # a message's own id: two that are equal may be stored minutes apart
EXPECTED: Final = "Nats-Expected-Last-Sequence"
OF_A_PUBLISH: Final = ("nats-expected-", "nats-batch-")  # what a publisher asked for then, and not of the message
NO_COPY: Final = "message {} of {} is no copy: end what publishes there, remove the stream, and copy again"


@attrs.frozen(kw_only=True)
class StoredMessage:
    """A message with all that a stream keeps of it."""

    seq: int
    subject: str
    time: str
    headers: tuple[tuple[str, str], ...]  # in order; a name may be there twice
    payload: bytes

    @property
    def own_headers(self) -> tuple[tuple[str, str], ...]:
        """Those of the message, whether this is the original or a copy."""
        original = dict(self.headers).get(ORIGINAL_ID)
        own = [
            (name, value)
            for name, value in self.headers
            if name not in (MSG_ID, ORIGINAL_ID) and not name.lower().startswith(OF_A_PUBLISH)
        ]
        own_id = original if self.copied_seq is not None else dict(self.headers).get(MSG_ID)
        return (*own, *(() if own_id is None else ((MSG_ID, own_id),)))

    @property
    def copied_seq(self) -> int | None:
        """Of a copy: the sequence of its original."""
        kind, _, rest = dict(self.headers).get(MSG_ID, "").partition(":")
        number = rest.rpartition(":")[2]
        return int(number) if kind == "jetraft-copy" and number.isdigit() else None


class HeaderLines(dict[str, str]):
    """Headers for nats-py, which sends what `items` gives: a name may come twice."""

    def __init__(self, lines: Iterable[tuple[str, str]]) -> None:
        self._lines = tuple(lines)
        super().__init__(self._lines)

    def items(self) -> Any:
        """All lines, in order."""
        return self._lines


def stored_message(message: dict[str, Any]) -> StoredMessage:
    """Of an answer of STREAM.MSG.GET."""
    block = base64.b64decode(message.get("hdrs") or "").decode("utf-8", "surrogateescape")
    lines = (line.partition(":") for line in block.split("\r\n")[1:])
    return StoredMessage(
        seq=int(message["seq"]),
        subject=message["subject"],
        time=message["time"],
        headers=tuple((name, value.strip()) for name, colon, value in lines if colon),
        payload=base64.b64decode(message.get("data") or ""),
    )


async def message_at(at: CommandConnection, stream: str, body: dict[str, Any]) -> StoredMessage | None:
    """One message; None when there is none. Raises CommandError."""
    try:
        return stored_message((await asked(at, f"STREAM.MSG.GET.{stream}", body))["message"])
    except AnsweredError as error:
        if error.err_code != NO_MESSAGE:
            raise
        return None


async def batches(at: CommandConnection, stream: str, first: int, last: int) -> AsyncIterator[list[StoredMessage]]:
    """The messages from one sequence to another, in order, IN_FLIGHT at most at a time. Raises CommandError.

    The next batch is on its way while the caller works with one.
    """

    async def batch(start: int) -> tuple[list[StoredMessage], int]:
        seqs = range(start, min(start + IN_FLIGHT, last + 1))
        found = [each for each in await asyncio.gather(*(message_at(at, stream, {"seq": seq}) for seq in seqs)) if each]
        if found:
            return found, seqs.stop
        following = await message_at(at, stream, {"seq": start, "next_by_subj": ">"})  # past a gap of any length
        return [], last + 1 if following is None else following.seq

    ahead = asyncio.ensure_future(batch(max(first, 1)))
    try:
        while True:
            found, start = await ahead
            if start <= last:
                ahead = asyncio.ensure_future(batch(start))
            if found:
                yield found
            if start > last:
                return
    finally:
        ahead.cancel()


@attrs.define(kw_only=True, eq=False)
class ClientCopy:
    """Copies `source` of one connection to `target` of another. `until`: the last sequence of the source."""

    origin: CommandConnection
    source: str
    at: CommandConnection
    target: str
    prefix: str
    until: int

    async def run(self) -> AsyncIterator[int]:
        """Copy what is not there yet; gives the sequence of the source that it has come to. Raises CommandError."""
        for tries_left in reversed(range(TRIES)):  # each begins where the copy stands
            try:
                last_seq, done = await self._position()
                yield done
                async with Acknowledged(self.at.nc) as publisher:
                    async for found in batches(self.origin, self.source, done + 1, self.until):
                        await self._store(publisher, found, last_seq)
                        last_seq += len(found)
                        yield found[-1].seq
            except (NoStreamError, TimeoutError, nats.errors.Error, AnsweredError) as error:
                if not tries_left or (isinstance(error, AnsweredError) and error.err_code not in PASSING):
                    raise
            else:
                return
            await asyncio.sleep(AGAIN_S)

    async def _position(self) -> tuple[int, int]:
        """The last sequence of the copy, and the one of the source that it was made of. Raises CommandError."""
        state = (await asked(self.at, f"STREAM.INFO.{self.target}"))["state"]
        last_seq = int(state["last_seq"])
        if not state["messages"] and last_seq + 1 == max(int(state["first_seq"]), 1):
            newest = None
        else:
            newest = await message_at(self.at, self.target, {"seq": last_seq})
        if newest is None:
            if last_seq and state["messages"]:
                raise CommandError(f"the newest message of {self.target} is gone: remove the stream, and copy again")
            return last_seq, 0
        if newest.copied_seq is None:
            raise CommandError(NO_COPY.format(newest.seq, self.target))
        return last_seq, newest.copied_seq

    async def _store(self, publisher: Acknowledged, found: list[StoredMessage], last_seq: int) -> None:
        """Publish these in order, and return when all of them are stored."""
        waiting = []
        for place, each in enumerate(found):
            lines = HeaderLines(self._headers(each, last_seq + place))
            try:
                waiting.append(await publisher.publish(self.prefix + each.subject, each.payload, lines))
            except ValueError as error:
                text = f"message {each.seq} of {self.source} has headers that cannot be sent: {error}"
                raise CommandError(text) from None
        async with asyncio.timeout(self.at.timeout_s):
            for future in waiting:
                acknowledgement(await self.at.unless_refused(_result(future)))

    def _headers(self, message: StoredMessage, last_seq: int) -> Iterator[tuple[str, str]]:
        for name, value in message.headers:
            if name == MSG_ID:
                yield ORIGINAL_ID, value
            elif not name.lower().startswith(OF_A_PUBLISH):
                yield name, value
        yield MSG_ID, f"jetraft-copy:{self.source}:{message.seq}"
        yield EXPECTED, str(last_seq)


async def _result(future: "asyncio.Future[Any]") -> Any:
    return await future


@attrs.define(kw_only=True)
class Comparison:
    """A copy beside its original, message by message."""

    messages: int = 0  # that are in both, and equal
    only_in_copy: int = 0  # the original has expired or was removed meanwhile
    digest: Any = attrs.field(factory=hashlib.sha256)

    def add(self, message: StoredMessage, subject: str) -> None:
        """One that is equal; each part is preceded by its length."""
        self.messages += 1
        headers = "\r\n".join(f"{name}: {value}" for name, value in message.own_headers)
        for part in (subject.encode(), headers.encode("utf-8", "surrogateescape"), message.payload):
            self.digest.update(len(part).to_bytes(8, "big"))
            self.digest.update(part)


async def compared(copy: ClientCopy, *, same_seqs: bool) -> AsyncIterator[tuple[int, Comparison]]:
    """Compare all of the copy; gives the sequence of the source that it has come to. Raises CommandError.

    With `same_seqs` sequences and times are compared, too.
    """
    found = Comparison()
    state = (await asked(copy.at, f"STREAM.INFO.{copy.target}"))["state"]
    last = copy.until if same_seqs else int(state["last_seq"])
    originals = _each(batches(copy.origin, copy.source, 1, copy.until))
    original = await anext(originals, None)
    async for copies in batches(copy.at, copy.target, int(state["first_seq"]), last):
        for each in copies:
            seq = each.seq if same_seqs else each.copied_seq
            if seq is None:
                raise CommandError(NO_COPY.format(each.seq, copy.target))
            while original is not None and original.seq < seq:
                await _check_gone(copy, original)
                original = await anext(originals, None)
            if original is None or original.seq > seq:
                found.only_in_copy += 1
                continue
            check_equal(copy, original, each, same_seqs=same_seqs)
            found.add(original, copy.prefix + original.subject)
            original = await anext(originals, None)
        yield seq or 0, found
    while original is not None:
        await _check_gone(copy, original)
        original = await anext(originals, None)
    yield copy.until, found


async def _each(found: AsyncIterator[list[StoredMessage]]) -> AsyncIterator[StoredMessage]:
    async for batch in found:
        for each in batch:
            yield each


async def _check_gone(copy: ClientCopy, original: StoredMessage) -> None:
    """A message that has no copy has expired, or was removed, meanwhile. Raises CommandError."""
    if await message_at(copy.origin, copy.source, {"seq": original.seq}) is not None:
        raise CommandError(f"message {original.seq} of {copy.source} is not in {copy.target}: copy into a new stream")


def check_equal(copy: ClientCopy, original: StoredMessage, other: StoredMessage, *, same_seqs: bool) -> None:
    """Raises CommandError."""
    parts = {
        "subject": (copy.prefix + original.subject, other.subject),
        "headers": (original.own_headers, other.own_headers),
        "payload": (original.payload, other.payload),
    } | ({"time": (original.time, other.time)} if same_seqs else {})
    for name, (left, right) in parts.items():
        if left != right:
            raise CommandError(
                f"message {original.seq} of {copy.source} and {other.seq} of {copy.target} differ in their {name}:"
                " copy into a new stream"
            )
