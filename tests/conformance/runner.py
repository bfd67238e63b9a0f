"""Runs scenes against one server and notes what came back, normalised, as plain JSON values."""

import base64
import json
import threading
import time
from collections.abc import Sequence
from typing import Any

import nkeys

from tests.conformance import normalise
from tests.conformance.steps import Ack, Back, Call, Expect, Info, Login, Publish, Raw, Scene, Step, Subscribe, Until
from tests.harness.raw import Line, Message, RawClient

UNTIL_TIMEOUT_S = 30.0
REPLY_TIMEOUT_S = 15.0
SHORT_TIMEOUT_S = 0.3  # for a server that has left several steps of a scene unanswered
PATIENCE = 3
CLEAR_TIMEOUT_S = 60.0
EXTENSION = "Jetraft-"  # header fields of jetraft's own, which clients do not know and pass over
RETRY_S = 0.02

Observation = Any


class SceneRun:
    """The state of one scene on one connection: subscriptions, received messages, captured values."""

    def __init__(self, address: tuple[str, int], login: dict[str, Any]) -> None:
        self.address = address
        self.client = RawClient(address, **login)
        self.earlier: list[RawClient] = []
        self.logins: dict[str, RawClient] = {}
        self.sids: dict[str, str] = {}
        self.received: dict[str, list[Message]] = {}
        self.captured: dict[str, str] = {}
        self.inboxes: dict[str, str] = {}
        self.short = 0

    def run(self, step: Step) -> Observation:  # noqa: C901, PLR0911  (one return for each kind of step)
        """Perform one step and return what it showed."""
        match step:
            case Login():
                return self.login(step)
            case Back():
                return self.back(step)
            case Call():
                return self.call(step)
            case Until():
                return self.until(step)
            case Publish():
                payload = self.fill(step.payload.decode("latin-1")).encode("latin-1")
                self.client.publish(self.fill(step.subject), payload, reply=step.reply, headers=step.headers)
                return [self.show(event) for event in self.settle()]
            case Subscribe():
                self.sids[step.name] = self.client.subscribe(self.fill(step.subject), step.queue)
                return [self.show(event) for event in self.settle()]
            case Expect():
                found = self.collect(self.sids[step.of], step.count)
                for variable, path in step.capture.items():
                    self.captured[variable] = captured(found[0], path)
                return self.keep(step.name, found)
            case Ack():
                return self.ack(step)
            case Raw():
                return self.raw(step)
            case Info():
                with RawClient(self.address) as fresh:
                    return normalise.value("info", fresh.info)

    def login(self, step: Login) -> Observation:
        """Another user's connection takes the place of the one before, which stays open."""
        self.earlier.append(self.client)
        options = {"user": step.user, "pass": step.password}
        self.client = RawClient(self.address, **options)  # type: ignore[arg-type]  # fields of CONNECT
        self.logins[step.name] = self.client
        return [self.show(event) for event in self.settle()]

    def back(self, step: Back) -> Observation:
        """The connection of an earlier login takes the place of the one before."""
        self.earlier.append(self.client)
        self.client = self.logins[step.to]
        return []

    @property
    def timeout_s(self) -> float:
        """How long a step waits for answers that do not come."""
        return REPLY_TIMEOUT_S if self.short < PATIENCE else SHORT_TIMEOUT_S

    def collect(self, sid: str, count: int) -> list[Message]:
        """The messages of a subscription, and a note when there were too few of them."""
        found = self.client.messages(sid, count, timeout_s=self.timeout_s)
        self.short += len(found) < count
        return found

    def settle(self) -> list[Line]:
        """Protocol lines that a step without replies provoked; messages wait for the step that expects them."""
        events = self.client.settle()
        self.client.unclaimed += [event for event in events if isinstance(event, Message)]
        return [event for event in events if isinstance(event, Line)]

    def call(self, step: Call) -> Observation:
        sid = self.send(step)
        found = self.collect(sid, step.replies)
        for variable, path in step.capture.items():
            self.captured[variable] = captured(found[0], path)
        return self.keep(step.name, found)

    def send(self, step: Call | Until) -> str:
        inbox, sid = self.inbox(step.name)
        payload = step.payload if isinstance(step.payload, bytes) else json.dumps(step.payload).encode()
        headers = step.headers if isinstance(step, Call) else ()
        filled = self.fill(payload.decode("latin-1")).encode("latin-1")
        self.client.publish(self.fill(step.subject), filled, reply=inbox, headers=headers)
        return sid

    def inbox(self, name: str) -> tuple[str, str]:
        """A reply subject and its subscription, known by the step's name when something arrives late."""
        inbox = self.client.new_inbox()
        self.inboxes[inbox] = f"<inbox of {name}>"
        return inbox, self.client.subscribe(inbox)

    def until(self, step: Until) -> Observation:
        deadline = time.monotonic() + UNTIL_TIMEOUT_S
        while True:
            sid = self.send(step)
            found = self.collect(sid, 1)
            answer: Any = json.loads(found[0].payload) if found and found[0].payload else {}
            for key in step.field.split("."):
                answer = answer.get(key) if isinstance(answer, dict) else None
            if answer == step.value or time.monotonic() > deadline:
                return self.keep(step.name, found)
            threading.Event().wait(RETRY_S)

    def ack(self, step: Ack) -> Observation:
        target = self.received[step.of][step.position].reply
        if not step.replies:
            self.client.publish(target, step.payload)
            return [self.show(event) for event in self.settle()]
        inbox, sid = self.inbox(step.name)
        self.client.publish(target, step.payload, reply=inbox)
        return self.keep(step.name, self.collect(sid, step.replies))

    def raw(self, step: Raw) -> Observation:
        with RawClient(self.address, connect=False) as client:
            if step.options is not None:
                client.connect(**{**proof(step, client.info), **step.options})
            parts = (step.data,) if isinstance(step.data, bytes) else step.data
            for part in parts:
                client.send(part)
            pings = sum(part.upper().count(b"PING") for part in parts)
            events = client.rest(REPLY_TIMEOUT_S) if step.closes else client.settle(REPLY_TIMEOUT_S, pings_before=pings)
            return {"events": [self.show(event) for event in events], "closed": client.closed}

    def keep(self, name: str, found: list[Message]) -> Observation:
        self.received[name] = found
        return [self.show(message) for message in found]

    def fill(self, given: str) -> str:
        for variable, known in self.captured.items():
            given = given.replace(f"<{variable}>", known)
        return given

    def show(self, event: Message | Line) -> Observation:
        """An event as JSON, with captured values and inboxes replaced by their names."""
        if isinstance(event, Line):
            return show_line(event.text)
        shown: dict[str, Any] = {"subject": self.inboxes.get(event.subject, event.subject)}
        if event.reply:
            shown["reply"] = normalise.reply(event.reply)
        if event.hdr:
            shown["status"] = event.status
            shown["headers"] = [
                [name, normalise.header(name, value)] for name, value in event.headers if not name.startswith(EXTENSION)
            ]
        shown["payload"] = show_payload(event.payload)
        return self.blank(shown)

    def blank(self, shown: Any) -> Any:
        encoded = json.dumps(shown)
        for variable, known in self.captured.items():
            encoded = encoded.replace(known, f"<{variable}>")
        return json.loads(encoded)

    def close(self) -> list[Observation]:
        """End the scene; messages that nobody expected are shown."""
        left = [self.show(event) for event in self.client.settle() if isinstance(event, Message)]
        left += [self.show(message) for message in self.client.unclaimed]
        for client in {id(one): one for one in (self.client, *self.earlier)}.values():
            client.close()
        return left


