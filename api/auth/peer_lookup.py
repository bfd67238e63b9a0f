"""Tokens of accounts from other servers: the system account asks `$SYS.REQ.ACCOUNT.<key>.CLAIMS.LOOKUP`.

The first answer that has a token counts. An empty one says that a server has none; when all who were asked have said
so, or there was none, that is the answer.
"""

import itertools
from collections.abc import Iterator

import attrs
import trio

from jetraft.api.auth.token_source import AccountLookupError
from jetraft.api.turns.outbox import PlaneOutbox
from jetraft.cluster.capture._capture import captures
from jetraft.cluster.capture.reach import MessageOrigin, SinkKind


@attrs.define(eq=False)
class _Question:
    left: int = 0  # answers that are still to come
    token: bytes = attrs.field(default=b"", repr=False)
    done: trio.Event = attrs.field(factory=trio.Event)


@attrs.define(eq=False)
class PeerSource:
    """See the module. `outbox` is the system account's, `inbox` a subject of this server alone."""

    outbox: PlaneOutbox
    inbox: str
    timeout_s: float
    _asked: dict[str, _Question] = attrs.field(factory=dict, init=False)
    _numbers: Iterator[int] = attrs.field(factory=itertools.count, init=False)
    _sink: int | None = attrs.field(default=None, init=False)

    async def fetch(self, key: str) -> bytes:
        """The token that another server has. Raises AccountLookupError."""
        if self._sink is None:
            self._sink = self.outbox.add_sink(f"{self.inbox}.*".encode(), self._on_batch, kind=SinkKind.REPLY)
        word, question = str(next(self._numbers)), _Question()
        self._asked[word] = question
        try:
            to = f"$SYS.REQ.ACCOUNT.{key}.CLAIMS.LOOKUP".encode()
            question.left = self.outbox.send(to, reply=f"{self.inbox}.{word}".encode(), origin=MessageOrigin.SERVER)
            if question.left:
                with trio.fail_after(self.timeout_s):
                    await question.done.wait()
        except trio.TooSlowError:
            raise AccountLookupError("fetching jwt timed out") from None
        finally:
            del self._asked[word]
        if not question.token:
            raise AccountLookupError("account jwt not found")
        return question.token

    def _on_batch(self, batch: bytes) -> None:
        for capture in captures(batch):
            question = self._asked.get(capture.subject.decode(errors="replace").rpartition(".")[2])
            if question is None or question.token:
                continue
            question.left -= 1
            question.token = capture.payload
            if question.token or question.left <= 0:
                question.done.set()
