"""The consumers of one stream, and what a committed consumer command does to them. Part of applying; deterministic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import attrs
import msgpack

from jetraft.cluster.state import commands
from jetraft.cluster.state.consumer_configs import read_config
from jetraft.cluster.state.snapshot import encode_config
from jetraft.store.model.config import ConsumerConfig, DeliverPolicy
from jetraft.store.model.extensions import DEAD_LETTER
from jetraft.store.port import StoreCorrupt
from jetraft.store.stream._runs import Runs
from jetraft.store.stream.consumer_state import NOTHING, ConsumerState

if TYPE_CHECKING:
    from collections.abc import Callable

    from jetraft.store.stream.stream_store import StreamStore

Done = Runs
"""Stream sequences that the consumer is done with by the command and was not before."""


def _progress(state: ConsumerState, command: commands.ConsumerProgress) -> Done:
    state.progress(command.seqs, command.ts_ns)
    return NOTHING


def _drop(state: ConsumerState, command: commands.Dropped) -> Done:
    state.drop(command.seqs)
    return NOTHING


def _redeliver(state: ConsumerState, command: commands.Redelivered) -> Done:
    state.redeliver(command.counts, command.consumer_seq, command.ts_ns)
    return NOTHING


def _reset(state: ConsumerState, command: commands.ResetConsumer) -> Done:
    state.reset(command.seq)
    state.acked_ns = 0  # of what it delivers from now on
    return NOTHING


def _give_up(state: ConsumerState, command: commands.GaveUp) -> Done:
    state.give_up(command.seqs, command.ts_ns, command.cause, command.reason)
    return NOTHING


def _update(state: ConsumerState, command: commands.UpdateConsumer) -> Done:
    state.config, state.config_json = read_config(command.config, state.name), command.config
    if state.dead and DEAD_LETTER not in state.config.metadata:
        return state.forget_dead()
    return NOTHING


ACKS: Final = (commands.Acked, commands.AckedUpTo, commands.AckedLate)  # what counts as the last ack of a consumer
TRANSITIONS: Final[dict[type, Callable[[ConsumerState, Any], Done]]] = {
    commands.Delivered: lambda state, command: state.deliver(command.seqs, command.consumer_seq, command.ts_ns),
    commands.AckedLate: lambda state, command: state.ack_late(command.seqs),
    commands.Acked: lambda state, command: state.ack(command.seqs),
    commands.AckedUpTo: lambda state, command: state.ack_up_to(command.seq),
    commands.Redelivered: _redeliver,
    commands.ConsumerProgress: _progress,
    commands.Dropped: _drop,
    commands.GaveUp: _give_up,
    commands.HandedOn: lambda state, command: state.hand_on(command.letters),
    commands.ResetConsumer: _reset,
    commands.UpdateConsumer: _update,
}


@attrs.frozen(slots=True)
class Start:
    """The beginning of a consumer, judged on the state at its creation."""

    seq: int
    initial: Runs = NOTHING
    resume_seq: int = 0


def new_consumer(command: commands.CreateConsumer, store: StreamStore) -> ConsumerState:
    """The state of a consumer that is created now."""
    config = read_config(command.config, command.name)
    start = start_of(config, store)
    state = ConsumerState(
        name=command.name,
        config=config,
        created_ns=command.created_ns,
        start_seq=start.seq,
        initial=start.initial,
        resume_seq=start.resume_seq,
        config_json=command.config,
    )
    if not start.initial:  # 2 us now, instead of 0.2 s in the first checkpoint after a hundred thousand creations
        state.packed = state.pack()
    return state


def creation_of(name: str, config: ConsumerConfig, created_ns: int, store: StreamStore) -> commands.ConsumerCommand:
    """The command that creates a consumer. Raises StoreCorrupt when its start time meets a damaged message.

    Applying must not read, so where a time decides, the command has the state with which the consumer begins.
    """
    creation = commands.CreateConsumer(name, encode_config(config), created_ns)
    if config.deliver_policy is not DeliverPolicy.BY_START_TIME:
        return creation
    begun = ConsumerState(
        name=name,
        config=config,
        created_ns=created_ns,
        start_seq=store.seq_at_time(config.opt_start_time or 0),
        config_json=creation.config,
    )
    return commands.RestoreConsumer(name, creation.config, begun.pack())


def restored_consumer(command: commands.RestoreConsumer) -> ConsumerState:
    """The state of a consumer that comes out of a backup, or that its leader has worked out (`creation_of`)."""
    state = ConsumerState.from_tuple(read_config(command.config, command.name), msgpack.unpackb(command.state))
    state.packed = state.pack()
    return state


def _seq_at(store: StreamStore, ts_ns: int) -> int:
    """The first message at or after a time, which is found by reading messages.

    Leaders of this version do that before they propose, and `RestoreConsumer` has the result. In an entry of an earlier
    version damage may be met, of which the store tells: then this sequence counts until the entry is applied again.
    """
    try:
        return store.seq_at_time(ts_ns)
    except (StoreCorrupt, OSError):
        return max(store.first_seq, 1)


def start_of(config: ConsumerConfig, store: StreamStore) -> Start:
    """The deliver policy, turned into sequences. Source: consumer.go, selectStartingSeqNo."""
    match config.deliver_policy:
        case DeliverPolicy.ALL:
            return Start(max(store.first_seq, 1))
        case DeliverPolicy.NEW:
            return Start(store.last_seq + 1)
        case DeliverPolicy.BY_START_SEQUENCE:
            return Start(max(config.opt_start_seq, store.first_seq, 1))
        case DeliverPolicy.BY_START_TIME:
            return Start(_seq_at(store, config.opt_start_time or 0))
        case DeliverPolicy.LAST:
            return Start(store.last_match(store.visible(config.filters)) or store.last_seq + 1)
        case DeliverPolicy.LAST_PER_SUBJECT:
            initial = store.last_per_subject(store.visible(config.filters))
            return Start(initial.first if initial else store.last_seq + 1, initial, store.last_seq + 1)
