"""Durable consumers that hold the messages of interest and work-queue streams until Spark has committed them.

The rows of a query come from direct gets, and its position is in Spark's checkpoint. A durable consumer is only an
anchor: while it has not acknowledged a message, such a stream keeps it. So what a batch may have to read again exists.

- It is made when a query starts, where the query starts, before the first offset reaches the checkpoint.
- A query with a checkpoint finds it, or stops: the stream has had no reason to keep what was published meanwhile.
- When Spark has committed a batch (`commit`), everything before its end is acknowledged, nothing after it. Spark says
  so one batch late and not at all for the last one: that is acknowledged after a restart, with the next batch.
- Nothing deletes it. A query that is not continued holds the messages until the consumer is deleted by hand.

A server accepts an acknowledgement only of a message that it has delivered. So the messages of a batch are pulled once
more, headers only. A work queue wants each acknowledged by itself; elsewhere the last one acknowledges all before it.
Messages that were pulled beyond the end of a batch stay in `held` until their batch is committed; after a restart of
the driver the server delivers them again after `ACK_WAIT_NS`.
Source: ADR-13 (pull requests), ADR-15 ($JS.ACK), consumer.go (which ack policies a work queue allows).
"""

import json
import logging
from typing import Any

import attrs

from pyspark_jetstream import wire
from pyspark_jetstream.client import Connection
from pyspark_jetstream.errors import BadOptionError, DurableConsumerError, ServerError
from pyspark_jetstream.leader import ANSWER_TIMEOUT_S, Api, ApiRefusalError
from pyspark_jetstream.offsets import Offset, Offsets
from pyspark_jetstream.options import Options

LOG = logging.getLogger("pyspark_jetstream")

CONSUMER_NOT_FOUND = 10014
PULL_MESSAGES = 2_000
ACK_WAIT_NS = 5_000_000_000
WORK_QUEUE = "workqueue"
ACK = b"+ACK"
# $JS.ACK[.<domain>.<account>].<stream>.<consumer>.<delivered>.<stream seq>.<consumer seq>.<time>.<pending>[.<token>]
ACK_TOKENS_SHORT = 9
ACK_SEQ_SHORT, ACK_SEQ_LONG = 5, 7


@attrs.define(slots=True)
class Durable:
    """The durable consumer of a query on one stream."""

    stream: str
    each: bool  # every message is acknowledged by itself
    held: dict[int, bytes] = attrs.field(factory=dict)  # delivered and not acknowledged: ack subject by sequence
    pulled_to: int = 0  # the highest sequence that was delivered
    owed: int = 0  # messages that an earlier driver had pulled and that are still to be delivered again


class PullConnection(Connection):
    """A connection that also pulls messages of a consumer."""

    def pull(self, subject: str, payload: bytes, count: int, *, timeout_s: float) -> list[wire.Frame]:
        """Send a request with up to `count` answers; a status ends them. Returns the messages without it."""
        self.set_timeout(timeout_s)
        reply = b"%b.%d" % (self._inbox, self._replies)
        self._replies += 1
        self.send(wire.publish(subject.encode(), reply, payload))
        answers: list[wire.Frame] = []
        while len(answers) < count:
            frame = self.expect(b"MSG")
            if wire.status_of(frame.header):
                break
            answers.append(frame)
        return answers

    def publish_all(self, subjects: list[bytes], payload: bytes) -> None:
        """Publish the same payload to each subject, without answers."""
        self.send(b"".join(b"PUB %b %d\r\n%b\r\n" % (subject, len(payload), payload) for subject in subjects))


