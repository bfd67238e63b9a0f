"""Requests that only the stream's leader may answer: where the stream ends, whether a message exists.

Any server accepts them (`$JS.API.STREAM.INFO`, `$JS.API.STREAM.MSG.GET`); the leader answers. Without a leader there is
no answer, so a request is repeated on one server after the other for the retry timeout. A replica is never asked for
the end of the stream: if it lags, the offset goes backwards, and Spark, which does not check this, delivers rows twice.
"""

import json
import logging
import time
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any
from urllib.parse import urlsplit

import attrs

from pyspark_jetstream import times
from pyspark_jetstream.client import Connection, ConnectionCache
from pyspark_jetstream.errors import (
    JetStreamSourceError,
    LoginRefusedError,
    ServerError,
    ServersUnavailableError,
    StreamNotFoundError,
)
from pyspark_jetstream.options import Access
from pyspark_jetstream.wire import Frame, status_of

LOG = logging.getLogger("pyspark_jetstream")

# Of one attempt. An answer takes milliseconds; after a longer silence the next server is asked.
ANSWER_TIMEOUT_S = 2.0
PAUSE_FIRST_S = 0.05
PAUSE_MAX_S = 1.0

TIME_NS_MAX = (1 << 63) - 1
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
    retention: str = "limits"  # or interest, workqueue
    consumers_max: int = -1  # -1: no limit
    metadata: Mapping[str, str] = attrs.field(factory=dict, eq=False, repr=False)

    @property
    def may_be_watched(self) -> bool:
        """Whether one more consumer changes nothing for the stream and for others."""
        return self.retention == "limits" and self.consumers_max < 0

    @property
    def end_seq(self) -> int:
        """The sequence after the last one."""
        return self.last_seq + 1


class ApiRefusalError(JetStreamSourceError):
    """The server answered with an error that a repeated request does not change."""

    def __init__(self, err_code: int, description: str) -> None:
        super().__init__(f"{description} (err_code {err_code})")
        self.err_code = err_code


class Api:
    """Requests to the JetStream API, repeated on one server after the other while none answers."""

    def __init__(self, access: Access, connections: ConnectionCache, what: str) -> None:
        """`what` names the stream in messages."""
        self.access = access
        self.what = what
        self._connections = connections
        self._servers = list(access.servers)  # the one that answered last is first
        self._answered = False

    def ask(self, subject: str, question: dict[str, Any], *, timeout_s: float = ANSWER_TIMEOUT_S) -> dict[str, Any]:
        """Return the JSON answer of the first server that gives one; `subject` is without the API's prefix.

        Raises LoginRefusedError at once as long as no server has answered: the login is wrong, not the server.
        """
        payload = json.dumps(question).encode() if question else b""
        failures: dict[str, str] = {}
        for url in self._attempts(failures):
            try:
                frame = self.connection(url).request(
                    f"{self.access.api_prefix}.{subject}", payload, timeout_s=timeout_s
                )
                answer = read_answer(frame, self.what)
            except LoginRefusedError as error:
                if not self._answered:
                    raise
                failures[url] = str(error)
            except ServerError as error:
                if url not in failures:
                    LOG.info("stream %s: %s", self.what, error)
                failures[url] = str(error)
            else:
                self._answered = True
                self._servers.remove(url)
                self._servers.insert(0, url)
                return answer
        raise AssertionError("attempts end with an exception or an answer")

    def first(self) -> Connection:
        """The connection to the server that answered last. Raises ServerError."""
        return self.connection(self._servers[0])

    def connection(self, url: str) -> Connection:
        """An open connection to this server; the servers that it reports are asked later too. Raises ServerError."""
        connection = self._connections.get(url, self.access)
        known = {urlsplit(server).netloc for server in self._servers}
        scheme = urlsplit(url).scheme  # as in replicas.survey
        self._servers += [f"{scheme}://{address}" for address in connection.info.connect_urls if address not in known]
        return connection

    def _attempts(self, failures: dict[str, str]) -> Iterator[str]:
        """Yield servers to ask, in rounds with growing pauses. Raises ServersUnavailableError after the deadline."""
        deadline = time.monotonic() + self.access.retry_timeout_s
        pause_s = PAUSE_FIRST_S
        while True:
            for url in list(self._servers):
                yield url
                if time.monotonic() > deadline:
                    reasons = "; ".join(dict.fromkeys(failures.values()))
                    raise ServersUnavailableError(
                        f"no answer about stream {self.what!r} within {self.access.retry_timeout_s:g} s: {reasons}"
                    )
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, PAUSE_MAX_S)


class Leader:
    """The present leader of one stream."""

    def __init__(self, access: Access, stream: str, connections: ConnectionCache) -> None:
        self.stream = stream
        self._connections = connections
        self._api = Api(access, connections, stream)

    @cached_property
    def _once(self) -> Api:
        """Asks one server, once. Few streams of a large plan need it."""
        return Api(attrs.evolve(self._api.access, retry_timeout_s=0.0), self._connections, self.stream)

    def view(self) -> StreamView:
        """Return the stream's state. Raises StreamNotFoundError, ServersUnavailableError."""
        return view_of(self._api.ask(f"STREAM.INFO.{self.stream}", {}))

    def exists(self) -> bool:
        """Whether the stream may exist: False only if the first server says that it does not. Asks once."""
        try:
            self._once.ask(f"STREAM.INFO.{self.stream}", {})
        except StreamNotFoundError:
            return False
        except (ServersUnavailableError, LoginRefusedError):
            return True
        return True

    def next_live(self, stream_seq: int, subject: str = ">") -> int | None:
        """Return the first existing sequence at or after this one with such a subject, None when there is none."""
        return self._message_seq({"seq": stream_seq, "next_by_subj": subject})

    def seq_at(self, time: str) -> int:
        """Return the first sequence stored at or after this time, the end of the stream when there is none."""
        # nats-server takes a time that has no int64 of nanoseconds (after 2262) for an early one.
        found = self._message_seq({"start_time": time}) if times.unix_ns(time) <= TIME_NS_MAX else None
        return self.view().end_seq if found is None else found

    def _message_seq(self, question: dict[str, Any]) -> int | None:
        try:
            answer = self._api.ask(f"STREAM.MSG.GET.{self.stream}", question)
        except ApiRefusalError as error:
            if error.err_code == NO_MESSAGE_FOUND:
                return None
            raise
        return int(answer["message"]["seq"])


def stream_names(api: Api) -> list[str]:
    """Return the names of all streams of the account, in ascending order."""
    names: list[str] = []
    while True:
        answer = api.ask("STREAM.NAMES", {"offset": len(names)})
        page = [str(name) for name in answer.get("streams") or ()]
        names += page
        if not page or len(names) >= int(answer.get("total", 0)):
            return sorted(set(names))


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
        retention=str(config.get("retention", "limits")),
        consumers_max=int(config.get("max_consumers") or -1),
        metadata=config.get("metadata") or {},
    )
