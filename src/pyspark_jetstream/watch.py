"""Waits for the next message of idle streams, instead of asking their leaders again and again.

Each stream has an ephemeral consumer that begins at the stream's end, headers only, with one pull that waits. Its
message only ends the waiting: the end of a batch is what the leader says when it is asked then, as without a watch. And
the leader is asked every CHECK_S in any case, so a consumer that was lost with its server costs so much time once.

Consumers are in memory, need no acknowledgements, are deleted by `close`, and by the server after INACTIVE_S without a
pull. Only a stream with retention `limits` and no limit of consumers gets one: elsewhere it would hold or remove
messages, or take the place of another one. Source: ADR-13 (pull requests), ADR-37 (subject of a pull).
"""

import json
import logging
import time
from typing import Any

import attrs

from pyspark_jetstream import wire
from pyspark_jetstream.client import Connection
from pyspark_jetstream.consumer_scan import EphemeralConsumer
from pyspark_jetstream.errors import JetStreamSourceError, LoginRefusedError, ServerError
from pyspark_jetstream.leader import Api, ApiRefusalError, StreamView
from pyspark_jetstream.offsets import Offsets
from pyspark_jetstream.options import Options

LOG = logging.getLogger("pyspark_jetstream")

# Of one call: Spark cannot stop a query in the middle of it.
WAIT_S = 0.25
# An idle query asks its leaders so often.
CHECK_S = 2.0
# More streams than this are asked in turn, without consumers.
STREAMS_MAX = 16
# A pull of a consumer that is so far behind would bring messages that are read already: it is made again instead.
BEHIND_MAX = 100
PULL_S = 20.0  # less than INACTIVE_S of consumer_scan.py
RETRY_S = 5.0  # after a failure the leaders are asked in turn for so long
ENDS_OF_PULL = frozenset({404, 408})
FORBIDDEN = "permissions violation"
STREAM_SEQ_AT = 2  # $JS.ACK...<consumer>.<deliveries>.<stream seq>...: tokens after the consumer's


class WatchConnection(Connection):
    """A connection on which messages come at any time."""

    def pull(self, subject: str, question: dict[str, Any]) -> bytes:
        """Ask for messages; returns the subject that they come to."""
        reply = b"%b.%d" % (self._inbox, self._replies)
        self._replies += 1
        self.send(wire.publish(subject.encode(), reply, json.dumps(question).encode()))
        return reply

    def arrived(self, timeout_s: float) -> list[wire.Frame]:
        """The answers to pulls that are there, after waiting for the first one so long at most."""
        frames: list[wire.Frame] = []
        deadline_s = time.monotonic() + timeout_s
        while not frames and self.waits(max(0.0, deadline_s - time.monotonic())):
            frames += self.taken()
        return frames


@attrs.define(slots=True)
class Watched:
    """A stream with its consumer."""

    consumer: EphemeralConsumer
    next_seq: int  # nothing before it is still to come
    end_seq: int = 0  # of the stream when the waiting began: a message from here on is new
    pulled_until_s: float = 0.0  # a pull is waiting until then
    reply: bytes = b""  # of that pull


