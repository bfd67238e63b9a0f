"""STREAM.MSG.GET within turns: without a task on any node, and so without passes of their schedulers.

A get waits for nothing but a round of contact (rule 21), which begins in the turn in which the get came and ends in the
turn in which a member answers; alone on its server, a stream needs no turn but the first. The gets of a turn share a
round. One that enters at a follower goes to the leader with the follower's word that it still follows it: of three
replicas these two are a majority, and no other node is asked.

A request that is not that simple goes the way of all requests (`gateway`): when changes of the stream wait, or too many
gets, or no leader is known, and when what was begun here finds that the leader has been deposed, or has to search for
long.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Protocol

from jetraft.api.jetstream.call import Call
from jetraft.api.jetstream.handlers.messages import get_confirmed
from jetraft.api.jetstream.plain_gets import plain_answer
from jetraft.cluster.calls.messages.forwarding import ForwardedAnswer, ForwardStatus
from jetraft.cluster.calls.messages.gets import GET, GET_BYTES_MAX, HEAD_BYTES, ForwardedGet
from jetraft.cluster.requests.locator import LeaderElsewhere
from jetraft.cluster.streams.gets.asked import TakesLongError
from jetraft.raft.mesh.errors import RemoteProtocolError
from jetraft.raft.proposals import Outcome
from jetraft.store.model import errors
from jetraft.store.model.responses import ResponseType, answer, error_answer

if TYPE_CHECKING:
    from collections.abc import Callable

    from jetraft.api.jetstream.dispatch import Found
    from jetraft.api.jetstream.lines import Captured, Job, Lines
    from jetraft.cluster.streams.replica.replica import StreamReplica
    from jetraft.store.model.ids import NodeId

log = logging.getLogger(__name__)

_KIND = ResponseType.STREAM_MSG_GET


class Leaders(Protocol):
    """The leaders of streams, as far as this node knows (cluster/requests/locator.py)."""

    def led_here(self, account: str, name: str) -> StreamReplica | None:
        """The stream's replica, if it leads."""

    def followed(self, account: str, name: str) -> LeaderElsewhere | None:
        """The other node that leads the stream, if this node can ask it."""


class PromptCalls(Protocol):
    """Questions between nodes (raft/mesh/rpc.py)."""

    def serve_at_once(self, method: str, handler: Callable[[NodeId, bytes, Callable[[bytes], None]], None]) -> None:
        """Have questions answered."""

    def ask(self, to: NodeId, method: str, payload: bytes, done: Callable[[bytes | None], None]) -> bool:
        """Ask a node; False when it cannot be asked."""


