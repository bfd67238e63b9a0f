"""The part of a range that the subject filters choose: what the server is asked for, and what the task drops. Pure."""

from pyspark_jetstream.plan import Range
from pyspark_jetstream.subjects import ALL, cover, matcher
from pyspark_jetstream.wire import Rows

# The first request with a filter, when it is not known how many of the messages match.
FILTERED_ROWS_FIRST = 500
SPARE_ROWS = 50


class Selection:
    """The subject filters of a range."""

    def __init__(self, wanted: Range) -> None:
        filters = wanted.options.subjects
        self.subject = cover(filters) if wanted.allow_direct else ALL  # what the server is asked for
        self._matches = matcher(filters) if filters and tuple(filters) != (self.subject,) else None
        self._start_seq, self._end_seq = wanted.start_seq, wanted.end_seq
        self._taken = 0  # rows of the range that the server has sent

    def count(self, next_seq: int, rows_max: int) -> int:
        """How many messages to ask for: a batch has no upper sequence, so few of them should lie after the range."""
        left, read = self._end_seq - next_seq, next_seq - self._start_seq
        if self.subject == ALL:
            return min(rows_max, left)
        expected = left * self._taken // read + SPARE_ROWS if read else FILTERED_ROWS_FIRST
        return min(rows_max, left, expected)

    def chosen(self, rows: Rows) -> Rows:
        """Return the rows whose subject matches one of the filters."""
        self._taken += len(rows)
        if self._matches is None:
            return rows
        found = Rows(num_pending=rows.num_pending, has_unix_times=rows.has_unix_times)
        for row in zip(*rows.columns(), strict=True):
            if self._matches(row[2]):
                found.append(*row)
        return found
