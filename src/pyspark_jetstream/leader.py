"""Requests that only the stream's leader may answer: where the stream ends, whether a message exists.

Any server accepts them (`$JS.API.STREAM.INFO`, `$JS.API.STREAM.MSG.GET`); the leader answers. Without a leader there is
no answer, so a request is repeated on one server after the other for the retry timeout. A replica is never asked for
the end of the stream: if it lags, the offset goes backwards, and Spark, which does not check this, delivers rows twice.
"""

import json
import logging
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import attrs

from pyspark_jetstream import times
from pyspark_jetstream.client import Connection, ConnectionCache
from pyspark_jetstream.errors import JetStreamSourceError, ServerError, ServersUnavailableError, StreamNotFoundError
from pyspark_jetstream.options import Access
from pyspark_jetstream.wire import Frame, status_of

LOG = logging.getLogger("pyspark_jetstream")

# Of one attempt. An answer takes milliseconds; after a longer silence the next server is asked.
ANSWER_TIMEOUT_S = 2.0
PAUSE_FIRST_S = 0.05
PAUSE_MAX_S = 1.0

STREAM_NOT_FOUND = 10059
NO_MESSAGE_FOUND = 10037
JETSTREAM_NOT_ENABLED = frozenset({10039, 10076})  # for the account, in the server
TRANSIENT_CODES = frozenset({408, 429, 500, 503})  # no leader, overloaded, other temporary errors


@attrs.frozen(kw_only=True, slots=True)
class StreamView:
    """The state of a stream at one moment, from its leader."""

    created: str  # differs for another stream with the same name
    first_seq: int  # of the first message, last_seq + 1 when there is none
    last_seq: int
    last_time_ns: int
    messages: int
    message_bytes: int
    allow_direct: bool
    replicas: frozenset[str]  # server names of the leader and the followers

    @property
    def end_seq(self) -> int:
        """The sequence after the last one."""
        return self.last_seq + 1


class ApiRefusalError(JetStreamSourceError):
    """The server answered with an error that a repeated request does not change."""

    def __init__(self, err_code: int, description: str) -> None:
        super().__init__(f"{description} (err_code {err_code})")
        self.err_code = err_code


class Leader:
    """The present leader of one stream."""

    def __init__(self, access: Access, stream: str, connections: ConnectionCache) -> None:
        self.stream = stream
        self._access = access
        self._connections = connections
        self._servers = list(access.servers)  # the one that answered last is first

    def view(self) -> StreamView:
        """Return the stream's state. Raises StreamNotFoundError, ServersUnavailableError."""
        answer = self._ask("STREAM.INFO", {})
        return view_of(answer)

    def next_live(self, stream_seq: int) -> int | None:
        """Return the first existing sequence at or after this one, None when there is none."""
        return self._message_seq({"seq": stream_seq, "next_by_subj": ">"})

    def seq_at(self, time: str) -> int:
        """Return the first sequence stored at or after this time, the end of the stream when there is none."""
        found = self._message_seq({"start_time": time})
        return self.view().end_seq if found is None else found

    def _message_seq(self, question: dict[str, Any]) -> int | None:
        try:
            answer = self._ask("STREAM.MSG.GET", question)
        except ApiRefusalError as error:
            if error.err_code == NO_MESSAGE_FOUND:
                return None
            raise
        return int(answer["message"]["seq"])

    def _ask(self, verb: str, question: dict[str, Any]) -> dict[str, Any]:
        """Return the JSON answer of the first server that gives one."""
        subject = f"$JS.API.{verb}.{self.stream}"
        payload = json.dumps(question).encode() if question else b""
        failures: dict[str, str] = {}
        for url in self._attempts(failures):
            try:
                frame = self._connection(url).request(subject, payload, timeout_s=ANSWER_TIMEOUT_S)
                answer = read_answer(frame, self.stream)
            except ServerError as error:
                if url not in failures:
                    LOG.info("stream %s: %s", self.stream, error)
                failures[url] = str(error)
                continue
            self._servers.remove(url)
            self._servers.insert(0, url)
            return answer
        raise AssertionError("attempts end with an exception or an answer")

    def _connection(self, url: str) -> Connection:
        connection = self._connections.get(url, self._access)
        for address in connection.info.connect_urls:
            known = f"{urlsplit(url).scheme}://{address}"
            if known not in self._servers:
                self._servers.append(known)
        return connection

    def _attempts(self, failures: dict[str, str]) -> Iterator[str]:
        """Yield servers to ask, in rounds with growing pauses. Raises ServersUnavailableError after the deadline."""
        deadline = time.monotonic() + self._access.retry_timeout_s
        pause_s = PAUSE_FIRST_S
        while True:
            for url in list(self._servers):
                yield url
                if time.monotonic() > deadline:
                    reasons = "; ".join(dict.fromkeys(failures.values()))
                    raise ServersUnavailableError(
                        f"no answer about stream {self.stream!r} within {self._access.retry_timeout_s:g} s: {reasons}"
                    )
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, PAUSE_MAX_S)


def read_answer(frame: Frame, stream: str) -> dict[str, Any]:
    """Return the JSON of an API answer.

    Raises ServerError when another server or a later attempt may succeed, otherwise StreamNotFoundError or
    ApiRefusalError.
    """
    if status := status_of(frame.header):
        raise ServerError(
            "JetStream is not enabled or not reachable (503 no responders)"
            if status.code == 503  # noqa: PLR2004  (the protocol's number)
            else f"unexpected status {status.code} {status.description}"
        )
    try:
        answer: dict[str, Any] = json.loads(frame.payload)
        error = answer.get("error")
        if error is None:
            return answer
        code, err_code, description = (
            int(error["code"]),
            int(error.get("err_code", 0)),
            str(error.get("description", "")),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as failure:
        raise ServerError(f"an answer of the JetStream API is malformed: {failure!r}") from failure
    if err_code == STREAM_NOT_FOUND:
        raise StreamNotFoundError(f"stream {stream!r} does not exist")
    if code in TRANSIENT_CODES and err_code not in JETSTREAM_NOT_ENABLED:
        raise ServerError(f"{description} (err_code {err_code})")
    raise ApiRefusalError(err_code, description)


def view_of(answer: dict[str, Any]) -> StreamView:
    """Return the part of a STREAM.INFO answer that a reader needs."""
    state, config = answer["state"], answer["config"]
    cluster = answer.get("cluster") or {}
    names = {cluster.get("leader"), *(replica["name"] for replica in cluster.get("replicas") or ())}
    last_time = state.get("last_ts", times.ZERO_TIME)
    return StreamView(
        created=answer["created"],
        first_seq=state["first_seq"] if state["messages"] else state["last_seq"] + 1,
        last_seq=state["last_seq"],
        last_time_ns=0 if last_time == times.ZERO_TIME else times.unix_ns(last_time),
        messages=state["messages"],
        message_bytes=state["bytes"],
        allow_direct=bool(config.get("allow_direct", False)),
        replicas=frozenset(name for name in names if name),
    )
