"""STREAM.MSG.GET where its stream is led, within turns: without a task, and so without a pass of the scheduler.

A get waits for nothing but a round of contact (rule 21), which begins in the turn in which the get came and ends in the
turn in which a member answers; alone on its server, a stream needs no turn but the first. The gets of a turn share a
round. So a get costs what its messages cost. What is not that simple (a stream that is led elsewhere, changes of the
stream that wait, too many gets) goes the way of all requests (`gateway`), and so does a get whose leader is deposed
meanwhile: its next leader is looked for.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Protocol

from jetraft.api.jetstream.call import Call
from jetraft.api.jetstream.messages import get_confirmed
from jetraft.raft.proposals import Outcome
from jetraft.store.model import errors
from jetraft.store.model.responses import ResponseType, answer, error_answer

if TYPE_CHECKING:
    from collections.abc import Callable

    from jetraft.api.jetstream.dispatch import Found
    from jetraft.api.jetstream.lines import Captured, Job, Lines
    from jetraft.cluster.ports import Outbox
    from jetraft.cluster.streams.replica import StreamReplica

log = logging.getLogger(__name__)


class Leading(Protocol):
    """What is led on this node (cluster/requests/locator.py)."""

    def led_here(self, account: str, stream: str) -> StreamReplica | None:
        """The stream's replica, if it leads."""


class PromptGets:
    """See the module. `lines` are the gateway's, and count these gets with the others."""

    def __init__(
        self,
        lines: Lines,
        *,
        leading: Leading,
        outbox_of: Callable[[str], Outbox],
        send: Callable[[Job, bytes], None],
        resume: Callable[[], None],
    ) -> None:
        """`send` answers a job, `resume` looks at the lines again after that."""
        self._lines = lines
        self._leading = leading
        self._outbox_of = outbox_of
        self._send = send
        self._resume = resume

    def begin(self, found: Found, captured: Captured, now_s: float) -> bool:
        """Begin a request that was captured in this turn; False when it is to wait in a line like others."""
        if found.operation.kind is not ResponseType.STREAM_MSG_GET:
            return False
        replica = self._leading.led_here(captured.account, found.names[0])
        if replica is None:
            return False
        job = self._lines.begin_get(found, captured, now_s)
        if job is None:
            return False
        self._confirm(replica, job)
        return True

    def _confirm(self, replica: StreamReplica, job: Job) -> None:
        later = self._outbox_of(job.captured.account).later

        def confirmed(outcome: Outcome, _result: object) -> None:
            # Later in this turn: what goes wrong in a callback of a group would stop the group.
            later(partial(self._end, replica, job, outcome))

        replica.group.read_barrier(confirmed)

    def _end(self, replica: StreamReplica, job: Job, outcome: Outcome) -> None:
        if outcome is Outcome.OK:
            self._send(job, _answer_to(replica, job))
            waiting = self._lines.end_get(job)
        else:
            waiting = self._lines.end_get(job, is_to_wait=True)
        for one in waiting:
            at = self._leading.led_here(one.captured.account, one.found.names[0])
            if at is None:
                self._lines.end_get(one, is_to_wait=True)
            else:
                self._confirm(at, one)
        self._resume()


def _answer_to(replica: StreamReplica, job: Job) -> bytes:
    captured, kind = job.captured, job.found.operation.kind
    call = Call(account=captured.account, names=job.found.names, body=captured.payload)
    try:
        call.check_level(captured.hdr)
        return answer(kind, get_confirmed(replica, call))
    except errors.ApiError as error:
        return error_answer(kind, error)
    except Exception:  # a bug, or a disk that fails, must not stop the server, and the client needs an answer
        log.exception("API request on %s failed", captured.subject.decode(errors="replace"))
        return error_answer(kind, errors.CLUSTER_NOT_AVAILABLE.with_values())
