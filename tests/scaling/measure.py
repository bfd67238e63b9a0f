"""A server with much in it, and what each case costs it.

Processor time of the server's thread is counted, so that a busy machine has no part in it. What is found too slow is
measured again: a collection of garbage, or caches that others took, are no growth.
"""

import itertools
import json
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import attrs

from tests.harness.raw import Line, Message, RawClient
from tests.harness.server import Server, command
from tests.scaling import metered
from tests.scaling.cases import SYSTEM_ANSWERS, Case

STEP_NS_MAX: Final = 20_000_000  # of processor time, in which nobody else is served
COUNTED_NS_MIN: Final = 5_000_000  # below this, growth says nothing
GROWTH_SLACK: Final = 2.0  # above n log n: caches miss more often
TRIES: Final = 3
ANSWER_S: Final = 0.05  # without an answer, after all was read; a request that has none is over when its steps are
GROWTH_NS_MIN: Final = 1_000_000  # what costs less is taken for this: it may have been refused at a first look
SLOW_ANSWER_S: Final = 60.0
WINDOW: Final = 200  # requests of one send while the server is filled
QUIET_S: Final = 0.005
USER: Final[dict[str, Any]] = {"user": "u", "pass": "x"}
SYSTEM: Final[dict[str, Any]] = {"user": "sys", "pass": "x"}
DENIED: Final = 'permissions: { publish: { deny: "denied" }, subscribe: { deny: "denied" } }'


@attrs.frozen
class State:
    """How much there is."""

    subjects: int
    consumers: int
    streams: int
    accounts: int
    filters: int
    subscriptions: int  # of a connection that does nothing else

    def config(self) -> str:
        """The accounts."""
        others = "\n".join(
            f"A{at}: {{ jetstream: enabled, users: [ {{user: a{at}, password: x}} ] }}" for at in range(self.accounts)
        )
        mine = f"M: {{ jetstream: enabled, users: [ {{user: u, password: x, {DENIED}}} ] }}"
        system = "SYS: { users: [ {user: sys, password: x} ] }"
        return f"accounts {{\n{mine}\n{system}\n{others}\n}}\nsystem_account: SYS\n"


SHORT: Final = State(subjects=1_000, consumers=50, streams=50, accounts=10, filters=500, subscriptions=1_000)
LONG: Final = State(subjects=10_000, consumers=1_000, streams=1_000, accounts=200, filters=2_500, subscriptions=50_000)


@attrs.frozen
class Cost:
    """Of one case at one size: all steps together, and the longest, with the name of its task."""

    size: int
    total_ns: int
    longest_ns: int
    task: str = ""


@contextmanager
def filled(directory: Path, state: State) -> Iterator["Meter"]:
    """A server of its own in this state, and who measures it."""
    path = directory / "figures"
    path.write_bytes(metered.NOTHING)
    server = Server("jetraft", directory=directory, config=state.config())
    server.starter = [*command("jetraft")[:1], "-m", "tests.scaling.metered", str(path)]
    with server, Meter(server, path) as meter:
        meter.fill(state)
        yield meter


