"""Making and filling streams for the tests of the Spark source, with the harness's raw client."""

from collections.abc import Callable, Sequence
from typing import Any

from tests.harness.raw import RawClient

Headers = Sequence[tuple[str, str]]
WINDOW = 500


def create(client: RawClient, name: str, **config: Any) -> str:
    """Create a stream that keeps `<name>.>` and allows direct get; return when it was created."""
    wish = {"name": name, "subjects": [f"{name}.>"], "allow_direct": True, **config}
    answer = client.api(f"STREAM.CREATE.{name}", wish)
    assert "error" not in answer, answer
    return str(answer["created"])


def delete(client: RawClient, name: str) -> None:
    """Delete a stream."""
    assert client.api(f"STREAM.DELETE.{name}")["success"]


def publish(  # noqa: PLR0913  (what a message consists of)
    client: RawClient,
    name: str,
    count: int,
    *,
    subject: Callable[[int], str] = lambda number: f"s{number % 3}",
    payload: Callable[[int], bytes] = lambda number: b"payload %d" % number,
    headers: Callable[[int], Headers] = lambda _: (),
) -> None:
    """Publish `count` messages and see each one acknowledged."""
    for first in range(0, count, WINDOW):
        numbers = range(first, min(first + WINDOW, count))
        inbox = client.new_inbox()
        sid = client.subscribe(inbox)
        for number in numbers:
            client.publish(f"{name}.{subject(number)}", payload(number), reply=inbox, headers=headers(number))
        acks = client.messages(sid, len(numbers))
        client.send(b"UNSUB %s\r\n" % sid.encode())
        refused = [ack for ack in acks if b'"seq"' not in ack.payload]
        assert not refused, refused[:3]
        assert len(acks) == len(numbers)


def delete_messages(client: RawClient, name: str, *seqs: int) -> None:
    """Delete single messages."""
    for seq in seqs:
        answer = client.api(f"STREAM.MSG.DELETE.{name}", {"seq": seq})
        assert answer.get("success"), answer
