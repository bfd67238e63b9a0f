"""Asks servers what they have, as clients and operators do, and waits until every stream has said its word."""

import base64
import json
import time
from collections.abc import Callable, Sequence
from typing import Any

import attrs

from tests.corruption.judge import Promise, Seen, Unavailable
from tests.corruption.life import content
from tests.corruption.places import group_of
from tests.harness.patience import PATIENCE_S
from tests.harness.raw import UNAVAILABLE, RawClient
from tests.harness.server import LISTENING, Server

ANSWER_S = 1.0  # streams that are not served give no answer at all
SETTLED_S = 1.5  # how long a reason must stand before it is believed: some things are mended in a moment
LOOK_AGAIN_S = 0.1
NO_MESSAGE = 10037
NO_STREAM = 10059
AFTER = b"after the damage"
READY = "Server is ready"
LOUD = ("[WRN]", "[ERR]", "[FTL]")

View = dict[str, Seen | Unavailable | None]  # by stream; None: there is no such stream


def speaks_of(text: str, file: str) -> bool:
    """Whether what an operator is told is about a file, or about the group to which it belongs."""
    return file.rpartition("/")[2] in text or (group_of(file) or file) in text


def said(nodes: Sequence[Server]) -> list[str]:
    """What an operator sees: the warnings and errors of these processes, and their pages of health."""
    found = []
    for node in nodes:
        found += [line for line in list(node.running.lines) if any(word in line for word in LOUD)]
        if node.running.running:
            status, body = node.get("/healthz")
            if status != 200 and isinstance(body, dict):
                found.append(f"healthz: {body.get('error')}")
    return found


def is_listening(node: Server) -> bool:
    """Whether it takes connections."""
    return any(LISTENING in line for line in list(node.running.lines))


def is_up_or_ended(node: Server) -> bool:
    """Whether it can be asked, or never will be."""
    return is_listening(node) or not node.running.running


def wait(condition: Callable[[], bool], timeout_s: float) -> bool:
    """Ask again until the answer is yes or the time is over."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(LOOK_AGAIN_S)
    return True


def ask(client: RawClient, subject: str, body: object = None) -> dict[str, Any]:
    """One answer of the API, {} when there is none."""
    inbox = client.new_inbox()
    sid = client.subscribe(inbox)
    client.publish(subject, b"" if body is None else json.dumps(body).encode(), reply=inbox)
    found = client.messages(sid, 1, ANSWER_S)
    if not found or not found[0].payload:
        return {}
    answer = json.loads(found[0].payload)
    assert isinstance(answer, dict)
    return answer


def insist(client: RawClient, subject: str) -> dict[str, Any]:
    """The answer of what has answered before, asked again while there is none; {} when it stays away."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline and not client.closed:
        answer = ask(client, subject)
        if answer and (answer.get("error") or {}).get("err_code") != UNAVAILABLE:
            return answer
        time.sleep(LOOK_AGAIN_S)
    return {}


def look(
    node: Server,
    nodes: Sequence[Server],
    promises: Sequence[Promise],
    timeout_s: float,
    *,
    settled_s: float = SETTLED_S,
) -> View:
    """What each stream is and holds, asked at `node`; a message is published to each that is served.

    `nodes` are all that run: their pages and logs may tell why a stream is not served, and when such a reason has stood
    for `settled_s`, it is believed before the time is over.
    """
    view: View = {}
    try:
        with RawClient(node.address) as client:
            _fill(view, client, node, nodes, promises, timeout_s=timeout_s, settled_s=settled_s)
    except OSError as error:  # the server has ended: what it had to say is in its log
        return {promise.stream: Unavailable(answer=str(error)) for promise in promises}
    for promise in promises:
        view.setdefault(promise.stream, Unavailable(answer="the connection was closed"))
    return view


def _fill(  # noqa: PLR0913  (those of `look`, and where it goes)
    view: View,
    client: RawClient,
    node: Server,
    nodes: Sequence[Server],
    promises: Sequence[Promise],
    *,
    timeout_s: float,
    settled_s: float,
) -> None:
    deadline = time.monotonic() + timeout_s
    reasoned_since = 0.0
    while len(view) < len(promises) and not client.closed:
        waiting = [promise for promise in promises if promise.stream not in view]
        answers = {promise.stream: _state(client, promise) for promise in waiting}
        now = time.monotonic()
        served = [promise for promise in waiting if "state" in answers[promise.stream]]
        view |= {promise.stream: _read(client, promise) for promise in served}
        reasoned_since = 0.0 if served or not _has_reason(node, nodes, answers) else reasoned_since or now
        is_decided = bool(reasoned_since) and now - reasoned_since > settled_s
        if not served and (now > deadline or is_decided):
            view |= {name: _unserved(answer) for name, answer in answers.items()}
        time.sleep(0 if served else LOOK_AGAIN_S)


def _has_reason(node: Server, nodes: Sequence[Server], answers: dict[str, dict[str, Any]]) -> bool:
    """Whether waiting may be in vain: the server is ready, and says that there is nothing, or tells an operator why."""
    is_ready = any(READY in line for line in list(node.running.lines))
    is_empty = all((answer.get("error") or {}).get("err_code") == NO_STREAM for answer in answers.values())
    return is_ready and (is_empty or bool(said(nodes)))


