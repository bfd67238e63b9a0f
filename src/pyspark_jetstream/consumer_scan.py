"""Reads from a stream without `allow_direct`, by an ephemeral pull consumer that no message waits for.

The consumer starts at a sequence, needs no acknowledgements, and is in memory on one server. It is deleted at the end;
if its task dies, the server deletes it after INACTIVE_S. Each message has its place in its reply subject:

    $JS.ACK.[<domain>.<account>.]<stream>.<consumer>.<deliveries>.<stream seq>.<consumer seq>.<time, ns>.<pending>

The consumer's sequences have no gaps. So a message that was sent and did not arrive is noticed. Source: ADR-15, ADR-37.
"""

import contextlib
import json
import re
import secrets
from collections.abc import Generator
from typing import Any

from pyspark_jetstream import wire
from pyspark_jetstream.client import Connection, Part
from pyspark_jetstream.errors import JetStreamSourceError, ServerError
from pyspark_jetstream.leader import read_answer
from pyspark_jetstream.subjects import ALL
from pyspark_jetstream.transport import Transport

INACTIVE_S = 30
ANSWER_TIMEOUT_S = 5.0
END_OF_BATCH = wire.Status(code=204, description="EOB", headers={})
NONE_LEFT = wire.Status(code=404, description="No Messages", headers={})
ENDS = frozenset({404, 408})  # no message, or no more of them
CONFLICT = 409
COMPLETED = "Batch Completed"  # nats-server, after the last message of a pull with max_bytes
TOO_LARGE = wire.Status(code=CONFLICT, description="Exceeds MaxBytes", headers={})


class EphemeralConsumer:
    """One consumer. Raises ServerError when the server fails, ApiRefusalError when the stream admits no consumer."""

    def __init__(self, connection: Connection, stream: str, start_seq: int, **more: Any) -> None:
        """Create the consumer; `more` of its configuration."""
        self._connection = connection
        self._stream = stream
        self.name = f"pyspark_{secrets.token_hex(8)}"
        config: dict[str, Any] = {
            "name": self.name,
            "description": "pyspark_jetstream",
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": start_seq,
            "ack_policy": "none",
            "replay_policy": "instant",
            "inactive_threshold": INACTIVE_S * 10**9,
            "num_replicas": 1,
            "mem_storage": True,
            **more,
        }
        self._ask("CREATE", json.dumps({"stream_name": stream, "config": config, "action": "create"}).encode())

    @property
    def next_subject(self) -> str:
        """Where its messages are pulled."""
        return f"{self._connection.api_prefix}.CONSUMER.MSG.NEXT.{self._stream}.{self.name}"

    def close(self) -> None:
        """Delete the consumer; the server does it later if this fails."""
        if not self._connection.closed:
            with contextlib.suppress(JetStreamSourceError):
                self._ask("DELETE", b"")

    def _ask(self, verb: str, payload: bytes) -> None:
        subject = f"{self._connection.api_prefix}.CONSUMER.{verb}.{self._stream}.{self.name}"
        read_answer(self._connection.request(subject, payload, timeout_s=ANSWER_TIMEOUT_S), self._stream)


class ConsumerScan(EphemeralConsumer):
    """Reads the messages from a sequence on."""

    def __init__(self, connection: Connection, stream: str, start_seq: int, subject: str) -> None:
        """Create the consumer, for messages that match `subject`."""
        super().__init__(connection, stream, start_seq, **({} if subject == ALL else {"filter_subject": subject}))
        self._next_delivery = 1
        self._message = message_pattern(stream, self.name)

    def pull(self, count: int, bytes_max: int, *, stall_s: float) -> Generator[Part, None, wire.Status]:
        """Yield the next messages, up to `count` of them or about `bytes_max`; return 204, or 404 if no more follow."""
        status = yield from self._pull({"batch": count, "max_bytes": bytes_max}, count, stall_s)
        if status is TOO_LARGE:  # the first one is larger than bytes_max
            status = yield from self._pull({"batch": 1}, 1, stall_s)
        return status

    def _pull(self, limits: dict[str, int], count: int, stall_s: float) -> Generator[Part, None, wire.Status]:
        return self._connection.answer(
            self.next_subject,
            json.dumps({**limits, "no_wait": True}).encode(),
            lambda transport: self._parts(transport, count),
            stall_s=stall_s,
        )

    def _parts(self, transport: Transport, count: int) -> Generator[Part, None, wire.Status]:
        rows = wire.Rows(has_unix_times=True)
        try:
            status = self._gather(transport, rows, count)
        except (ServerError, ValueError) as error:
            if rows:
                yield rows
            raise error if isinstance(error, ServerError) else ServerError(f"{transport.url}: {error}") from error
        if rows:
            yield rows
        return status

    def _gather(self, transport: Transport, rows: wire.Rows, count: int) -> wire.Status:
        while len(rows) < count:
            received = len(rows)
            transport.scan(self._scan, rows)
            if len(rows) >= count:
                break
            status = wire.status_of(transport.peek().header)
            if status is None:
                transport.scan(self._scan, rows)
                if len(rows) == received:
                    raise ServerError(f"{transport.url}: a message that is not from the consumer")
                continue
            transport.expect(b"MSG")
            if status.code == CONFLICT and status.description == COMPLETED:
                continue  # of the pull before this one: it was over with its last message
            if status.code == CONFLICT and status.description.endswith(TOO_LARGE.description):
                return END_OF_BATCH if rows else TOO_LARGE
            return NONE_LEFT if status.code in ENDS else status
        return END_OF_BATCH

    def _scan(self, data: bytes, start: int, rows: wire.Rows) -> int:
        """Append the consumer's messages from `start` on; see wire.scan_messages."""
        match_at, size = self._message.match, len(data)
        add_seq, add_time = rows.stream_seqs.append, rows.times.append
        add_subject, add_header, add_payload = rows.subjects.append, rows.headers.append, rows.payloads.append
        delivery, pending = self._next_delivery, None
        while match := match_at(data, start):
            subject, stream_seq, number, time, left, header_bytes, total = match.groups()
            payload_start = block_start = match.end()
            end = block_start + int(total)
            if end + 2 > size:
                break
            if int(number) != delivery:
                raise ServerError(f"delivery {delivery} is missing, {int(number)} arrived")
            delivery += 1
            header = b""
            if header_bytes is not None:
                payload_start += int(header_bytes)
                header = data[data.find(b"\n", block_start) + 1 : payload_start - 2]
            add_seq(int(stream_seq))
            add_time(time)
            add_subject(subject)
            add_header(header)
            add_payload(data[payload_start:end])
            start, pending = end + 2, left
        if pending is not None:
            rows.num_pending = int(pending)
        self._next_delivery = delivery
        return start


def message_pattern(stream: str, consumer: str) -> re.Pattern[bytes]:
    """The line before a message of the consumer."""
    names = rb"%b\.%b" % (re.escape(stream.encode()), re.escape(consumer.encode()))
    place = rb"\d+\.(\d+)\.(\d+)\.(\d+)\.(\d+)(?:\.\S+)?"
    return re.compile(rb"H?MSG (\S+) \S+ \$JS\.ACK\.(?:[^. ]+\.[^. ]+\.)?%b\.%b (?:(\d+) )?(\d+)\r\n" % (names, place))