class Meter:
    """Asks, and reads what that has cost."""

    def __init__(self, server: Server, path: Path) -> None:
        self.server = server
        self._figures = metered.mapped(path)
        self._client = self._connected()
        self._system = RawClient(server.address, **SYSTEM)
        self._system_sid = self._system.subscribe(SYSTEM_ANSWERS)
        self._subscriber = RawClient(server.address, **USER)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        for client in (self._client, self._system, self._subscriber):
            client.close()

    def _connected(self) -> RawClient:
        client = RawClient(self.server.address, **USER)
        client.settle()
        self._inbox = client.new_inbox()
        self._sid = client.subscribe(self._inbox)
        return client

    # --- state ----------------------------------------------------------------------------------------------------
    def fill(self, state: State) -> None:
        """Streams, consumers, subjects, subscriptions, as many as the state says."""
        api = self._client.api
        for first in range(0, state.subscriptions, WINDOW):
            numbers = range(first, min(first + WINDOW, state.subscriptions))
            self._subscriber.send(b"".join(b"SUB held.%d.x %d\r\n" % (at, at + 1) for at in numbers))
        self._subscriber.settle(SLOW_ANSWER_S)
        for name, more in (
            ("S0", {"allow_direct": True, "allow_msg_ttl": True, "allow_msg_schedules": True, "allow_atomic": True}),
            ("P", {}),
            ("W", {"retention": "workqueue"}),
            ("I", {"retention": "interest"}),
        ):
            answer = api(f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name.lower()}.>"], **more})
            assert "error" not in answer, answer
        for name in ("W", "I"):
            filters = [f"{name.lower()}.have.{at}" for at in range(state.filters)]
            config = {"durable_name": "many", "ack_policy": "explicit", "filter_subjects": filters}
            answer = api(f"CONSUMER.CREATE.{name}.many", {"stream_name": name, "config": config})
            assert "error" not in answer, answer
        self._send(
            (f"$JS.API.STREAM.CREATE.S{at}", {"name": f"S{at}", "subjects": [f"s{at}.>"]})
            for at in range(1, state.streams)
        )
        self._send(
            (
                f"$JS.API.CONSUMER.CREATE.S0.c{at}",
                {"stream_name": "S0", "config": {"name": f"c{at}", "durable_name": f"c{at}", "ack_policy": "explicit",
                                                 "filter_subject": f"s0.{at}"}},
            )
            for at in range(state.consumers)
        )  # fmt: skip
        for first in range(0, state.subjects, WINDOW):
            self._client.send(
                b"".join(
                    b"PUB %s.%d.b 1\r\nx\r\n" % (stream, at)
                    for at in range(first, first + WINDOW)
                    for stream in (b"s0", b"p")
                )
            )
            self._client.api("STREAM.INFO.S0")
        self.server.running.wait_until(
            lambda: self._client.api("STREAM.INFO.S0")["state"]["messages"] >= state.subjects, what="S0 is filled"
        )
        self.rest()

    def _send(self, requests: Iterator[tuple[str, dict[str, Any]]]) -> None:
        waiting = 0
        for subject, body in requests:
            self._client.publish(subject, json.dumps(body).encode(), reply=self._inbox)
            waiting += 1
            if waiting == WINDOW:
                self._client.messages(self._sid, waiting)
                waiting = 0
        if waiting:
            self._client.messages(self._sid, waiting)

    # --- measuring ------------------------------------------------------------------------------------------------
    def rest(self) -> None:
        """Wait until the server has nothing to do: its steps cost next to nothing for a moment."""
        before = metered.read(self._figures).total_ns
        until = time.monotonic() + SLOW_ANSWER_S
        while time.monotonic() < until:
            time.sleep(QUIET_S)
            now = metered.read(self._figures).total_ns
            if now - before < QUIET_S * 1e9 / 10:
                return
            before = now

    def forget(self) -> None:
        """Have the longest step be that of what comes now."""
        total_ns = metered.read(self._figures).total_ns
        self._figures[: metered.FIGURES.size] = metered.FIGURES.pack(total_ns, 0, b"")

    def figures(self) -> metered.Figures:
        """What the steps have cost until now, and the longest since `forget`."""
        return metered.read(self._figures)

    def cost(self, case: Case, size: int) -> Cost | None:
        """What a case costs at a size; None when there is nothing of that size."""
        ask = case.make(size, self._inbox)
        if ask is None:
            return None
        before = self.figures()
        self.forget()
        if ask.page:
            self.server.get(ask.page)
        elif ask.is_system:
            self._system.send(ask.lines)
            self._system.messages(self._system_sid, ask.answers, SLOW_ANSWER_S)
        else:
            self._ask(ask.lines, ask.answers)
        for lines in ask.then:
            self._ask(lines, 0)
        self.rest()
        after = self.figures()
        for lines in ask.clean:
            self._ask(lines, 0)
        if self._client.closed:
            self._client = self._connected()
        return Cost(size, after.total_ns - before.total_ns, after.longest_ns, after.task)

    def _ask(self, lines: bytes, answers: int) -> None:
        client = self._client
        client.send(lines + b"PING\r\n")
        until = time.monotonic() + SLOW_ANSWER_S
        pongs = got = 0
        while not client.closed and time.monotonic() < until:
            event = client.next_event(ANSWER_S if pongs else SLOW_ANSWER_S)
            if event is None:
                return
            if isinstance(event, Message):
                got += event.sid == self._sid
            elif isinstance(event, Line) and event.text == "PONG":
                pongs += 1
            elif event.text == "PING":
                client.send(b"PONG\r\n")
            if pongs and got >= answers:
                return

    def curve(self, case: Case, sizes: Sequence[int]) -> list[Cost]:
        """The costs of a case at these sizes: again where it is found too slow, and the least of what was found."""
        if not case.grows:
            sizes = sizes[:1]
        least: dict[int, Cost] = {}
        for _ in range(TRIES):
            for size in sizes:
                cost = self.cost(case, size)
                if cost is None:
                    continue
                old = least.get(size, cost)
                longest = min(old, cost, key=lambda one: one.longest_ns)
                least[size] = Cost(size, min(old.total_ns, cost.total_ns), longest.longest_ns, longest.task)
            if not faults(list(least.values())):
                break
        return list(least.values())


def faults(costs: Sequence[Cost]) -> list[str]:
    """What is wrong with the costs of one case."""
    found = [
        f"n = {cost.size:,}: a step of {cost.longest_ns / 1e6:.1f} ms ({cost.task})"
        for cost in costs
        if cost.longest_ns > STEP_NS_MAX
    ]
    for less, more in itertools.pairwise(costs):
        allowed = GROWTH_SLACK * more.size * math.log2(more.size) / (less.size * math.log2(less.size))
        if (
            more.total_ns > max(COUNTED_NS_MIN, less.total_ns)
            and more.total_ns > max(GROWTH_NS_MIN, less.total_ns) * allowed
        ):
            found.append(
                f"n = {less.size:,} to {more.size:,}: {less.total_ns / 1e6:.1f} to {more.total_ns / 1e6:.1f} ms"
            )
    return found
