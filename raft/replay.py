"""A member's knowledge when it starts: its log, its checkpoint, and the configurations above it (rule 27).

The configuration is rebuilt from the log, never from what the caller believes the members are: a change that was
appended but not yet committed is in force after a restart too. The caller's list counts only for a log that is new; it
is then written down as a checkpoint of index 0, in the ledger, before any vote leaves.
"""

from collections.abc import Callable
from contextlib import suppress

import attrs

from jetraft.raft.engine.membership import (
    BadConfigurationError,
    Configuration,
    ConfigurationHistory,
    SettledUpTo,
    settled_of,
)
from jetraft.raft.machine import StateMachine
from jetraft.store.frames.format import FRAME_HEADER_BYTES, Kind
from jetraft.store.model.ids import NodeId
from jetraft.store.port import GroupLog, StoreCorrupt, StoreRefused

SCAN_BYTES = 256 << 10


@attrs.frozen(kw_only=True, slots=True)
class Replayed:
    """The beginning of a member: everything up to `applied_index` is in the machine, and committed."""

    configurations: ConfigurationHistory
    applied_index: int
    state_bytes: int
    checkpoint_term: int = 0  # of the entry at `applied_index`


def recover(
    log: GroupLog, machine: StateMachine, configuration: Configuration, pause: Callable[[], None] = lambda: None
) -> Replayed:
    """Restore the machine from the newest checkpoint and find the configuration in force.

    For a long log this is called in a thread: nothing else may use the log and the machine until it returns. `pause` is
    called between pieces, and may raise to end it.

    Raises StoreCorrupt for a log with damaged entries: who does not know what it has takes no part, in elections least
    of all (rule 39).
    """
    if log.damaged_entries:
        raise StoreCorrupt(f"entries {log.damaged_entries} are damaged, and not repaired yet")
    checkpoint = log.load_checkpoint()
    if checkpoint is None:
        assert log.boundary[0] == 0, "a trimmed log has a checkpoint"
        log.save_checkpoint(0, 0, configuration.encode(), b"")
        base, settled, applied_index, term, state_bytes = configuration, None, 0, 0, 0
    else:
        base, settled = Configuration.decode(checkpoint.members), settled_of(checkpoint.members)
        applied_index, term = checkpoint.index, checkpoint.term
        state_bytes = len(checkpoint.state)
        if applied_index:
            machine.restore(checkpoint.state)
    configurations = configurations_of(log, base, applied_index, settled, pause)
    return Replayed(
        configurations=configurations, applied_index=applied_index, state_bytes=state_bytes, checkpoint_term=term
    )


def known_members(log: GroupLog) -> frozenset[NodeId]:
    """The members by the newest configuration that can be read of a log, which may be damaged.

    Empty when none can be. Reads the log from its newest checkpoint on.
    """
    found: tuple[NodeId, ...] = ()
    after_index = 0
    # Unreadable: the entries may name the members all the same.
    with suppress(StoreCorrupt, StoreRefused, BadConfigurationError):
        checkpoint = log.load_checkpoint()
        if checkpoint is not None:
            found = Configuration.decode(checkpoint.members).members
            after_index = checkpoint.index
    # What was found before the unreadable entry counts.
    with suppress(StoreCorrupt, BadConfigurationError):
        for _, entry in log.frames(after_index + 1, log.last_index):
            if entry.kind == Kind.RAFT_CONFIG:
                found = Configuration.decode(entry.frame[FRAME_HEADER_BYTES:]).members
    return frozenset(found)


def configurations_of(
    log: GroupLog,
    base: Configuration,
    base_index: int,
    settled: SettledUpTo | None,
    pause: Callable[[], None] = lambda: None,
) -> ConfigurationHistory:
    """The configurations from a checkpoint's on to the end of the log."""
    configurations = ConfigurationHistory(base, base_index, settled=settled)
    next_index = base_index + 1
    while next_index <= log.last_index:
        pause()
        for entry in log.entries(next_index, log.last_index, SCAN_BYTES):
            if entry.kind == Kind.RAFT_CONFIG:
                configuration = Configuration.decode(entry.frame[FRAME_HEADER_BYTES:])
                configurations.append(entry.index, entry.term, configuration)
            next_index = entry.index + 1
    return configurations
