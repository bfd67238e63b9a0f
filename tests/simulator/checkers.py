"""What must hold, whatever happens: checked from outside, after every turn of a node.

Raft: one leader (and one process of it) per term; one entry per (index, term), with one predecessor; a leader has
everything that was committed in earlier terms; what is committed and applied at an index is the same everywhere; the
commit index of a process never goes back; nothing is applied beyond the own durable end.
The stream: a sequence has one message; no message is there twice; the state of all replicas is byte-equal at equal
applied index; an acknowledged message is never lost. Consumers: nothing is delivered that is not in the log before, and
nothing again after its acknowledgement.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from jetraft.cluster.state import commands
from jetraft.cluster.state.machine import StreamMachine
from jetraft.store.frames._frame import crc32c, parse_header, records
from jetraft.store.frames.format import FRAME_CRC_FROM, FRAME_HEADER_BYTES, Kind
from jetraft.store.log.file_log import FileLog
from jetraft.store.model import message
from jetraft.store.model.ids import NodeId
from jetraft.store.port import Entry, GroupLog
from tests.simulator.ages import Ages
from tests.simulator.features.feature import Feature, Stored
from tests.simulator.world import ViolationError, World

if TYPE_CHECKING:
    from tests.simulator.host import Host

CONSUMER = "C"  # of the clients; others belong to those who copy the stream
DIGEST_ENTRIES = 16  # how many entries lie between two comparisons of the replicas' state


class Checker:
    """The memory of everything that was ever seen in a run."""

    def __init__(
        self, world: World, *, ages: Ages | None = None, feature: Feature | None = None, erases: bool = False
    ) -> None:
        self._erases = erases  # content of messages is overwritten: what lasts of a frame is compared
        self._ages = ages
        self._feature = feature or Feature(world)
        self._world = world
        self._leaders: dict[int, tuple[NodeId, int]] = {}
        self._entries: dict[tuple[int, int], tuple[bytes, int]] = {}
        self._digests: dict[int, int] = {}  # by index of the last command applied
        self.committed: dict[int, tuple[int, bytes]] = {}  # by index: (term, frame)
        self._committed_in: dict[int, int] = {}  # by index: the lowest term in which a member knew it
        self.messages: dict[int, bytes] = {}  # by sequence: what was committed there
        self._bodies: set[bytes] = set()
        self.delivered: dict[int, set[int]] = {}  # by consumer sequence: the stream sequence, one for each reset
        self.acked: dict[int, int] = {}  # by stream sequence: the index of its acknowledgement
        self.ever_acked: set[int] = set()  # stream sequences, whatever was reset since
        self._damaged: set[NodeId] = set()

    def on_time_of_leader(self, *, is_known: bool) -> None:
        """A node leads; it may know no more of the time than its wall clock and the log say."""
        self._feature.on_leader(knows_time=is_known)
        if self._ages is not None:
            self._ages.on_leader(knows_time=is_known)

    # Logs.

    def watch_log(self, log: GroupLog) -> None:
        """Look at everything that is appended from now on."""
        if isinstance(log, FileLog):
            disk: Any = log.place.disk
            disk.on_append = self._on_appends
            log.__class__ = WatchedLog
            return
        append = log.append

        def checked(entries: Sequence[Entry]) -> None:
            self._on_appends(log, entries)
            append(entries)

        log.append = checked  # type: ignore[method-assign]  # the checker stands in front of this one log

    def _on_appends(self, log: GroupLog, entries: Sequence[Entry]) -> None:
        for entry in entries:
            self._on_append(log, entry, entries[0])

    def on_given_up(self, log: FileLog) -> None:
        """Damaged entries that nobody has are replaced: that must be so, and from now on they are these."""
        for first, last in log.lost:
            for index in range(max(first, log.first_index), last + 1):
                term, frame = log.term_at(index), log.repair.substitute(index)
                assert term is not None
                frame = self._lasting(frame)
                if self.committed.get(index, (term, frame)) != (term, frame):
                    raise ViolationError(f"{log.identity.node_id} gives up committed entry {index}")
                prev_term = log.term_at(index - 1)
                self._entries[index, term] = (frame, -1 if prev_term is None else prev_term)

    def on_append(self, log: Any, entry: Entry, first: Entry) -> None:
        """Log matching, for a log that calls this itself."""
        self._on_append(log, entry, first)

    def _on_append(self, log: GroupLog, entry: Entry, first: Entry) -> None:
        """Log matching: (index, term) names one entry and one predecessor."""
        prev_term = log.term_at(entry.index - 1) if entry is first else None
        if prev_term is None and entry is first:
            raise ViolationError(f"an append at {entry.index} leaves a hole")
        key = (entry.index, entry.term)
        frame = self._lasting(entry.frame)
        known = self._entries.setdefault(key, (frame, -1 if prev_term is None else prev_term))
        if known[0] != frame:
            raise ViolationError(f"log matching: two entries with index and term {key}")
        if prev_term is not None and known[1] not in {-1, prev_term}:
            raise ViolationError(f"log matching: two predecessors of {key}")

    def on_leader(self, term: int, node: NodeId, process: int, log: GroupLog) -> None:
        """Election safety and leader completeness."""
        known = self._leaders.setdefault(term, (node, process))
        if known != (node, process):
            raise ViolationError(f"two leaders in term {term}: {known} and {(node, process)}")
        first_index = log.first_index
        for index in range(first_index, max(self.committed, default=0) + 1):
            found = self.committed.get(index)
            if found is not None and self._committed_in[index] < term and log.term_at(index) != found[0]:
                raise ViolationError(f"leader {node} of term {term} lacks committed entry {index}")
        self._world.counts["leaders"] = len(self._leaders)

    def on_commit(self, node: NodeId, term: int, entry: Entry) -> None:
        """State machine safety, on what is known to be committed."""
        known = self.committed.get(entry.index)
        if known is None:
            self.committed[entry.index] = (entry.term, self._lasting(entry.frame))
            self._committed_in[entry.index] = term
            self._read(entry)
            return
        if known != (entry.term, self._lasting(entry.frame)):
            raise ViolationError(f"{node} has another entry committed at {entry.index}")
        self._committed_in[entry.index] = min(self._committed_in[entry.index], term)

    def _lasting(self, frame: bytes) -> bytes:
        """What an erasure leaves of a frame."""
        if not self._erases or parse_header(frame).kind != Kind.MESSAGES:
            return frame
        rows = [(seq, ts_ns, subject, len(hdr), len(body)) for seq, ts_ns, subject, hdr, body in records(frame)]
        return frame[FRAME_CRC_FROM:FRAME_HEADER_BYTES] + repr(rows).encode()

    # The stream and its consumers, as the log tells.

    def _read(self, entry: Entry) -> None:
        if entry.kind == Kind.MESSAGES:
            messages = [Stored(*record) for record in records(entry.frame)]
            for stored in messages:
                self._on_message(stored)
            self._feature.on_messages(messages)
        elif entry.kind == Kind.CONSUMER_OP:
            for consumer_command in commands.decode_consumer_commands(entry.frame[FRAME_HEADER_BYTES:]):
                if consumer_command.name == CONSUMER:
                    self._on_consumer(entry.index, consumer_command)
                self._feature.on_consumer(entry.index, consumer_command)
        elif entry.kind == Kind.STREAM_OP:
            command = commands.decode_stream_command(entry.frame[FRAME_HEADER_BYTES:])
            self._feature.on_stream(command)
            if self._ages is not None:
                self._ages.on_removal(command)

    def _on_message(self, stored: Stored) -> None:
        seq, payload = stored.seq, stored.payload
        if seq in self.messages:
            raise ViolationError(f"sequence {seq} is given twice: {self.messages[seq]!r} and {payload!r}")
        name = self._feature.repeats_with
        if payload in self._bodies and (not name or message.get(stored.hdr, name) is None):
            raise ViolationError(f"{payload!r} is in the log twice")
        self.messages[seq] = payload
        self._bodies.add(payload)
        if self._ages is not None:
            self._ages.on_message(seq, payload)

    def _on_consumer(self, index: int, command: commands.ConsumerCommand) -> None:
        if isinstance(command, commands.Acked):
            for seq in command.seqs:
                self.acked.setdefault(seq, index)
                self.ever_acked.add(seq)
        elif isinstance(command, commands.Delivered):
            for place, seq in enumerate(command.seqs):
                self._on_delivery(index, command.consumer_seq + place, seq)
        elif isinstance(command, commands.Redelivered):
            for place, (seq, _) in enumerate(command.counts):
                self._on_delivery(index, command.consumer_seq + place, seq)

    def _on_delivery(self, index: int, consumer_seq: int, seq: int) -> None:
        if seq in self.acked:
            raise ViolationError(f"message {seq} is delivered at {index}, it was acknowledged at {self.acked[seq]}")
        self.delivered.setdefault(consumer_seq, set()).add(seq)

    def forget_acks(self, from_seq: int) -> None:
        """The consumer is reset: everything from a sequence on is delivered again, and it is done with the rest."""
        self.ever_acked.update(range(1, from_seq))
        self.acked = {seq: index for seq, index in self.acked.items() if seq < from_seq}

    def is_delivered(self, consumer_seq: int, seq: int) -> bool:
        """Whether the log says that a message was delivered under this number."""
        return seq in self.delivered.get(consumer_seq, ())

    # Machines.

    def watch_machine(self, node: NodeId, machine: StreamMachine, log: GroupLog) -> None:
        """Look at everything that is applied from now on; compare the state every DIGEST_ENTRIES entries.

        Not of a replica that says that messages are lost to it.
        """
        apply = machine.apply
        last_index = 0  # of the last command applied in this process

        def checked(entries: Sequence[Entry]) -> list[object]:
            nonlocal last_index
            self._on_apply(node, entries, log)
            results: list[object] = []
            some: list[Entry] = []
            for entry in entries:
                if last_index and entry.index // DIGEST_ENTRIES != last_index // DIGEST_ENTRIES:
                    if some:
                        results += apply(some)
                        some = []
                    if machine.store.lost():
                        # It went on behind damaged entries that the others have trimmed (decision 30): it lacks
                        # messages that are gone there, and is equal again when it has applied what removed them.
                        self._world.counts["states not compared"] += 1
                    else:
                        self._on_digest(node, last_index, machine.snapshot())
                if entry.index <= last_index:
                    raise ViolationError(f"{node} applies {entry.index} again")
                last_index = entry.index
                some.append(entry)
            return results + apply(some)

        machine.apply = checked  # type: ignore[method-assign]  # the checker stands in front of this one machine

    def _on_apply(self, node: NodeId, entries: Sequence[Entry], log: GroupLog) -> None:
        """State machine safety, on what is applied, and rule 5."""
        for entry in entries:
            if entry.index > log.durable_index:
                raise ViolationError(f"{node} applies {entry.index}, durable is {log.durable_index}")
            known = self.committed.get(entry.index)
            if known is not None and known != (entry.term, self._lasting(entry.frame)):
                raise ViolationError(f"{node} applies another entry at {entry.index}")

    def _on_digest(self, node: NodeId, index: int, state: bytes) -> None:
        """Replicas are byte-equal at equal applied index."""
        digest = crc32c(state)
        self._world.counts["digests"] += 1
        if self._digests.setdefault(index, digest) != digest:
            raise ViolationError(f"{node} has another state than others after entry {index}")

    # Damage that a run has done on purpose.

    def damage(self, node: NodeId) -> None:
        """The node's disk was damaged: it may find its log beyond repair."""
        self._damaged.add(node)

    def is_incomplete(self, hosts: "Sequence[Host]") -> bool:
        """Whether some member lacks, or has lost, an entry that is known to be committed."""
        last_index = max(self.committed, default=0)
        return any(host.group is None or host.group.applied_index < last_index for host in hosts)

    def may_lose(self, node: NodeId) -> bool:
        """Whether the node may have lost its log, once."""
        was = node in self._damaged
        self._damaged.discard(node)
        return was


class WatchedLog(FileLog):
    """A log whose disk hears of what is appended. It has no attributes, so that a log that is open can become one."""

    __slots__ = ()

    def append(self, entries: Sequence[Entry]) -> None:
        disk: Any = self.place.disk
        disk.on_append(self, entries)
        super().append(entries)
