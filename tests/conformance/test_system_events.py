"""Events of the system account from both servers: which come, and with which fields."""

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import attrs
import pytest

from tests.conformance.monitored import KINDS, Stage, differences, staged
from tests.harness.patience import PATIENCE_S
from tests.harness.raw import Message, RawClient

pytestmark = [pytest.mark.reference]
Event = tuple[str, dict[str, Any]]  # subject, document
NOT_HERE: Final = ("js_raft_delete_range", "default_max_consumers")


@pytest.fixture
def stages(tmp_path: Path) -> Iterator[list[Stage]]:
    """One of each kind."""
    with ExitStack() as stack:
        found = []
        for kind in KINDS:
            (tmp_path / kind).mkdir()
            found.append(stack.enter_context(staged(kind, tmp_path / kind)))
        yield found


@attrs.define(eq=False)
class Listener:
    """A client of the system account and the events that it has received and nothing has asked for yet."""

    client: RawClient
    events: list[Event] = attrs.field(factory=list)

    def heard(self, wanted: Callable[[Event], bool]) -> Event:
        """The first event of this kind."""
        while True:
            for event in self.events:
                if wanted(event):
                    self.events.remove(event)
                    return event
            message = self.client.next_event(PATIENCE_S)
            assert message is not None, "no such event"
            if isinstance(message, Message):
                self.events.append(event_of(message))


def event_of(message: Message) -> Event:
    return message.subject, json.loads(message.payload)


def of_kind(ending: str, name: str = "") -> Callable[[Event], bool]:
    """Events whose subject ends so, about the client with this name."""
    return lambda event: event[0].endswith(ending) and event[1].get("client", {}).get("name", "") == name


def alike(events: list[Event]) -> None:
    """Both servers tell the same: the subject but for ids, and the fields."""
    (theirs_at, theirs), (ours_at, ours) = events
    ids = [event.get("server", event)["id"] for event in (theirs, ours)]
    assert ours_at.replace(ids[1], "<id>") == theirs_at.replace(ids[0], "<id>")
    lacks = {path for path in differences(theirs, ours) if not any(name in path for name in NOT_HERE)}
    assert lacks == set()
    facts = ("type", "acc", "reason", "conns", *(("sent", "received") if theirs_at.endswith("DISCONNECT") else ()))
    assert [ours.get(name) for name in facts] == [theirs.get(name) for name in facts]
    people = ("acc", "user", "name", "lang", "ver", "kind", "client_type", "name_tag")
    if "client" in theirs:
        assert [ours["client"].get(name) for name in people] == [theirs["client"].get(name) for name in people]


def test_events_of_connections_and_servers_are_those_of_the_reference(stages: list[Stage]) -> None:
    listeners = [Listener(stage.clients["four"]) for stage in stages]
    for listener in listeners:
        for subject in ("$SYS.ACCOUNT.>", "$SYS.SERVER.>"):
            listener.client.subscribe(subject)
        listener.client.settle()

    def compare(ending: str, name: str = "") -> None:
        alike([listener.heard(of_kind(ending, name)) for listener in listeners])

    for stage in stages:
        new = stage.client("b", "new")
        new.subscribe("own")
        for subject in ("own", "other", "other"):  # more goes out of it than comes back
            new.publish(subject, b"0123456789")
        new.settle()
    compare(".ACCOUNT.B.CONNS")
    compare(".B.SERVER.CONNS")
    compare(".B.CONNECT", "new")

    for stage in stages:
        stage.leave("new")
    compare(".B.DISCONNECT", "new")

    for stage in stages:
        stranger: dict[str, Any] = {"user": "nobody", "pass": "y"}
        refused = RawClient(stage.server.address, name="refused", **stranger)
        refused.rest()
        refused.close()
    compare(".CLIENT.AUTH.ERR", "refused")
    compare(".DISCONNECT", "refused")
    compare(".STATSZ")


@pytest.mark.parametrize(("number", "ending"), [(signal.SIGUSR2, ".LAMEDUCK"), (signal.SIGTERM, ".SHUTDOWN")])
def test_the_end_of_a_server_is_told_as_by_the_reference(
    stages: list[Stage], number: signal.Signals, ending: str
) -> None:
    listeners = [Listener(stage.clients["four"]) for stage in stages]
    for stage, listener in zip(stages, listeners, strict=True):
        listener.client.subscribe("$SYS.SERVER.*.*")
        listener.client.settle()
        stage.server.running.signal(number)
    alike([listener.heard(of_kind(ending)) for listener in listeners])
