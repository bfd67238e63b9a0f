"""The vocabulary of conformance scenes: a scene is a list of steps, a step is data.

A step says what is sent and how many answers the reference gives; it never says what the answers are: those are
compared between two servers. `<name>` in a subject or payload stands for a value captured from an earlier answer.
"""

from collections.abc import Sequence
from typing import Any

import attrs

from tests.harness.tokens import TokenUser

Headers = tuple[tuple[str, str], ...]


@attrs.frozen(kw_only=True)
class Call:
    """A request; `payload` is bytes as they are, or anything else as JSON. `replies=0` expects silence."""

    name: str
    subject: str
    payload: Any = b""
    headers: Headers = ()
    replies: int = 1
    capture: dict[str, str] = attrs.field(factory=dict)  # variable -> place in the first answer


@attrs.frozen(kw_only=True)
class Until:
    """The same request again until the answer's field has the value; the last answer is what is compared."""

    name: str
    subject: str
    payload: Any = b""
    field: str
    value: Any


@attrs.frozen(kw_only=True)
class Publish:
    """A publish, of which nothing is observed but what subscriptions get later. With `reply` it asks for an answer."""

    name: str
    subject: str
    payload: bytes = b""
    reply: str = ""
    headers: Headers = ()


@attrs.frozen(kw_only=True)
class Subscribe:
    """A subscription whose messages a later Expect reads."""

    name: str
    subject: str
    queue: str = ""


@attrs.frozen(kw_only=True)
class Expect:
    """Messages of the subscription with this name."""

    name: str
    of: str
    count: int
    capture: dict[str, str] = attrs.field(factory=dict)  # as in Call


@attrs.frozen(kw_only=True)
class Ack:
    """An acknowledgement of the message that an earlier Call or Expect received at this position."""

    name: str
    of: str
    position: int = 0
    payload: bytes = b""
    replies: int = 0  # 1 makes it a double ack


@attrs.frozen(kw_only=True)
class Raw:
    """Bytes on a connection of its own. All lines until the PONG or the end of the connection are compared.

    `options` are fields of the CONNECT that precedes them; None sends no CONNECT at all.
    """

    name: str
    data: bytes | tuple[bytes, ...]
    options: dict[str, Any] | None = attrs.field(factory=dict)
    seed: bytes = b""  # of a key that signs the nonce of INFO: CONNECT has it with the signature
    user: TokenUser | None = None  # CONNECT has its token, and the signature of the nonce
    closes: bool = False  # the server ends the connection: no PING of ours is needed to see the end


@attrs.frozen(kw_only=True)
class Info:
    """The INFO line that greets a new connection."""

    name: str


@attrs.frozen(kw_only=True)
class Login:
    """From here on the steps are those of another user; what the server says to it until the PONG is compared."""

    name: str
    user: str
    password: str


@attrs.frozen(kw_only=True)
class Back:
    """From here on the steps are those of the connection of an earlier Login."""

    name: str
    to: str


Step = Back | Login | Call | Until | Publish | Subscribe | Expect | Ack | Raw | Info


@attrs.frozen(kw_only=True)
class Scene:
    """Steps on one connection to a server without streams, which is started with `config` when there is one."""

    name: str
    steps: Sequence[Step]
    config: str = ""
    login: dict[str, Any] = attrs.field(factory=dict)  # fields of the CONNECT of all connections but those of Raw

    def __attrs_post_init__(self) -> None:
        names = [step.name for step in self.steps]
        assert len(set(names)) == len(names), f"scene {self.name} uses a step name twice: {names}"


def stream(name: str, subjects: Sequence[str] = (), **config: Any) -> Call:
    """A stream create that is a precondition, observed like any other step."""
    return Call(
        name=f"create {name}",
        subject=f"$JS.API.STREAM.CREATE.{name}",
        payload={"name": name, "subjects": list(subjects) or [f"{name.lower()}.>"], "storage": "file", **config},
    )


def consumer(stream_name: str, name: str, **config: Any) -> Call:
    """A durable pull consumer create that is a precondition, observed like any other step."""
    return Call(
        name=f"create {stream_name}/{name}",
        subject=f"$JS.API.CONSUMER.CREATE.{stream_name}.{name}",
        payload={
            "stream_name": stream_name,
            "config": {"durable_name": name, "name": name, "ack_policy": "explicit", **config},
        },
    )


def messages(subject: str, *payloads: str) -> list[Call]:
    """Acknowledged publishes with these payloads."""
    return [
        Call(name=f"publish {subject} {payload}", subject=subject, payload=payload.encode()) for payload in payloads
    ]
