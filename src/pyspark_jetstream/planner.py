"""Plans the micro-batches of a query: the offsets of all its streams, the limits of a batch, its partitions.

The rules of one stream are in stream_planner.py. A pattern finds streams as they are created; these are read from their
first message. A stream of a pattern that no longer exists is a loss, unlike one that is new.
"""

import logging
import time
from collections.abc import Iterator
from typing import Any

import attrs

from pyspark_jetstream.client import ConnectionCache
from pyspark_jetstream.durable import Durables
from pyspark_jetstream.errors import BadOptionError, StreamNotFoundError
from pyspark_jetstream.leader import Api, Leader, StreamView, stream_names
from pyspark_jetstream.listing import Listing
from pyspark_jetstream.offsets import Offset, Offsets, parse_offsets
from pyspark_jetstream.options import Options
from pyspark_jetstream.plan import Range
from pyspark_jetstream.pushdown import Narrowing
from pyspark_jetstream.replicas import Directory
from pyspark_jetstream.stream_planner import StreamPlanner
from pyspark_jetstream.triggers import Minimum, Pace, least, rows_of_bytes, shares
from pyspark_jetstream.typed.stream_schemas import Decoding, choose
from pyspark_jetstream.values import form_of
from pyspark_jetstream.watch import Watch

LOG = logging.getLogger("pyspark_jetstream")

# How often a pattern is compared with the names of the streams.
DISCOVERY_S = 10.0


@attrs.frozen(slots=True)
class Batch:
    """What a batch read reads."""

    start: Offsets
    end: Offsets  # nothing at or after it is read
    ranges: list[Range]


