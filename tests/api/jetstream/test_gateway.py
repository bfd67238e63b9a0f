"""From captured requests to published answers, over a service that answers from a table."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, cast

import attrs
import orjson
import pytest
import trio

from jetraft.api.auth.accounts import LiveAccounts
from jetraft.api.jetstream import gateway as gateway_module
from jetraft.api.jetstream.error_answers import error_json
from jetraft.api.jetstream.gateway import JetStreamGateway
from jetraft.cluster.advisories import AUDITS
from jetraft.cluster.calls.forward import AnswerLost, Moved
from jetraft.cluster.calls.messages.forwarding import ForwardedRequest, Owner
from jetraft.cluster.capture._capture import encode_capture
from jetraft.cluster.capture.reach import MessageOrigin, SinkKind
from jetraft.cluster.requests.usage import ApiCounts
from jetraft.store.model import errors
from jetraft.store.model.ids import GLOBAL_ACCOUNT
from jetraft.store.model.limits import NO_LIMITS, QueueLimits
from jetraft.store.model.responses import ResponseType
from jetraft.store.model.state import AccountLimits
from tests.harness.patience import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from jetraft.cluster.ports import Outboxes
    from jetraft.cluster.requests.service import ClusterService
    from jetraft.store.model.tiers import Allowance


class FakeForwarder:
    """Carries out everything here, after `delay_s`; notes what it was given."""

    def __init__(self) -> None:
        self.requests: list[ForwardedRequest] = []
        self.execute: Callable[[ForwardedRequest], Awaitable[bytes]]
        self.delays: dict[bytes, float] = {}
        self.ownerless: set[bytes] = set()
        self.fails: Exception | None = None

    async def answer(self, request: ForwardedRequest, *, on_wait: Callable[[], None]) -> bytes:
        self.requests.append(request)
        if request.subject in self.ownerless:
            on_wait()
        await trio.sleep(self.delays.get(request.subject, 0))
        if self.fails is not None:
            raise self.fails
        return await self.execute(request)


@attrs.define
class FakeCluster:
    clustered: bool = False


class FakeUsages:
    def __init__(self) -> None:
        self.api: defaultdict[str, ApiCounts] = defaultdict(ApiCounts)


class FakeAdvisories:
    """Notes how many requests were refused."""

    def __init__(self) -> None:
        self.refused: list[int] = []

    def of(self, _account: str) -> FakeAdvisories:
        return self

    def api_audit(self, **_fields: object) -> None:
        """Not of interest here."""

    def stream_action(self, *_fields: object) -> None:
        """Not of interest here."""

    def api_limit_reached(self, *, server: str, dropped: int) -> None:
        assert server
        self.refused.append(dropped)


class FakeOwners:
    """Nothing is led here."""

    def led_here(self, _account: str, _stream: str) -> None:
        return None

    def followed(self, _account: str, _stream: str) -> None:
        return None


class FakeService:
    """The part of the service that the gateway and the simplest handlers use."""

    node_id = "N1"
    owners = FakeOwners()
    not_answers = (Moved, AnswerLost)

    def __init__(self) -> None:
        self.forwarder = FakeForwarder()
        self.cluster = FakeCluster()
        self.deleted: list[str] = []
        self.bug = False
        self.usages = FakeUsages()
        self.advisories = FakeAdvisories()
        self.served = self

    def serve_api(self, execute: Callable[[ForwardedRequest], Awaitable[bytes]]) -> None:
        """Of `served`, which is this as well."""
        self.forwarder.execute = execute

    def streams_of(self, _account: str, _subject: str) -> list[object]:
        return []

    async def delete_stream(self, _account: str, name: str) -> None:
        if self.bug:
            raise KeyError(name)
        if name == "NOPE":
            raise errors.STREAM_NOT_FOUND.with_values()
        self.deleted.append(name)


class FakeOutbox:
    """Keeps sinks and answers."""

    def __init__(self) -> None:
        self.sinks: dict[int, bytes] = {}
        self.answers: list[tuple[bytes, dict[str, Any]]] = []
        self.arrived = trio.Event()

    def has_interest(self, subject: bytes, *, origin: MessageOrigin) -> bool:
        assert (subject, origin) == (AUDITS, MessageOrigin.ADVISORY)
        return True

    def add_sink(self, subject: bytes, _handler: object, *, kind: SinkKind, local_only: bool = False) -> int:
        assert local_only
        assert kind is SinkKind.API
        self.sinks[len(self.sinks)] = subject
        return len(self.sinks) - 1

    def remove_sink(self, handle: int) -> None:
        del self.sinks[handle]

    def send(self, to: bytes, *, payload: bytes = b"") -> int:
        self.answers.append((to, orjson.loads(payload)))
        self.arrived.set()
        return 1


class Bench:
    """A gateway with fakes on both sides."""

    def __init__(
        self,
        accounts: Mapping[str, bool] | None = None,
        operators: tuple[str, ...] = ("$G",),
        *,
        limits: QueueLimits = NO_LIMITS.queues,
    ) -> None:
        self.service = FakeService()
        self.outbox = FakeOutbox()
        self.kicks = 0
        outboxes = cast("Outboxes", lambda _account: self.outbox)
        self.gateway = JetStreamGateway(
            server_name="n1",
            service=cast("ClusterService", self.service),
            outboxes=outboxes,
            kick=self._kick,
            later=lambda callback: callback(),
            send_early=lambda: None,
            accounts=None if accounts is None else self.accounts_of(accounts, operators),
            limits=limits,
        )

    @staticmethod
    def accounts_of(accounts: Mapping[str, bool], operators: tuple[str, ...]) -> LiveAccounts:
        limits: dict[str, Allowance | None] = {
            name: AccountLimits() if has_jetstream else None for name, has_jetstream in accounts.items()
        }
        return LiveAccounts(limits, frozenset(operators))

    def _kick(self) -> None:
        self.kicks += 1

    def publish(self, *requests: tuple[str, bytes], reply: bytes = b"r", hdr: bytes = b"") -> None:
        records = [
            encode_capture(subject=b"$JS.API." + subject.encode(), reply=reply, hdr=hdr, payload=body)
            for subject, body in requests
        ]
        self.gateway.on_batch(GLOBAL_ACCOUNT, b"".join(records))

    async def answers(self, count: int) -> list[dict[str, Any]]:
        with trio.fail_after(PATIENCE_S):
            while len(self.outbox.answers) < count:
                await self.outbox.arrived.wait()
                self.outbox.arrived = trio.Event()
        await trio.testing.wait_all_tasks_blocked()
        assert len(self.outbox.answers) == count
        return [answer for _, answer in self.outbox.answers]


@pytest.fixture
def limits() -> QueueLimits:
    return QueueLimits()


@pytest.fixture
async def bench(nursery: trio.Nursery, limits: QueueLimits) -> Bench:
    made = Bench(limits=limits)
    await nursery.start(made.gateway.run)
    return made


async def test_a_request_is_answered_once_with_its_type(bench: Bench) -> None:
    bench.publish(("STREAM.DELETE.S", b""))
    (answer,) = await bench.answers(1)
    assert answer == {"type": "io.nats.jetstream.api.v1.stream_delete_response", "success": True}
    assert bench.outbox.answers[0][0] == b"r"
    assert bench.kicks == 1


async def test_errors_of_the_catalogue_are_answers(bench: Bench) -> None:
    bench.publish(("STREAM.DELETE.NOPE", b""), ("STREAM.DELETE.S", b"x"))
    answers = await bench.answers(2)
    assert sorted(answer["error"]["err_code"] for answer in answers) == [10038, 10059]
    assert bench.gateway.statistics().errors == 2


async def test_unknown_subjects_and_messages_without_a_reply_get_no_answer(bench: Bench) -> None:
    bench.publish(("FOO", b""), ("STREAM.CREATE.S.x", b""))
    bench.publish(("STREAM.DELETE.quiet", b""), reply=b"")
    bench.publish(("STREAM.DELETE.S", b""))
    await bench.answers(1)
    assert sorted(bench.service.deleted) == ["S", "quiet"]


async def test_a_bug_in_a_handler_is_an_answer_and_the_next_request_is_served(bench: Bench) -> None:
    bench.service.bug = True
    bench.publish(("STREAM.DELETE.S", b""))
    (answer,) = await bench.answers(1)
    assert answer["error"]["err_code"] == 10008
    bench.service.bug = False
    bench.publish(("STREAM.DELETE.S", b""))
    assert (await bench.answers(2))[1]["success"] is True


async def test_requests_about_one_stream_are_worked_off_in_order_and_others_overlap(
    bench: Bench, autojump_clock: trio.testing.MockClock
) -> None:
    bench.service.forwarder.delays = {b"$JS.API.STREAM.INFO.S": 3.0}
    bench.publish(("STREAM.INFO.S", b"{"), ("STREAM.DELETE.S", b""), ("STREAM.DELETE.T", b""))
    await bench.answers(3)
    types = [answer["type"].rpartition(".")[2] for _, answer in bench.outbox.answers]
    assert types == ["stream_delete_response", "stream_info_response", "stream_delete_response"]
    assert bench.service.deleted == ["T", "S"]


async def test_creations_of_consumers_overlap_and_are_answered_in_order_with_what_stands_around_them(
    bench: Bench, autojump_clock: trio.testing.MockClock
) -> None:
    names = ("a", "b", "a", "c")
    slow = {b"$JS.API.CONSUMER.CREATE.S." + name.encode(): 2.0 - place for place, name in enumerate(names[:2])}
    bench.service.forwarder.delays = slow
    creations = [(f"CONSUMER.CREATE.S.{name}", b"[") for name in names]
    bench.publish(("STREAM.INFO.S", b"["), *creations, ("STREAM.DELETE.S", b""))
    began = trio.current_time()
    answers = await bench.answers(6)
    types = [answer["type"].rpartition(".")[2].removesuffix("_response") for answer in answers]
    assert types == ["stream_info", *["consumer_create"] * 4, "stream_delete"]
    asked = [request.subject.rpartition(b".")[2] for request in bench.service.forwarder.requests]
    assert sorted(asked[1:3]) == [b"a", b"b"]
    assert sorted(asked[3:5]) == [b"a", b"c"], "the second creation of one name waits for the first"
    assert trio.current_time() - began == pytest.approx(4)


@pytest.mark.parametrize("limits", [QueueLimits(requests=2)])
async def test_beyond_the_queue_limit_requests_are_refused_with_429(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.publish(*[("STREAM.DELETE.S", b"")] * 5)
    answers = await bench.answers(5)
    errors_said = [answer["error"] for answer in answers if "error" in answer]
    assert errors_said == [{"code": 429, "err_code": 10167, "description": "too many requests"}] * 3
    assert bench.gateway.statistics() == gateway_module.GatewayStatistics(requests=5, errors=3, waiting=0, refused=3)
    assert len([line for line in caplog.messages if "queue limit reached" in line]) == 1


@pytest.mark.parametrize("limits", [QueueLimits(infos=0)])
async def test_refusals_are_told_now_and_then_with_how_many_they_were(
    bench: Bench, caplog: pytest.LogCaptureFixture, autojump_clock: trio.testing.MockClock
) -> None:
    for _ in range(3):
        bench.publish(*[("STREAM.LIST", b"")] * 100)
    await trio.sleep(gateway_module.REFUSED_LINE_S)
    bench.publish(("STREAM.LIST", b""))
    assert bench.service.advisories.refused == [1, 300]
    assert len(caplog.messages) == 2


async def test_equal_reads_are_carried_out_once_for_all_who_wait(
    bench: Bench, autojump_clock: trio.testing.MockClock
) -> None:
    bench.service.forwarder.delays = {b"$JS.API.STREAM.NAMES": 1.0}
    bench.publish(*[("STREAM.NAMES", b"")] * 100)
    await trio.sleep(0.5)
    bench.publish(*[("STREAM.NAMES", b"")] * 100)
    answers = await bench.answers(200)
    assert all(answer == answers[0] for answer in answers)
    assert len(bench.service.forwarder.requests) == 2, "those of the second half are not answered with what was before"
    assert bench.gateway.statistics().requests == 200


async def test_few_requests_are_in_work_at_a_time_and_changes_do_not_wait_for_reads(
    bench: Bench, autojump_clock: trio.testing.MockClock
) -> None:
    most = gateway_module.WORKERS_MAX
    subjects = [f"STREAM.INFO.s{number}" for number in range(3 * most)]
    bench.service.forwarder.delays = {f"$JS.API.{subject}".encode(): 1.0 for subject in subjects}
    bench.publish(*[(subject, b"[") for subject in subjects], ("STREAM.DELETE.S", b""))
    await trio.sleep(0.5)
    assert len(bench.service.forwarder.requests) == most + 1
    assert bench.service.deleted == ["S"]
    await bench.answers(3 * most + 1)
    assert trio.current_time() == pytest.approx(3.0)
    assert bench.gateway.statistics().waiting == 0


async def test_requests_that_wait_for_an_owner_do_not_hold_up_others(
    bench: Bench, autojump_clock: trio.testing.MockClock
) -> None:
    subjects = [f"STREAM.INFO.dead{number}" for number in range(3 * gateway_module.WORKERS_MAX)]
    lost = {f"$JS.API.{subject}".encode() for subject in subjects}
    bench.service.forwarder.ownerless = lost
    bench.service.forwarder.delays = dict.fromkeys(lost, 4.0)
    bench.publish(*[(subject, b"[") for subject in subjects], ("STREAM.INFO.S", b"["))
    await trio.sleep(0.5)
    assert len(bench.outbox.answers) == 1
    await bench.answers(len(subjects) + 1)
    assert trio.current_time() == pytest.approx(4.0)
    bench.publish(*[(f"STREAM.INFO.s{number}", b"[") for number in range(100)])
    await bench.answers(len(subjects) + 101)


async def test_a_read_that_has_waited_for_too_long_is_refused_and_a_change_is_made(
    bench: Bench, autojump_clock: trio.testing.MockClock
) -> None:
    bench.service.forwarder.delays = {b"$JS.API.STREAM.PURGE.S": 5.0}
    bench.publish(("STREAM.PURGE.S", b"["), ("STREAM.INFO.S", b"["), ("STREAM.DELETE.S", b""))
    _, info, deletion = await bench.answers(3)
    assert info["error"]["code"] == 429
    assert deletion["success"]
    assert bench.gateway.statistics().refused == 1


async def test_answers_that_wait_for_nobody_let_others_run_between_them(bench: Bench) -> None:
    passes = 0
    bench.publish(*[(f"STREAM.INFO.s{number}", b"[") for number in range(20 * gateway_module.WORKERS_MAX)])
    while len(bench.outbox.answers) < 20 * gateway_module.WORKERS_MAX:
        await trio.lowlevel.checkpoint()
        passes += 1
    assert passes >= 20


@pytest.mark.parametrize(
    ("level", "refused"), [(b"5", False), (b"6", True), (b"x", True), (b"-1", False), (b"", False), (b"9" * 400, True)]
)
async def test_a_client_that_needs_a_newer_api_is_told(bench: Bench, level: bytes, *, refused: bool) -> None:
    hdr = b"NATS/1.0\r\nNats-Required-Api-Level: " + level + b"\r\n\r\n"
    bench.publish(("STREAM.NAMES", b""), hdr=hdr)
    (answer,) = await bench.answers(1)
    assert (answer.get("error", {}).get("err_code") == 10185) is refused


async def test_the_owner_of_a_request_is_the_one_in_the_list(bench: Bench) -> None:
    bench.publish(("STREAM.NAMES", b""), ("STREAM.PURGE.S", b"["), ("STREAM.INFO.S", b"["))
    await bench.answers(3)
    asked = {request.subject: request for request in bench.service.forwarder.requests}
    assert asked[b"$JS.API.STREAM.NAMES"].owner is Owner.META
    assert asked[b"$JS.API.STREAM.PURGE.S"].owner is Owner.STREAM
    assert asked[b"$JS.API.STREAM.PURGE.S"].stream == "S"
    assert not asked[b"$JS.API.STREAM.PURGE.S"].repeatable
    assert asked[b"$JS.API.STREAM.INFO.S"].repeatable


async def test_sinks_go_with_the_gateway() -> None:
    made = Bench()
    async with trio.open_nursery() as nursery:
        await nursery.start(made.gateway.run)
        assert made.outbox.sinks
        nursery.cancel_scope.cancel()
    assert not made.outbox.sinks


@pytest.mark.parametrize(
    ("kind", "tail"),
    [
        (ResponseType.STREAM_DELETE, {}),
        (ResponseType.STREAM_INFO, {"total": 0, "offset": 0, "limit": 0}),
        (ResponseType.STREAM_NAMES, {"total": 0, "offset": 0, "limit": 0, "streams": None}),
        (ResponseType.STREAM_LIST, {"total": 0, "offset": 0, "limit": 0, "streams": []}),
        (ResponseType.CONSUMER_NAMES, {"total": 0, "offset": 0, "limit": 0, "consumers": []}),
        (ResponseType.STREAM_PURGE, {"purged": 0}),
        (ResponseType.CONSUMER_PAUSE, {"paused": False, "pause_until": "0001-01-01T00:00:00Z"}),
        (ResponseType.STREAM_RESTORE, {"deliver_subject": ""}),
    ],
)
def test_errors_carry_the_fields_that_the_reference_writes_beside_them(
    kind: ResponseType, tail: dict[str, object]
) -> None:
    answer = orjson.loads(error_json(kind, errors.BAD_REQUEST.with_values()))
    error = {"code": 400, "err_code": 10003, "description": "bad request"}
    assert answer == {"type": kind.type_name, "error": error, **tail}


async def test_an_account_without_jetstream_is_told_so_and_nothing_of_it_is_carried_out(nursery: trio.Nursery) -> None:
    bench = Bench(accounts={"A": True, "B": False})
    await nursery.start(bench.gateway.run)
    record = encode_capture(subject=b"$JS.API.STREAM.DELETE.S", reply=b"r", payload=b"")
    bench.gateway.on_batch("B", record)
    (refused,) = await bench.answers(1)
    assert refused["error"]["err_code"] == 10039
    assert bench.service.deleted == []
    bench.gateway.on_batch("A", record)
    await bench.answers(2)
    assert [request.account for request in bench.service.forwarder.requests] == ["A"]
    counts = bench.service.usages.api
    assert [(counts[name].requests, counts[name].errors) for name in "AB"] == [(1, 0), (1, 1)]


async def test_requests_of_an_account_that_uses_the_api_of_another_are_that_ones(nursery: trio.Nursery) -> None:
    bench = Bench()
    borrowing = {"B", "S"}
    accounts = Bench.accounts_of({"A": True, "B": False, "S": False}, operators=("S",))
    accounts.borrows_api = borrowing.__contains__
    outboxes: dict[str, FakeOutbox] = {}
    gateway = JetStreamGateway(
        server_name="n1",
        service=cast("ClusterService", bench.service),
        outboxes=cast("Outboxes", lambda account: outboxes.setdefault(account, FakeOutbox())),
        kick=lambda: None,
        later=lambda callback: callback(),
        send_early=lambda: None,
        accounts=accounts,
    )
    await nursery.start(gateway.run)
    listens = {name: bool(outbox.sinks) for name, outbox in outboxes.items()}
    assert listens == {"A": True, "B": False, "S": True}
    borrowing.clear()
    accounts.changed.emit("B")
    assert outboxes["B"].sinks
    borrowing.add("B")
    accounts.changed.emit("B")
    assert not outboxes["B"].sinks


async def test_equal_reads_of_two_accounts_do_not_share_an_answer(nursery: trio.Nursery) -> None:
    bench = Bench(accounts={"A": True, "B": True})
    await nursery.start(bench.gateway.run)
    record = encode_capture(subject=b"$JS.API.STREAM.NAMES", reply=b"r", payload=b"")
    for account in "ABAB":
        bench.gateway.on_batch(account, record)
    await bench.answers(4)
    assert sorted({request.account for request in bench.service.forwarder.requests}) == ["A", "B"]


async def test_an_account_that_is_no_operator_cannot_change_the_cluster(nursery: trio.Nursery) -> None:
    bench = Bench(accounts={"A": True, "S": False}, operators=("S",))
    await nursery.start(bench.gateway.run)
    for subject in (b"SERVER.REMOVE", b"META.LEADER.STEPDOWN", b"ACCOUNT.PURGE.B"):
        bench.gateway.on_batch("A", encode_capture(subject=b"$JS.API." + subject, reply=b"r", payload=b"{}"))
    await bench.answers(0)
    assert bench.service.forwarder.requests == []
    bench.gateway.on_batch("S", encode_capture(subject=b"$JS.API.ACCOUNT.PURGE.B", reply=b"r", payload=b""))
    await bench.answers(1)
    assert [request.account for request in bench.service.forwarder.requests] == ["S"]
