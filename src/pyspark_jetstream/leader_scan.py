"""Reads from the leader, for streams without `allow_direct`: one STREAM.MSG.GET per message, many of them in flight.

It is much slower than direct get (base64 inside JSON, one request per message, always the leader), but needs no change
of the stream.
"""

import base64
import binascii

from pyspark_jetstream.client import Connection
from pyspark_jetstream.errors import ServerError
from pyspark_jetstream.leader import NO_MESSAGE_FOUND, ApiRefusalError, read_answer
from pyspark_jetstream.wire import Frame, Rows, Status

# A server buffers 64 MB for a client: 64 answers of the default maximum size of a message.
REQUESTS_AT_ONCE = 64
ANSWER_TIMEOUT_S = 5.0


def leader_batch(connection: Connection, stream: str, start_seq: int, count: int, rows: Rows) -> Status:
    """Append messages from `start_seq` on and return a status like that of a batch direct get.

    The first one may have a much higher sequence, after deleted messages; the others are from `count` sequences. 404
    means that there is none. Raises ServerError; rows appended before it are valid.
    """
    subject = f"{connection.api_prefix}.STREAM.MSG.GET.{stream}"
    first = b'{"seq":%d,"next_by_subj":">"}' % start_seq
    append_answer(connection.request(subject, first, timeout_s=ANSWER_TIMEOUT_S), stream, rows)
    if not rows:
        return Status(code=404, description="Message Not Found", headers={})
    rows.num_pending = 1  # not known: the next request finds out
    for first_seq in range(rows.stream_seqs[0] + 1, start_seq + count, REQUESTS_AT_ONCE):
        seqs = range(first_seq, min(first_seq + REQUESTS_AT_ONCE, start_seq + count))
        questions = [(subject, b'{"seq":%d}' % seq) for seq in seqs]
        for frame in connection.request_many(questions, timeout_s=ANSWER_TIMEOUT_S):
            append_answer(frame, stream, rows)
    return Status(code=204, description="EOB", headers={})


def append_answer(frame: Frame, stream: str, rows: Rows) -> None:
    """Append the message of an answer; nothing if it states that there is none."""
    try:
        message = read_answer(frame, stream)["message"]
    except ApiRefusalError as error:
        if error.err_code == NO_MESSAGE_FOUND:
            return
        raise
    try:
        header = base64.b64decode(message.get("hdrs", ""))
        rows.append(
            int(message["seq"]),
            str(message["time"]).encode(),
            str(message["subject"]).encode(),
            header.partition(b"\r\n")[2].removesuffix(b"\r\n"),
            base64.b64decode(message.get("data", "")),
        )
    except (KeyError, ValueError, TypeError, binascii.Error) as error:
        raise ServerError(f"an answer to STREAM.MSG.GET is malformed: {error!r}") from error