class Planner:
    """The planning of one query, in one process."""

    def __init__(self, options: Options, connections: ConnectionCache) -> None:
        self.directory = Directory(options.access)
        self._options = options
        self._connections = connections
        self._api = Api(options.access, connections, ",".join(options.streams))
        self._listing = Listing(options.access, connections, self._api.what)
        self._planners: dict[str, StreamPlanner] = {}
        self._names: list[str] = []
        self._named_at_s = float("-inf")
        self._stop_at: Offsets | None = None
        self._pace = Pace()
        self._minimum = Minimum(rows_min=options.rows_per_trigger_min, delay_max_s=options.trigger_delay_max_s)
        self.durables = Durables(options, self._api)
        self._watch = Watch(options, self._api)

    def of(self, stream: str) -> StreamPlanner:
        """Return the planner of one stream."""
        if stream not in self._planners:
            self._planners[stream] = StreamPlanner(self._options.of_stream(stream), self._connections, self.directory)
        return self._planners[stream]

    @property
    def leader(self) -> Leader:
        """The leader of the only stream."""
        return self.of(self._options.stream).leader

    def view(self) -> StreamView:
        """Return the state of the only stream."""
        return self.of(self._options.stream).view()

    def split(self, view: StreamView, start_seq: int, end_seq: int) -> list[Range]:
        """Return the partitions of a range of the only stream."""
        return self.of(self._options.stream).split(view, start_seq, end_seq)

    def names(self) -> list[str]:
        """Return the streams of the query: those of the option, and those that match its patterns now."""
        patterns = [name for name in self._options.streams if "*" in name]
        fixed = [name for name in self._options.streams if "*" not in name]
        if patterns and time.monotonic() - self._named_at_s > DISCOVERY_S:
            self.use_names(stream_names(self._api))
        return sorted({*fixed, *self._names}) if patterns else fixed

    def use_names(self, names: list[str]) -> None:
        """Take note of all names that the server has now, in ascending order, of which the patterns choose."""
        forms = [form_of(one) for one in self._options.streams if "*" in one]
        self._names = [name for name in names if any(form.fullmatch(name) for form in forms)]
        self._listing.choose(names, self._names)
        self._named_at_s = time.monotonic()

    def initial(self) -> Offsets:
        """Return where a new query starts; every call returns the same offsets."""
        names = self.names()
        views = self._listing.views(names)
        offsets = self._offsets({name: self.of(name).initial(views.get(name)) for name in names})
        self.durables.create(offsets)
        return offsets

    def batch(self, part: Narrowing | None = None) -> Batch:
        """Return what a batch read reads, of this part only if one is given."""
        part = part or Narrowing(subjects=self._options.subjects)
        names = self.names()
        views = self._listing.views(names)
        planned = {name: self.of(name).batch(part, views.get(name)) for name in names}
        first = self._offsets({name: start for name, (start, _, _) in planned.items()})
        last = self._offsets({name: end for name, (_, end, _) in planned.items()})
        return Batch(first, last, [wanted for _, _, ranges in planned.values() for wanted in ranges])

    def batch_after(self, start: dict[str, Any]) -> Batch:
        """Return what one micro-batch from `start` to the streams' ends reads, within the limits of the options."""
        first = self._parse(start)
        end, _ = self._end_after(first, None)
        return Batch(first, end, self.partitions(start, end.to_json_dict()))

    def views(self) -> Iterator[tuple[str, StreamView]]:
        """Yield the state of each stream of the query."""
        names = self.names()
        listed = self._listing.views(names)
        for name in names:
            yield name, listed.get(name) or self.of(name).leader.view()

    def stop_at_present_end(self) -> None:
        """Limit all later micro-batches to the streams' present ends."""
        self._stop_at = self._offsets({name: self.of(name).at(view, view.end_seq) for name, view in self.views()})

    def next_end(self, start: dict[str, Any], rows_max: int | None) -> Offsets:
        """Return the end of the micro-batch that begins at `start`, `start` itself when there is nothing new.

        It is below `start` only if rows that were read are lost and failOnDataLoss=false continues at the stream's end.
        Otherwise such a loss raises DataLossError.
        """
        first = self._parse(start)
        if self._watch.is_quiet(first):
            return first
        self._pace.wait()
        end, views = self._end_after(first, rows_max)
        is_idle = end.by_stream == first.by_stream
        waits = is_idle and self._minimum.waiting_since_s is None and self._stop_at is None
        waits = waits and self._watch.begin(first, views)
        self._pace.note(idle=is_idle and not waits, streams=len(views))
        return end

    def _end_after(self, first: Offsets, rows_max: int | None) -> tuple[Offsets, dict[str, StreamView]]:
        """Return the end of the micro-batch that begins at `first`, and what it is made of."""
        self.durables.check(first)
        spans = self._spans(first)
        starts = {name: begin for name, (begin, _) in spans.items()}
        ends = self._bounded_ends(spans, rows_max)
        waiting = sum(ends[name].seq - max(begin.seq, spans[name][1].first_seq) for name, begin in starts.items())
        moved = any(begin != first.by_stream.get(name, begin) for name, begin in starts.items())
        due = moved or self._stop_at is not None or self._minimum.is_due(max(0, waiting))
        return self._offsets(ends) if due else first, {name: view for name, (_, view) in spans.items()}

    def _spans(self, first: Offsets) -> dict[str, tuple[Offset, StreamView]]:
        """Return where each stream starts and its view; new streams are added, deleted ones are a loss."""
        spans = {}
        names = sorted({*first.by_stream, *self.names()}) if self._options.several else list(first.by_stream)
        views = self._listing.views(names)
        for name in names:
            try:
                spans[name] = self.of(name).span(first.by_stream.get(name), views.get(name))
            except StreamNotFoundError as error:
                if self._options.fail_on_data_loss or name in self._options.streams:
                    raise
                LOG.warning("%s; continuing without it", error)
        return spans

    def _bounded_ends(self, spans: dict[str, tuple[Offset, StreamView]], rows_max: int | None) -> dict[str, Offset]:
        """Return the end of each stream within the limits of the options, of Spark, and of trigger(availableNow)."""
        waiting: dict[str, int] = {}
        starts: dict[str, int] = {}
        for name, (begin, view) in spans.items():
            stop = self._stop_at.by_stream.get(name) if self._stop_at is not None else None
            end_seq = view.end_seq
            if self._stop_at is not None and (stop is None or stop.created == view.created):
                end_seq = min(end_seq, begin.seq if stop is None else stop.seq)
            starts[name] = max(begin.seq, view.first_seq) if end_seq > begin.seq else begin.seq
            waiting[name] = max(0, end_seq - starts[name])
        rows_max = least(rows_max, self._options.rows_per_trigger_max, self._rows_of_bytes(spans))
        given = shares(rows_max, waiting)
        return {
            name: begin
            if starts[name] + given[name] == begin.seq
            else self.of(name).end(view, starts[name], starts[name] + given[name])
            for name, (begin, view) in spans.items()
        }

    def _rows_of_bytes(self, spans: dict[str, tuple[Offset, StreamView]]) -> int | None:
        size = self._options.bytes_per_trigger_max
        return least(*(rows_of_bytes(size, view) for _, view in spans.values()))

    def latest_seen(self) -> Offsets | None:
        """Return the streams' ends as of the last requests to their leaders."""
        ends = {name: planner.latest for name, planner in self._planners.items() if planner.latest is not None}
        return self._offsets(ends) if ends else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[Range]:
        """Return the partitions of the rows between two offsets."""
        first, last = self._parse(start), self._parse(end)
        self.durables.check(first)
        views = self._listing.views(name for name, end in last.by_stream.items() if first.by_stream.get(name) != end)
        planned = [
            partition
            for name, offset in last.by_stream.items()
            for partition in self.of(name).partitions(first.by_stream.get(name), offset, views.get(name))
        ]
        for name, offset in last.by_stream.items():
            begin, latest = first.by_stream.get(name), self.of(name).latest
            begin_seq = begin.seq if begin is not None else 0
            lag = max(0, latest.seq - offset.seq) if latest is not None else 0
            LOG.info("stream %s: batch [%d, %d), then %d to its end", name, begin_seq, offset.seq, lag)
        return planned

    def commit(self, end: dict[str, Any]) -> None:
        """Take note that everything before `end` is done: durable consumers acknowledge it."""
        self.durables.acknowledge(self._parse(end))

    def close(self) -> None:
        """Close the connections."""
        self.durables.close()
        self._watch.close()
        self._connections.close()

    def _parse(self, value: dict[str, Any]) -> Offsets:
        return parse_offsets(value, stream=None if self._options.several else self._options.stream)

    def _offsets(self, by_stream: dict[str, Offset]) -> Offsets:
        return Offsets(by_stream=by_stream, several=self._options.several)


def with_decoding(options: Options) -> Options:
    """Return the options with the schema that `decode` means: that of all streams that the query reads now.

    Raises BadOptionError, StreamNotFoundError, ServersUnavailableError.
    """
    if not options.decode or options.decoding is not None:
        return options
    connections = ConnectionCache()
    try:
        planner = Planner(options, connections)
        found = {name: choose(name, view.metadata, options.decode, options.subjects) for name, view in planner.views()}
    finally:
        connections.close()
    if not found:
        raise BadOptionError(
            f"option 'decode': no stream matches {', '.join(options.streams)} yet, so none has a schema"
        )
    first, *others = found
    for other in others:
        if not found[first].is_same_type(found[other]):
            raise BadOptionError(f"option 'decode': streams {first!r} and {other!r} have different schemas")
    return attrs.evolve(options, decoding=Decoding(found[first], options.permissive))


def names_now(options: Options) -> list[str]:
    """Return the names of the streams that these options read, as the servers have them now."""
    connections = ConnectionCache()
    try:
        return Planner(options, connections).names()
    finally:
        connections.close()
