"""Takes captured API requests and publishes their answers: one per request, in order for each stream.

Sinks that capture the API's subjects at this node hand over batches. Each request is looked up in the dispatch list
and waits in its line (`lines`). A bounded number of workers takes from the lines in turn and gives what it takes to the
cluster's forwarder, which carries it out here or sends it to the owner. Each account has sinks of its own; an account
without JetStream gets an error for each request, as from nats-server. So the API costs the node no more than so much
work at a time, however much is asked, and acknowledgements go in between. A request that does not fit into the lines,
or has waited for too long, is refused with 429: everybody is answered.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final

import attrs
import trio

from jetraft.api.auth.accounts import LiveAccounts
from jetraft.api.jetstream.call import Call
from jetraft.api.jetstream.dispatch import CAPTURED, OF_2020, Found, find, handler_of
from jetraft.api.jetstream.error_answers import error_json
from jetraft.api.jetstream.handlers.asking import NAMED, with_client
from jetraft.api.jetstream.lines import CREATIONS_MAX, Captured, Job, Line, Lines, is_late
from jetraft.api.jetstream.prompt_gets import PromptGets
from jetraft.api.jetstream.rights import written_by
from jetraft.api.options.options import JetStreamAccounts
from jetraft.cluster.advisories import AUDITS
from jetraft.cluster.calls.forward import Moved
from jetraft.cluster.calls.messages.forwarding import ForwardedRequest, Owner
from jetraft.cluster.capture._capture import captures
from jetraft.cluster.capture.reach import MessageOrigin, SinkKind
from jetraft.store.model import errors, message
from jetraft.store.model.events import API_OVERLOADED
from jetraft.store.model.limits import NO_LIMITS
from jetraft.store.model.responses import ResponseType, answer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from jetraft.api.jetstream.api_service import ApiService
    from jetraft.api.jetstream.prompt_gets import PromptCalls
    from jetraft.cluster.ports import Outboxes
    from jetraft.cluster.requests.service import ClusterService
    from jetraft.store.model.limits import QueueLimits

    MayWrite = Callable[[int, str, bytes], bool]
    Describe = Callable[[int, str], Mapping[str, object]]

log = logging.getLogger(__name__)

WORKERS_MAX: Final = 16  # that read, and as many that change: what one pass of the scheduler may have to do, some 10 ms
PARKED_MAX: Final = 1024  # that wait for a stream to have a leader; these cost nothing but memory
ANSWERED_BYTES: Final = 1 << 20  # of one answer to all who have asked the same, at a time: some 0.5 ms to copy
ANSWERS_SENT: Final = 128  # the same in requests, each 10 us with an audit event
REFUSED_LINE_S: Final = 10.0  # a line in the log, and an advisory, say how many were refused since the one before
OF_CLUSTER: Final = (b"META.", b"SERVER.", b"ACCOUNT.")
OF_ACCOUNT: Final = b"ACCOUNT.STREAM."  # of these, which an account may ask for its own streams
IDENTITY: Final = b"Nats-Stream-Identity"
SOURCING: Final = b'"sourcing"'  # in the configuration of a consumer through which a server reads
READERS_ASK: Final = (ResponseType.CONSUMER_CREATE, ResponseType.CONSUMER_RESET)  # who reads a stream, which one it is


@attrs.frozen(kw_only=True, slots=True)
class GatewayStatistics:
    """Requests at this node: answered since it started, and waiting now."""

    requests: int
    errors: int
    waiting: int
    refused: int


def everything(_client: int, _account: str, _subject: bytes) -> bool:
    """The rights of clients without permissions."""
    return True


def account_only(_client: int, account: str) -> Mapping[str, object]:
    """A client of which nothing but its account is known."""
    return {"acc": account}


class ApiGateway:
    """Takes the API requests of all accounts on one node. `accounts` says of which, and whether they have JetStream.

    What is about the cluster itself is carried out for operators alone; to others nothing is said, as by nats-server.
    """

    def __init__(  # noqa: PLR0913  (the ports, and what accounts may do)
        self,
        *,
        service: ApiService,
        outboxes: Outboxes,
        kick: Callable[[], None],
        accounts: LiveAccounts | None = None,
        server_name: str,
        describe: Describe = account_only,
        may_write: MayWrite = everything,
        limits: QueueLimits = NO_LIMITS.queues,
    ) -> None:
        """`describe` says what events tell of who asks, by its id and the account that is asked.

        `may_write` says whether a client may publish to all subjects of a pattern in an account.
        """
        self._service = service
        self._accounts = LiveAccounts.of(JetStreamAccounts()) if accounts is None else accounts
        self._accounts.changed.connect(self._follow)
        self._new_outbox = outboxes
        self._server_name = server_name
        self._describe = describe
        self._may_write = may_write
        self._outboxes = {account: outboxes(account) for account in self._accounts.limits}
        self._sinks: dict[str, list[int]] = {}  # by account
        self._kick = kick
        self.has_legacy_api = False  # whether requests of 2020 alone are answered
        self._nursery: trio.Nursery | None = None
        self._lines = Lines(limits)
        self._workers = {True: 0, False: 0}  # running now: for reads (True), for changes (False)
        self._parked = 0
        self._refused = 0
        self._refused_reported = 0  # the value of `_refused` in the last log line
        self._next_report_s = 0.0
        self._is_open = True

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled."""
        try:
            async with trio.open_nursery() as self._nursery:
                if self._is_open:
                    self.open()
                task_status.started()
                try:
                    await trio.sleep_forever()
                finally:
                    self.shut()
        finally:
            self._nursery = None

    def open(self) -> None:
        """Take requests from now on."""
        self._is_open = True
        for account in self._accounts.limits:
            self._follow(account)

    def shut(self) -> None:
        """Take no more: clients are told that there are no responders."""
        self._is_open = False
        for account in list(self._sinks):
            self._end(account)

    def _follow(self, account: str) -> None:
        """An account has changed, or is gone. Its requests that are being executed are answered."""
        if self._nursery is None:
            return
        if not self._accounts.is_answered(account):
            self._end(account)
        elif self._is_open and account not in self._sinks:
            self._listen(account)

    def _listen(self, account: str) -> None:
        if account not in self._outboxes:
            self._outboxes[account] = self._new_outbox(account)
        outbox, handler = self._outboxes[account], partial(self.on_batch, account)
        self._sinks[account] = [
            outbox.add_sink(subject, handler, kind=SinkKind.API, local_only=True) for subject in CAPTURED
        ]

    def _end(self, account: str) -> None:
        for handle in self._sinks.pop(account, ()):
            self._outboxes[account].remove_sink(handle)

    def on_batch(self, account: str, batch: bytes) -> None:
        """Take over a batch of an account's captured requests."""
        is_audited = self._outboxes[account].has_interest(AUDITS, origin=MessageOrigin.ADVISORY)
        for capture in captures(batch):
            found = find(capture.subject)
            if found is None:
                continue  # see dispatch: an unknown API is not answered
            is_named = is_audited or found.operation.kind in NAMED
            asker = self._describe(capture.origin, account) if is_named else None
            captured = Captured.of(account, capture, asker)
            if not self.has_legacy_api and found.operation.pattern.startswith(OF_2020):
                continue
            is_of_cluster = found.operation.pattern.startswith(OF_CLUSTER)
            if is_of_cluster and account not in self._accounts.operators and not _is_own(found, account):
                continue
            if self._accounts.limits.get(account) is None and not is_of_cluster:
                self._refuse(found, captured, errors.NOT_ENABLED_FOR_ACCOUNT.with_values())
            elif error := self._refusal_of_rights(found, captured):
                self._refuse(found, captured, error)
            elif self._begin_at_once(found, captured):
                continue
            elif not self._lines.offer(found, captured, trio.current_time()):
                self._count_refused(1, account)
                self._refuse(found, captured, errors.STREAM_TOO_MANY_REQUESTS.with_values())
        self._start_workers()

    def _refusal_of_rights(self, found: Found, captured: Captured) -> errors.ApiError | None:
        """Why a client may not create a consumer: it would publish where the client may not."""
        if found.operation.kind is not ResponseType.CONSUMER_CREATE or not captured.client:
            return None
        for subject in written_by(found.names[0], captured.payload):
            if not self._may_write(captured.client, captured.account, subject.encode()):
                return errors.JETRAFT_MAY_NOT_PUBLISH.with_values(subject=subject)
        return None

    def _begin_at_once(self, _found: Found, _captured: Captured) -> bool:
        """Begin a request that needs no task; False when there is none to begin."""
        return False

    def statistics(self) -> GatewayStatistics:
        """Return a snapshot."""
        counts = self._service.usages.api.values()
        return GatewayStatistics(
            requests=sum(count.requests for count in counts),
            errors=sum(count.errors for count in counts),
            waiting=self._lines.waiting,
            refused=self._refused,
        )

    # --- workers

    def _start_workers(self) -> None:
        """Start a worker for each ready line, up to WORKERS_MAX; none when the gateway has ended."""
        if self._nursery is None:
            return
        for reads, ready in self._lines.ready.items():
            if not ready:
                continue
            for _ in range(min(len(ready), WORKERS_MAX - self._workers[reads])):
                self._workers[reads] += 1
                self._nursery.start_soon(self._work, ready.popleft(), reads)

    async def _work(self, line: Line, reads: bool) -> None:  # noqa: FBT001  (handed to a nursery)
        """Answer requests of one line after the other until no line is ready, or the slot has another worker."""
        slot, ready = _Slot(self, is_read=reads), self._lines.ready[reads]
        while True:
            jobs = self._lines.take(line, CREATIONS_MAX // max(1, self._workers[reads]))
            await self._answer(jobs, slot)
            self._lines.put_back(line)
            if slot.is_released or not ready:
                break
            line = ready.popleft()
            self._start_workers()
            await trio.lowlevel.checkpoint()  # requests that are answered without a wait must not delay other tasks
        if slot.is_released:
            self._parked -= 1
        else:
            self._workers[reads] -= 1
        self._start_workers()

    def park(self, *, is_read: bool) -> bool:
        """Let another worker run while one waits for an owner; False when PARKED_MAX wait already."""
        if self._parked >= PARKED_MAX:
            return False
        self._parked += 1
        self._workers[is_read] -= 1
        self._start_workers()
        return True

    async def _answer(self, jobs: Sequence[Job], slot: _Slot) -> None:
        if len(jobs) == 1:
            await self._send_in_parts(jobs[0], await self._execute_job(jobs[0], slot))
            return
        bodies: dict[int, bytes] = {}

        async def execute(number: int) -> None:
            bodies[number] = await self._execute_job(jobs[number], slot)

        async with trio.open_nursery() as nursery:
            for number in range(len(jobs)):
                nursery.start_soon(execute, number)
        for number, job in enumerate(jobs):
            self._send(job, bodies[number])

    async def _execute_job(self, job: Job, slot: _Slot) -> bytes:
        """Have the owner execute a request; returns the answer, empty for none."""
        operation, captured = job.found.operation, job.captured
        if is_late(job, trio.current_time()):
            self._count_refused(len(job.asked), captured.account)
            return error_json(operation.kind, errors.STREAM_TOO_MANY_REQUESTS.with_values())
        account = captured.account
        request = ForwardedRequest(
            account=account,
            owner=operation.owner,
            stream=job.found.names[0] if operation.owner is Owner.STREAM else "",
            repeatable=operation.repeatable,
            subject=captured.subject,
            hdr=with_client(captured.hdr, self._asker(captured)) if operation.kind in NAMED else captured.hdr,
            payload=captured.payload,
        )
        try:
            return await self._service.forwarder.answer(request, on_wait=slot.release)
        except errors.ApiError as error:
            return error_json(operation.kind, error)

    def _asker(self, captured: Captured) -> Mapping[str, object]:
        if captured.asker is not None:
            return captured.asker
        return self._describe(captured.client, captured.account)

    async def _send_in_parts(self, job: Job, body: bytes) -> None:
        """Answer a request that many may have sent: the others are served in between."""
        most = max(1, min(ANSWERS_SENT, ANSWERED_BYTES // max(1, len(body))))
        for first in range(0, len(job.asked), most):
            if first:
                await trio.lowlevel.checkpoint()
            self._send(job, body, job.asked[first : first + most])

    def _send(self, job: Job, body: bytes, asked: Sequence[Captured] | None = None) -> None:
        """Count the requests of a job, or some of them, publish their advisories, and answer them."""
        for captured in job.asked if asked is None else asked:
            self._lines.answered(job.found, captured)
            counts, account = self._service.usages.api[captured.account], captured.account
            counts.requests += 1
            counts.errors += b'"error":{' in body[:ERROR_WITHIN_BYTES]
            if body and self._outboxes[account].has_interest(AUDITS, origin=MessageOrigin.ADVISORY):
                self._service.advisories.of(account).api_audit(
                    server=self._server_name,
                    client=partial(self._asker, captured),
                    subject=captured.subject,
                    request=captured.payload,
                    response=body,
                )
            if captured.reply and body:
                self._reply(job.found, captured, body)
        self._kick()

    def _reply(self, found: Found, captured: Captured, body: bytes) -> None:
        """Send an answer; to a server that asks for a consumer to read a stream, also which one of this name it is."""
        outbox = self._outboxes[captured.account]
        identity = ""
        kind = found.operation.kind
        if kind in READERS_ASK and (IDENTITY in captured.hdr or (SOURCING in body and SOURCING in captured.payload)):
            identity = self._service.identity_of(captured.account, found.names[0])
        if identity:
            outbox.send(captured.reply, hdr=message.build({IDENTITY: identity.encode()}), payload=body)
        else:
            outbox.send(captured.reply, payload=body)

    # --- overload

    def _refuse(self, found: Found, captured: Captured, error: errors.ApiError) -> None:
        """Answer a request that is not carried out, in the turn in which it came."""
        counts = self._service.usages.api[captured.account]
        counts.requests += 1
        counts.errors += 1
        if captured.reply:
            body = error_json(found.operation.kind, error)
            self._outboxes[captured.account].send(captured.reply, payload=body)

    def _count_refused(self, count: int, account: str) -> None:
        """Say it in the log and as an advisory, but not each time."""
        self._refused += count
        now_s = trio.current_time()
        if now_s < self._next_report_s:
            return
        self._next_report_s = now_s + REFUSED_LINE_S
        refused, self._refused_reported = self._refused - self._refused_reported, self._refused
        API_OVERLOADED.log(refused=refused, waiting=self._lines.waiting)  # like nats-server, which drops them
        self._service.advisories.of(account).api_limit_reached(server=self._server_name, dropped=refused)


class JetStreamGateway(ApiGateway):
    """The same on a node with JetStream, which carries out the requests that it owns."""

    def __init__(  # noqa: PLR0913  (as above)
        self,
        *,
        service: ClusterService,
        outboxes: Outboxes,
        kick: Callable[[], None],
        later: Callable[[Callable[[], None]], None],
        send_early: Callable[[], None],
        calls: PromptCalls | None = None,
        accounts: LiveAccounts | None = None,
        server_name: str,
        describe: Describe = account_only,
        may_write: MayWrite = everything,
        limits: QueueLimits = NO_LIMITS.queues,
        strict: bool = True,
    ) -> None:
        super().__init__(
            service=service,
            outboxes=outboxes,
            kick=kick,
            accounts=accounts,
            server_name=server_name,
            describe=describe,
            may_write=may_write,
            limits=limits,
        )
        self._cluster = service
        self._is_strict = strict
        self._gets = PromptGets(
            self._lines,
            leaders=service.owners,
            calls=calls,
            later=later,
            send_early=send_early,
            send=self._send,
            resume=self._start_workers,
            is_strict=strict,
        )
        service.served.serve_api(self.execute)

    def _begin_at_once(self, found: Found, captured: Captured) -> bool:
        return self._gets.begin(found, captured, trio.current_time())

    async def execute(self, request: ForwardedRequest) -> bytes:
        """Execute a request on this node; returns its JSON, empty for no answer. Raises Moved, AnswerLost."""
        found = find(request.subject)
        if found is None:  # the other node is newer and knows this operation
            raise Moved
        operation = found.operation
        call = Call(
            account=request.account,
            names=found.names,
            body=request.payload,
            hdr=request.hdr,
            is_strict=self._is_strict,
        )
        try:
            call.check_level(request.hdr)
            body = await handler_of(operation.handler)(self._cluster, call)
            return b"" if body is None else answer(operation.kind, body)
        except errors.ApiError as error:
            return error_json(operation.kind, error)
        except self._cluster.not_answers:
            raise
        except Exception:  # a bug in one handler must not stop the server, and the client needs an answer
            log.exception("API request on %s failed", request.subject.decode(errors="replace"))
            return error_json(operation.kind, errors.CLUSTER_NOT_AVAILABLE.with_values())


@attrs.define(eq=False)
class _Slot:
    """One of the WORKERS_MAX that run at the same time."""

    gateway: ApiGateway
    is_read: bool
    is_released: bool = False

    def release(self) -> None:
        """Give the slot to another worker while this one waits. A second call does nothing."""
        self.is_released = self.is_released or self.gateway.park(is_read=self.is_read)


ERROR_WITHIN_BYTES: Final = 100  # an error follows the type, whose names are shorter than this


def _is_own(found: Found, account: str) -> bool:
    return found.operation.pattern.startswith(OF_ACCOUNT) and found.names[0] == account