class PromptGets:
    """See the module. `lines` are the gateway's, and count these gets with the others."""

    def __init__(  # noqa: PLR0913  (the ports)
        self,
        lines: Lines,
        *,
        leaders: Leaders,
        calls: PromptCalls | None,
        later: Callable[[Callable[[], None]], None],
        send_early: Callable[[], None],
        send: Callable[[Job, bytes], None],
        resume: Callable[[], None],
        is_strict: bool = True,
    ) -> None:
        """`later` calls back in the turn; `send_early` sends what is ready for other nodes.

        `send` answers a job, `resume` looks at the lines again after that.
        """
        self._lines = lines
        self._leaders = leaders
        self._calls = calls
        self._later = later
        self._send_early = send_early
        self._send = send
        self._resume = resume
        self._read = partial(_answer_of, is_strict=is_strict)
        if calls is not None:
            calls.serve_at_once(GET, self._serve)

    def begin(self, found: Found, captured: Captured, now_s: float) -> bool:
        """Begin a request that was captured in this turn; False when it is to wait in a line like others."""
        if found.operation.kind is not _KIND:
            return False
        place = self._place_of(found, captured)
        job = None if place is None else self._lines.begin_get(found, captured, now_s)
        if place is None or job is None:
            return False
        self._begin_at(place, job)
        return True

    def _place_of(self, found: Found, captured: Captured) -> StreamReplica | LeaderElsewhere | None:
        """The replica that leads, or the node where it is; None when it has to be looked for."""
        account, stream = captured.account, found.names[0]
        here = self._leaders.led_here(account, stream)
        if here is not None or self._calls is None:
            return here
        is_long = len(captured.hdr) + len(captured.payload) > GET_BYTES_MAX - HEAD_BYTES
        return None if is_long else self._leaders.followed(account, stream)

    def _begin_at(self, place: StreamReplica | LeaderElsewhere, job: Job) -> None:
        if not isinstance(place, LeaderElsewhere):
            self._confirm(place, None, partial(self._end_here, place, job))
        elif not self._ask(place, job):
            self._end(job, b"")

    # Gets that entered here.

    def _end_here(self, replica: StreamReplica, job: Job, outcome: Outcome) -> None:
        is_read = outcome is Outcome.OK
        self._end(job, self._read(replica, job.captured.hdr, job.captured.payload) if is_read else b"")

    def _ask(self, place: LeaderElsewhere, job: Job) -> bool:
        captured = job.captured
        asked = ForwardedGet(
            account=captured.account,
            stream=job.found.names[0],
            incarnation=place.incarnation,
            term=place.term,
            hdr=captured.hdr,
            payload=captured.payload,
        )
        assert self._calls is not None
        self._send_early()  # what its client has published before goes before it
        return self._calls.ask(place.node, GET, asked.pack(), partial(self._answered, job))

    def _answered(self, job: Job, packed: bytes | None) -> None:
        try:
            answered = None if packed is None else ForwardedAnswer.unpack(packed)
        except RemoteProtocolError as error:
            log.info("a get that was forwarded: %s", error)
            answered = None
        self._end(job, b"" if answered is None or answered.status is not ForwardStatus.DONE else answered.body)

    def _end(self, job: Job, body: bytes) -> None:
        """Answer; without an answer the get waits in its line, and the stream's leader is looked for."""
        if body:
            self._send(job, body)
        for one in self._lines.end_get(job, is_to_wait=not body):
            place = self._place_of(one.found, one.captured)
            if place is None:
                self._lines.end_get(one, is_to_wait=True)
            else:
                self._begin_at(place, one)
        self._resume()

    # Gets of other nodes.

    def _serve(self, sender: NodeId, packed: bytes, reply: Callable[[bytes], None]) -> None:
        """Answer another node. Raises RemoteProtocolError."""
        asked = ForwardedGet.unpack(packed)
        replica = self._leaders.led_here(asked.account, asked.stream)
        if replica is None:
            reply(ForwardedAnswer(status=ForwardStatus.MOVED).pack())
            return
        word = (sender, asked.term) if asked.incarnation == replica.incarnation else None

        def end(outcome: Outcome) -> None:
            body = self._read(replica, asked.hdr, asked.payload) if outcome is Outcome.OK else b""
            if body:
                reply(ForwardedAnswer(status=ForwardStatus.DONE, body=body).pack())
            else:
                reply(ForwardedAnswer(status=ForwardStatus.MOVED).pack())

        self._confirm(replica, word, end)

    # Both.

    def _confirm(self, replica: StreamReplica, word: tuple[NodeId, int] | None, end: Callable[[Outcome], None]) -> None:
        def confirmed(outcome: Outcome, _result: object) -> None:
            # Later in this turn: what goes wrong in a callback of a group would stop the group.
            self._later(partial(end, outcome))

        replica.group.read_barrier(confirmed, word=word)


def _answer_of(replica: StreamReplica, hdr: bytes, payload: bytes, *, is_strict: bool) -> bytes:
    """The JSON of an answer, or of an error; empty for a get that has to search for long."""
    try:
        if not hdr and (plain := plain_answer(replica.machine.store, payload)) is not None:
            return plain
        call = Call(account="", names=(), body=payload, is_strict=is_strict)
        call.check_level(hdr)
        return answer(_KIND, get_confirmed(replica, call))
    except TakesLongError:
        return b""
    except errors.ApiError as error:
        return error_answer(_KIND, error)
    except Exception:  # a bug, or a disk that fails, must not stop the server, and the client needs an answer
        log.exception("STREAM.MSG.GET of %s failed", replica.machine.config)
        return error_answer(_KIND, errors.CLUSTER_NOT_AVAILABLE.with_values())