def _state(client: RawClient, promise: Promise) -> dict[str, Any]:
    """Stream info with a leader, or the answer that stands for it."""
    answer = ask(client, f"$JS.API.STREAM.INFO.{promise.stream}")
    cluster = answer.get("cluster")
    if "state" in answer and isinstance(cluster, dict) and not cluster.get("leader"):
        return {"error": {"description": "no leader"}}
    return answer


def _unserved(answer: dict[str, Any]) -> Unavailable | None:
    error = answer.get("error") or {}
    return None if error.get("err_code") == NO_STREAM else Unavailable(answer=str(error.get("description", "")))


def _read(client: RawClient, promise: Promise) -> Seen | Unavailable:
    """Everything of a stream that is served."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        state = insist(client, f"$JS.API.STREAM.INFO.{promise.stream}").get("state")
        if state is None:
            return Unavailable(answer="not served any more")
        lost = frozenset((state.get("lost") or {}).get("msgs") or [])
        messages, unreadable = _messages(client, promise.stream, promise.last_seq)
        if not unreadable - lost or time.monotonic() > deadline:
            break
        time.sleep(LOOK_AGAIN_S)  # who reads damage finds it: it is in the list in a moment
    floor, next_seq = _floor(client, promise), _publish(client, promise)
    if next_seq is None:
        return Unavailable(answer="no publish was acknowledged")
    return Seen(messages=messages, lost=lost, next_seq=next_seq, floor=floor)


def _messages(client: RawClient, stream: str, last_seq: int) -> tuple[dict[int, bytes], set[int]]:
    """What can be read, and the sequences for which the answer is another error than that there is none."""
    inbox = client.new_inbox()
    sid = client.subscribe(f"{inbox}.*")
    for seq in range(1, last_seq + 1):
        client.publish(f"$JS.API.STREAM.MSG.GET.{stream}", b'{"seq":%d}' % seq, reply=f"{inbox}.{seq}")
    found: dict[int, bytes] = {}
    unreadable = set(range(1, last_seq + 1))
    for answer in client.messages(sid, last_seq, PATIENCE_S):
        document, seq = json.loads(answer.payload or b"{}"), int(answer.subject.rpartition(".")[2])
        message = document.get("message")
        if message is not None:
            found[seq] = content(message["subject"], base64.b64decode(message.get("data", "")))
        if message is not None or document.get("error", {}).get("err_code") == NO_MESSAGE:
            unreadable.discard(seq)
    return found, unreadable


def _publish(client: RawClient, promise: Promise) -> int | None:
    """The sequence of another message; None when nobody acknowledges it."""
    inbox = client.new_inbox()
    sid = client.subscribe(inbox)
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline and not client.closed:
        headers = [("Nats-Msg-Id", inbox)]
        client.publish(_subject_after(promise), AFTER, reply=inbox, headers=headers)
        for answer in client.messages(sid, 1, ANSWER_S):
            document = json.loads(answer.payload or b"{}")
            if "seq" in document and "error" not in document:
                return int(document["seq"])
        time.sleep(LOOK_AGAIN_S)
    return None


def _subject_after(promise: Promise) -> str:
    return f"{promise.stream}.after{promise.last_seq}"  # another one each time, for streams that keep one of a subject


def after(promise: Promise, seen: Seen | Unavailable | None) -> Promise:
    """What is promised when the message that a look has published counts too."""
    if not isinstance(seen, Seen) or seen.next_seq <= promise.last_seq:
        return promise
    live = {**promise.live, seen.next_seq: content(_subject_after(promise), AFTER)}
    return attrs.evolve(promise, live=live, last_seq=seen.next_seq)


def has_caught_up(node: Server, promises: Sequence[Promise]) -> bool:
    """Whether the node is healthy and its own replicas have as many messages as they must: health allows for a lag."""
    _, body = node.get("/jsz?streams=true")
    accounts = body.get("account_details") or [] if isinstance(body, dict) else []
    held = {
        detail["name"]: detail["state"]["messages"]
        for account in accounts
        for detail in account.get("stream_detail", ())
    }
    return node.healthy() and all(held.get(promise.stream, 0) >= len(promise.live) for promise in promises)


def held_by(client: RawClient, promise: Promise) -> dict[int, bytes]:
    """What direct gets give out: with no other member running, what this one's replica has."""
    inbox = client.new_inbox()
    sid = client.subscribe(f"{inbox}.*")
    for seq in range(1, promise.last_seq + 1):
        subject = f"$JS.API.DIRECT.GET.{promise.stream}"
        client.publish(subject, b'{"seq":%d}' % seq, reply=f"{inbox}.{seq}")
    return {
        int(answer.subject.rpartition(".")[2]): content(dict(answer.headers)["Nats-Subject"], answer.payload)
        for answer in client.messages(sid, promise.last_seq, PATIENCE_S)
        if not answer.status
    }


def _floor(client: RawClient, promise: Promise) -> int | None:
    if not promise.consumer:
        return None
    answer = insist(client, f"$JS.API.CONSUMER.INFO.{promise.stream}.{promise.consumer}")
    return int(answer["ack_floor"]["stream_seq"]) if "ack_floor" in answer else None