class Durables:
    """The durable consumers of a query, none without the option `durable`."""

    def __init__(self, options: Options, api: Api) -> None:
        self._options = options
        self._api = api
        self._connection: PullConnection | None = None
        self._found: dict[str, Durable] = {}

    def create(self, offsets: Offsets) -> None:
        """Make the consumers of a new query. Raises DurableConsumerError if another consumer has the name."""
        if self._options.durable is not None:
            for offset in offsets.by_stream.values():
                if offset.stream not in self._found:
                    self._make(offset)

    def check(self, offsets: Offsets) -> None:
        """See once that the consumers of a query with a checkpoint exist.

        Raises DurableConsumerError; with failOnDataLoss=false they are made again where the checkpoint is.
        """
        if self._options.durable is None:
            return
        for offset in offsets.by_stream.values():
            if offset.stream in self._found:
                continue
            info = self._info(offset.stream)
            if info is None:
                self._missing(offset)
                self._make(offset)
            else:
                self._accept(offset.stream, info)

    def acknowledge(self, ends: Offsets) -> None:
        """Acknowledge everything before these offsets. On return the servers have confirmed it."""
        if self._options.durable is None:
            return
        self.check(ends)
        for offset in ends.by_stream.values():
            try:
                self._acknowledge(self._found[offset.stream], offset)
            except ServerError as error:
                # Only a hint to the server: the next commit does it.
                self._found[offset.stream].held.clear()
                LOG.warning("stream %s: not acknowledged yet: %s", offset.stream, error)

    def _acknowledge(self, durable: Durable, end: Offset) -> None:
        connection = self._connected()
        looks_again = durable.owed > 0
        while durable.pulled_to < end.seq - 1 or looks_again:
            looks_again = False
            pulled = self._pull(connection, durable.stream)
            for reply in pulled:
                times, stream_seq = delivery_of(reply)
                durable.held[stream_seq] = reply
                durable.pulled_to = max(durable.pulled_to, stream_seq)
                durable.owed -= times > 1
            if len(pulled) < PULL_MESSAGES:
                durable.pulled_to = max(durable.pulled_to, end.seq - 1)  # there is nothing more before it
        done = sorted(seq for seq in durable.held if seq < end.seq)
        subjects = [durable.held.pop(seq) for seq in done]
        if subjects:
            if durable.each:
                connection.publish_all(subjects[:-1], ACK)
            connection.request(subjects[-1].decode(), ACK, timeout_s=ANSWER_TIMEOUT_S)
        LOG.info("stream %s: %d acknowledged by %s before %d", end.stream, len(done), self._options.durable, end.seq)

    def close(self) -> None:
        """Close the connection; the consumers stay."""
        if self._connection is not None:
            self._connection.close()

    def _connected(self) -> PullConnection:
        """The open connection to the server that answers. Raises ServerError."""
        if self._connection is None or not self._connection.is_alive():
            self._connection = PullConnection(self._api.first().url, self._options.access)
        return self._connection

    def _pull(self, connection: PullConnection, stream: str) -> list[bytes]:
        """Return the ack subjects of the next messages, of as many as there are."""
        subject = f"{self._options.access.api_prefix}.CONSUMER.MSG.NEXT.{stream}.{self._options.durable}"
        question = json.dumps({"batch": PULL_MESSAGES, "no_wait": True}).encode()
        frames = connection.pull(subject, question, PULL_MESSAGES, timeout_s=ANSWER_TIMEOUT_S)
        return [frame.reply for frame in frames]

    def _info(self, stream: str) -> dict[str, Any] | None:
        try:
            return self._api.ask(f"CONSUMER.INFO.{stream}.{self._options.durable}", {})
        except ApiRefusalError as error:
            if error.err_code == CONSUMER_NOT_FOUND:
                return None
            raise

    def _missing(self, offset: Offset) -> None:
        error = DurableConsumerError(
            f"durable consumer {self._options.durable!r} of stream {offset.stream!r} does not exist: messages from "
            f"{offset.seq} on may have been removed before the query read them"
        )
        if self._options.fail_on_data_loss:
            error.add_note("failOnDataLoss=false makes it again and continues with the rows that exist")
            raise error
        LOG.warning("%s; it is made again", error)

    def _make(self, offset: Offset) -> None:
        """Make the consumer at the offset; one that exists is used if it is of the same kind."""
        info = self._info(offset.stream)
        if info is None:
            retention = self._api.ask(f"STREAM.INFO.{offset.stream}", {})["config"].get("retention")
            body = {"stream_name": offset.stream, "config": self._config(offset, retention == WORK_QUEUE)}
            info = self._api.ask(f"CONSUMER.CREATE.{offset.stream}.{self._options.durable}", body)
        self._accept(offset.stream, info)

    def _config(self, offset: Offset, work_queue: bool) -> dict[str, Any]:  # noqa: FBT001  (private)
        position = self._options.starting.of(offset.stream)
        if work_queue and position.keyword != "earliest":
            raise BadOptionError(
                f"option 'startingOffsets': stream {offset.stream!r} is a work queue, and a durable consumer takes all "
                "of it: 'durable' needs 'earliest'"
            )
        start = {"deliver_policy": "by_start_sequence", "opt_start_seq": offset.seq}
        subjects = list(self._options.subjects)
        filters = {"filter_subject": subjects[0]} if len(subjects) == 1 else {"filter_subjects": subjects}
        return {
            "name": self._options.durable,
            "durable_name": self._options.durable,
            "description": f"holds what the Spark query {self._options.query or ''} has not committed".replace(
                "  ", " "
            ),
            "ack_policy": "explicit" if work_queue else "all",
            "ack_wait": ACK_WAIT_NS,
            "max_ack_pending": -1,
            "max_deliver": -1,
            "headers_only": True,
            "metadata": {"spark.query": self._options.query or "", "spark.source": "pyspark_jetstream"},
            **({"deliver_policy": "all"} if work_queue else start),
            **(filters if subjects else {}),
        }

    def _accept(self, stream: str, info: dict[str, Any]) -> None:
        """Keep the consumer. Raises DurableConsumerError if acknowledging would not mean what this module means."""
        config = info["config"]
        one = config.get("filter_subject")
        subjects = config.get("filter_subjects") or ([one] if one else [])
        wrong = (
            ("is a push consumer", config.get("deliver_subject")),
            ("needs no acknowledgements", config.get("ack_policy") == "none"),
            ("has other subjects than the query", sorted(subjects) != sorted(self._options.subjects)),
        )
        for text, holds in wrong:
            if holds:
                raise DurableConsumerError(f"durable consumer {self._options.durable!r} of stream {stream!r} {text}")
        each = config.get("ack_policy") != "all"
        self._found[stream] = Durable(stream=stream, each=each, owed=info["num_ack_pending"] if each else 0)


def delivery_of(reply: bytes) -> tuple[int, int]:
    """Return how often a message was delivered and its sequence, from its ack subject. Raises ServerError."""
    tokens = reply.split(b".")
    position = ACK_SEQ_SHORT if len(tokens) == ACK_TOKENS_SHORT else ACK_SEQ_LONG
    try:
        return int(tokens[position - 1]), int(tokens[position])
    except (IndexError, ValueError):
        raise ServerError(f"a delivered message has the reply subject {reply!r}") from None
