"""At least once: publishes in windows, several of them on their way, each whole when all of its rows are acknowledged.

The rows of a window have one reply subject, so acks are counted, not matched. After a failure (a closed connection,
silence, a refusal that may pass) all rows of the windows that are not whole are published again: some may be stored
twice, which a column `msg_id` prevents within the stream's duplicate window.
"""

import json
from collections.abc import Iterator

import attrs

from pyspark_jetstream.errors import ServerError
from pyspark_jetstream.write.frames import windowed
from pyspark_jetstream.write.publisher import Publisher, Publishers, read_ack
from pyspark_jetstream.write.rows import Rows

# Bounds of what is published again after a failure, and of the acks that may wait in the sockets.
WINDOW_ROWS = 4096
WINDOW_BYTES = 2 << 20
WINDOWS_MAX = 4


@attrs.define(eq=False)
class Window:
    """Rows on their way; `token` is that of their reply subject on the present connection, 0 before they are sent."""

    rows: Rows
    token: int = 0
    missing: int = 0  # acks


class WindowedWriter:
    """Publishes the rows of one task."""

    def __init__(self, publishers: Publishers, stream: str) -> None:
        self._publishers = publishers
        self._stream = stream
        self._ack_start = b'{"stream":%b,' % json.dumps(stream, ensure_ascii=False).encode()
        self._windows: list[Window] = []

    def write(self, pieces: Iterator[Rows]) -> int:
        """Publish all pieces; when it returns, each row was acknowledged. Returns their number.

        Raises ServersUnavailableError, WriteRefusedError; then an unknown part of the last windows is stored.
        """
        written = 0
        for piece in pieces:
            while len(self._windows) >= WINDOWS_MAX:
                self._advance()
            self._windows.append(Window(piece))
            self._advance(wait=False)
            written += len(piece)
        while self._windows:
            self._advance()
        return written

    def _advance(self, *, wait: bool = True) -> None:
        """Send what is unsent and take acks; `wait` until there is at least one. After a failure all is unsent."""
        publisher = self._publishers.get()
        try:
            for window in self._windows:
                if not window.token:
                    window.token, window.missing = publisher.new_token(), len(window.rows)
                    publisher.send(windowed(window.rows, publisher.reply(window.token)))
            if wait or publisher.waits(0):
                publisher.receive()
                self._take_acks(publisher)
        except ServerError as error:
            for window in self._windows:
                window.token = 0
            self._publishers.failed(error)

    def _take_acks(self, publisher: Publisher) -> None:
        by_token = {window.token: window for window in self._windows}
        counts = publisher.counted(by_token, self._ack_start)
        if counts is None:
            counts = dict.fromkeys(by_token, 0)
            for token, frame in publisher.replies():
                read_ack(frame, self._stream)
                counts[token] += 1
        for token, count in counts.items():
            by_token[token].missing -= count
            assert by_token[token].missing >= 0
        whole = [window for window in self._windows if not window.missing]
        if whole:
            self._windows = [window for window in self._windows if window.missing]
            self._publishers.progressed()
