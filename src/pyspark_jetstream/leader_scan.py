"""Reading through the leader, for streams without `allow_direct`: a STREAM.MSG.GET a message, many on the way at once.

Much slower than direct get (base64 inside JSON, one request a message, always the leader), but it needs no change to
the stream.
"""

import base64
import binascii

from pyspark_jetstream.client import Connection
from pyspark_jetstream.errors import ServerError
from pyspark_jetstream.leader import NO_MESSAGE_FOUND, ApiRefusalError, read_answer
from pyspark_jetstream.wire import Frame, Rows, Status

# 64 answers of the largest usual message (1 MB) are just what a server buffers for a client.
REQUESTS_AT_ONCE = 64
ANSWER_TIMEOUT_S = 5.0


def leader_batch(connection: Connection, stream: str, start_seq: int, count: int, rows: Rows) -> Status:
    """Append messages with sequences from `start_seq` on and return how it ended, as a batch direct get would.

    The first one may be far ahead (deletes are jumped over), the others come from `count` sequences. 404: there is
    none. Raises ServerError; rows appended before it are good.
    """
    subject = f"$JS.API.STREAM.MSG.GET.{stream}"
    first = b'{"seq":%d,"next_by_subj":">"}' % start_seq
    append_answer(connection.request(subject, first, timeout_s=ANSWER_TIMEOUT_S), stream, rows)
    if not rows:
        return Status(code=404, description="Message Not Found", headers={})
    rows.num_pending = 1  # not known, and asking again tells
    for first_seq in range(rows.stream_seqs[0] + 1, start_seq + count, REQUESTS_AT_ONCE):
        seqs = range(first_seq, min(first_seq + REQUESTS_AT_ONCE, start_seq + count))
        questions = [(subject, b'{"seq":%d}' % seq) for seq in seqs]
        for frame in connection.request_many(questions, timeout_s=ANSWER_TIMEOUT_S):
            append_answer(frame, stream, rows)
    return Status(code=204, description="EOB", headers={})


def append_answer(frame: Frame, stream: str, rows: Rows) -> None:
    """Append the message of an answer; nothing when it says that there is none."""
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
        raise ServerError(f"a STREAM.MSG.GET answer cannot be read: {error}") from error