def captured(found: Message, path: str) -> str:
    """The value of a header field (`header:<name>`), or of a key of a JSON payload, where dots descend."""
    if path.startswith("header:"):
        return dict(found.headers)[path.removeprefix("header:")]
    answer: Any = json.loads(found.payload)
    for key in path.split("."):
        answer = answer[key]
    return str(answer)


def proof(step: Raw, info: dict[str, Any]) -> dict[str, Any]:
    """The fields of a CONNECT that prove who it is."""
    if step.user is not None:
        return step.user.login(info.get("nonce", ""))
    return signature(step.seed, info) if step.seed else {}


def signature(seed: bytes, info: dict[str, Any]) -> dict[str, str]:
    """The fields of a CONNECT that prove to have a key."""
    pair = nkeys.from_seed(bytearray(seed))
    signed = base64.urlsafe_b64encode(pair.sign(info.get("nonce", "").encode())).rstrip(b"=")
    return {"nkey": pair.public_key.decode(), "sig": signed.decode()}


def show_payload(payload: bytes) -> Any:
    """JSON as normalised JSON, anything else as text."""
    if payload.startswith(b"{"):
        try:
            return normalise.value("", json.loads(payload))
        except ValueError:
            pass
    return payload.decode("utf-8", "backslashreplace")


def show_line(line: str) -> Any:
    """A protocol line; an INFO is shown as its fields."""
    if line.startswith("INFO "):
        return {"INFO": normalise.value("info", json.loads(line[5:]))}
    return line


def clear(address: tuple[str, int], login: dict[str, Any]) -> None:
    """Delete every stream, so that the next scene finds an empty account."""
    with RawClient(address, **login) as client:
        deadline = time.monotonic() + CLEAR_TIMEOUT_S
        while names := client.api("STREAM.NAMES").get("streams"):
            assert time.monotonic() < deadline, f"cannot delete {names}"
            for name in names:
                client.api(f"STREAM.DELETE.{name}")


def run_scene(address: tuple[str, int], scene: Scene) -> dict[str, Observation]:
    """Step name to what it showed. A step that cannot run (no message to ack) shows why; the others still run."""
    shown: dict[str, Observation] = {}
    run = SceneRun(address, scene.login)
    for step in scene.steps:
        try:
            shown[step.name] = run.run(step)
        except (LookupError, TypeError, ValueError, AssertionError, OSError) as error:
            shown[step.name] = {"not run": f"{type(error).__name__}: {error}"}
        if run.client.closed:
            run.client.close()
            run.client = RawClient(address, **scene.login)
    shown["(left over)"] = run.close()
    if scene.login or not scene.config:
        clear(address, scene.login)
    return shown


def run_scenes(address: tuple[str, int], scenes: Sequence[Scene]) -> dict[str, dict[str, Observation]]:
    """Scene name to step name to what it showed."""
    shown: dict[str, dict[str, Observation]] = {}
    for scene in scenes:
        try:
            shown[scene.name] = run_scene(address, scene)
        except OSError as error:
            shown[scene.name] = {step.name: {"not run": f"{type(error).__name__}: {error}"} for step in scene.steps}
    return shown