class Watch:
    """The waiting of one query. Without rights, or with streams that must not have consumers, it never waits."""

    def __init__(self, options: Options, api: Api) -> None:
        self._options = options
        self._api = api
        self._connection: WatchConnection | None = None
        self._watched: dict[str, Watched] = {}
        self._until_s = 0.0  # the leaders are asked then; 0: at once
        self._start: Offsets | None = None  # where the query waits
        self._not_before_s = 0.0  # after a failure

    def is_quiet(self, start: Offsets) -> bool:
        """Wait WAIT_S at most; whether nothing has come behind `start`, so that the leaders need not be asked."""
        if start != self._start or time.monotonic() >= self._until_s:
            return False
        assert self._connection is not None
        try:
            frames = self._connection.arrived(WAIT_S)
            is_quiet = not sum(self._ends_waiting(frame) for frame in frames)  # each of them is looked at
            if is_quiet:
                self._pull()
        except ServerError as error:
            self._failed(error)
            return False
        if not is_quiet:
            self._until_s = 0.0
        return is_quiet

    def begin(self, start: Offsets, views: dict[str, StreamView]) -> bool:
        """Wait from now on for what comes after these views, which have nothing to read from `start` on.

        Whether the waiting has begun. Otherwise the caller makes a pause.
        """
        self._until_s = 0.0
        may_wait = 0 < len(views) <= STREAMS_MAX and all(view.may_be_watched for view in views.values())
        if not may_wait or time.monotonic() < self._not_before_s:
            return False
        try:
            if self._connection is None or self._connection.closed:
                self._watched.clear()
                self._connection = WatchConnection(self._api.first().url, self._options.access)
            is_new = [self._follow(self._connection, name, view.end_seq) for name, view in views.items()]
            if any(is_new):
                return False  # what came while a consumer was made is not known: the leaders are asked once more
            self._pull()
        except (ApiRefusalError, ServerError) as error:
            self._failed(error)
            return False
        if any(watched.next_seq > watched.end_seq for watched in self._watched.values()):
            return False  # the leader is about to have what the consumer had
        self._start, self._until_s = start, time.monotonic() + CHECK_S
        return True

    def close(self) -> None:
        """Delete the consumers and close the connection."""
        if self._connection is not None:
            for watched in self._watched.values():
                watched.consumer.close()
            self._connection.close()
        self._watched.clear()
        self._until_s = 0.0

    def _follow(self, connection: WatchConnection, name: str, end_seq: int) -> bool:
        """Let the consumer of a stream wait for its end; whether it had to be made."""
        watched = self._watched.get(name)
        if watched is not None and watched.next_seq <= end_seq + 1 and end_seq - watched.next_seq <= BEHIND_MAX:
            watched.end_seq = end_seq
            return False
        if watched is not None:
            watched.consumer.close()
        consumer = EphemeralConsumer(connection, name, end_seq, headers_only=True)
        self._watched[name] = Watched(consumer, next_seq=end_seq, end_seq=end_seq)
        return True

    def _pull(self) -> None:
        """Let a pull of each consumer wait."""
        assert self._connection is not None
        now_s = time.monotonic()
        for watched in self._watched.values():
            if now_s >= watched.pulled_until_s:
                batch = max(0, watched.end_seq - watched.next_seq) + 1
                question = {"batch": batch, "expires": int(PULL_S * 1e9)}
                watched.reply = self._connection.pull(watched.consumer.next_subject, question)
                watched.pulled_until_s = now_s + PULL_S

    def _ends_waiting(self, frame: wire.Frame) -> bool:
        """Whether a message is new, or a status says that the consumer is no longer there."""
        status = wire.status_of(frame.header)
        if status is not None:
            watched = next((one for one in self._watched.values() if frame.subject == one.reply), None)
            if watched is not None and status.code not in ENDS_OF_PULL:
                raise ServerError(f"a waiting pull ended: {status.code} {status.description}")
            if watched is not None:
                watched.pulled_until_s = 0.0
            return False
        tokens = frame.reply.split(b".")
        for watched in self._watched.values():
            name = watched.consumer.name.encode()
            if name in tokens:
                watched.next_seq = int(tokens[tokens.index(name) + STREAM_SEQ_AT]) + 1
                if watched.next_seq > watched.end_seq:
                    watched.pulled_until_s = 0.0
                return watched.next_seq > watched.end_seq
        return False  # of a consumer that was replaced

    def _failed(self, error: JetStreamSourceError) -> None:
        """Give up this waiting; without rights for consumers, all waiting."""
        is_final = isinstance(error, (ApiRefusalError, LoginRefusedError)) or FORBIDDEN in str(error).lower()
        self._not_before_s = float("inf") if is_final else time.monotonic() + RETRY_S
        LOG.info("%s: no consumer waits for new messages: %s", ", ".join(self._options.streams), error)
        self.close()
