"""Creating, changing, deleting and showing the consumers of a stream: validates on the leader, proposes, waits.

A decision of apply stays decided: two creations of one name that cross each other both find the consumer that the
first entry made, and the second is answered from that.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Final

import attrs
import trio

from jetraft.cluster.consumers.account_bounds import server_limits_of, within
from jetraft.cluster.consumers.consumer_infos import info_of
from jetraft.cluster.consumers.pull import PullConsumer
from jetraft.cluster.state import commands
from jetraft.cluster.state.consumer_deletion import deletion_of_consumer
from jetraft.cluster.state.consumer_transitions import creation_of
from jetraft.cluster.state.snapshot import encode_config
from jetraft.raft.engine.port import Proposal
from jetraft.store.frames.format import Kind
from jetraft.store.model import errors, gotime
from jetraft.store.model.config import DeliverPolicy, RetentionPolicy
from jetraft.store.model.events import CONSUMER_CHANGED, CONSUMER_CREATED, EventKind
from jetraft.store.model.extensions import check_consumer_extensions, check_extensions_update
from jetraft.store.model.ids import ALPHABET
from jetraft.store.model.tiers import limits_for
from jetraft.store.model.validation.sourcing import asks_to_read, is_upgraded, upgraded
from jetraft.store.model.validation.validate_consumer import (
    check_consumer_action,
    check_consumer_fits,
    normalise_consumer,
    with_kept_threshold,
)
from jetraft.store.model.versioning import stored_consumer
from jetraft.store.port import StoreCorrupt

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jetraft.cluster.consumers.dispatcher import ConsumerDispatcher
    from jetraft.cluster.consumers.effects import CoreStatistics
    from jetraft.cluster.site import Site
    from jetraft.cluster.state.machine import StreamMachine
    from jetraft.raft.group import Group
    from jetraft.store.model.config import ConsumerAction, ConsumerConfig, StreamConfig
    from jetraft.store.model.state import AccountLimits, ClusterInfo, ConsumerInfo
    from jetraft.store.stream.consumer_state import ConsumerState
    from jetraft.store.stream.stream_store import StreamStore

NAME_CHARS: Final = 8  # of the name that an unnamed consumer gets, as in nats-server


@attrs.frozen(slots=True)
class ConsumerCreated:
    """The outcome of a create request."""

    name: str
    begins: bool = attrs.field(kw_only=True)  # it is new, or begins again: the answer tells where it starts
    change: EventKind | None = attrs.field(default=None, kw_only=True)  # None: it was there, with this configuration


class _Configs(Mapping[str, "ConsumerConfig"]):
    """The configurations of all consumers, without a copy: most questions are about their number."""

    def __init__(self, states: Mapping[str, ConsumerState]) -> None:
        self._states = states

    def __getitem__(self, name: str) -> ConsumerConfig:
        return self._states[name].config

    def __iter__(self) -> Iterator[str]:
        return iter(self._states)

    def __len__(self) -> int:
        return len(self._states)


class ConsumerFrontend:
    """Requests of the API about consumers, on the stream's leader."""

    def __init__(self, site: Site, group: Group, machine: StreamMachine, dispatcher: ConsumerDispatcher) -> None:
        self._site = site
        self._group = group
        self._machine = machine
        self._dispatcher = dispatcher
        self._alone = trio.Lock()  # held by a creation whose outcome the next one depends on

    async def create(self, config: ConsumerConfig, *, action: ConsumerAction, pedantic: bool) -> ConsumerCreated:
        """Create or update a consumer; committed when this returns. Raises ApiError."""
        stream = self._machine.config
        assert stream is not None
        bounded = within(stream, self._limits_for(config, stream), self._site.server_limits)
        async with self._alone if _is_exclusive(bounded) else nullcontext():
            created = await self._create(config, action=action, pedantic=pedantic)
        state = self._machine.consumers.get(created.name)
        until_ns = None if state is None else state.config.pause_until
        if until_ns is not None and until_ns > self._site.clock.unix_ns():  # as nats-server, after updates too
            self._site.advisories.paused(self._dispatcher.stream, created.name, until_ns, is_paused=True)
        return created

    async def _create(self, config: ConsumerConfig, *, action: ConsumerAction, pedantic: bool) -> ConsumerCreated:
        stream = self._machine.config
        assert stream is not None
        if asks_to_read(config) and not is_upgraded(config, stream):
            config = attrs.evolve(config, name=f"{config.name}-{self._new_name()}")
        kept = self._machine.consumers.get(config.durable_name or config.name)
        if is_upgraded(config, stream):
            config, begins_again = upgraded(config, None if kept is None else kept.config), kept is not None
        else:
            begins_again = False
        if kept is not None:
            config = attrs.evolve(config, pause_until=kept.config.pause_until)  # only PAUSE changes it
        of_account = self._limits_for(config, stream)
        stream = within(stream, of_account, self._site.server_limits)
        limits = server_limits_of(of_account, self._site.server_limits)
        name = config.durable_name or config.name or self._new_name()
        existing = self._machine.consumers.get(name)
        config = normalise_consumer(config, stream, pedantic=pedantic, limits=limits, is_new=existing is None)
        check_consumer_extensions(config, stream)
        check_consumer_action(existing.config if existing else None, config, action)
        if existing is not None:
            config = with_kept_threshold(config, existing.config)
            check_extensions_update(existing.config, config)
        check_consumer_fits(
            name, config, stream, _Configs(self._machine.consumers), filters=self._machine.consumer_filters
        )
        if existing is None:
            command = self._creation_of(name, config)
        elif existing.config == config and not begins_again:
            return ConsumerCreated(name, begins=False)
        else:
            self._check_not_in_use(existing.config, config)
            command = commands.UpdateConsumer(name, encode_config(config))
        if begins_again:
            begins = await self._reset(name, 0, command) is not None
            return ConsumerCreated(name, begins=begins, change=CONSUMER_CHANGED)
        is_new = await self._propose(command) and existing is None
        return ConsumerCreated(name, begins=is_new, change=CONSUMER_CREATED if is_new else CONSUMER_CHANGED)

    def _creation_of(self, name: str, config: ConsumerConfig) -> commands.ConsumerCommand:
        try:
            return creation_of(name, config, self._site.clock.unix_ns(), self._machine.store)
        except StoreCorrupt as error:  # of a message that its start time has to be compared with
            raise errors.STREAM_GENERAL_ERROR.with_values(err=str(error)) from error

    async def pause(self, name: str, until_ns: int | None) -> int | None:
        """Deliver nothing until then (Unix time; None or past: go on at once). Committed when this returns.

        Returns how long that is in nanoseconds, 0 or less when the consumer is not paused; None when there is none.
        """
        state = self._machine.consumers.get(name)
        if state is None:
            return None
        if until_ns is not None and until_ns <= gotime.ZERO_TIME_NS:
            until_ns = None
        is_other = until_ns != state.config.pause_until
        config = stored_consumer(attrs.evolve(state.config, pause_until=until_ns))
        if not await self._propose(commands.UpdateConsumer(name, encode_config(config))):
            return None  # deleted meanwhile
        left_ns = 0 if until_ns is None else gotime.until_ns(until_ns, self._site.clock.unix_ns())
        if is_other:
            self._site.advisories.paused(self._dispatcher.stream, name, until_ns, is_paused=left_ns > 0)
        return left_ns

    async def reset(self, name: str, seq: int, cluster: ClusterInfo) -> tuple[ConsumerInfo, int] | None:
        """Deliver again from a stream sequence, 0: from the one after the ack floor. Committed when this returns.

        Returns the consumer as it was before it delivered again, and the sequence; None without such a one. Raises
        ApiError 10204 for a sequence that the start policy does not allow. Nothing is delivered or acknowledged
        meanwhile: the log would have it behind the reset.
        Source: consumer.go, resetStartingSeq.
        """
        state = self._machine.consumers.get(name)
        if state is not None and seq:
            check_reset(state.config, seq, self._machine.store)
        found = await self._reset(name, seq)
        info = None if found is None else self.info(name, cluster, initial=True)
        return None if found is None or info is None else (info, found)

    async def _reset(self, name: str, seq: int, *before: commands.ConsumerCommand) -> int | None:
        """Reset a consumer, in one entry with what goes before; the sequence, or None without such a one."""
        runner = self._dispatcher.runner(name)
        if runner is None:
            return None
        seq = seq or runner.core.statistics().ack_floor[1] + 1
        self._dispatcher.propose_noted()
        runner.hold()
        try:
            is_done = await self._propose(*before, commands.ResetConsumer(name, seq))
        finally:
            runner.release()
        return seq if is_done else None

    def unpin(self, name: str, group: str) -> bool:
        """Take the pin of a priority group from its client; False without such a consumer. Raises ApiError 10160."""
        runner = self._dispatcher.runner(name)
        if runner is None:
            return False
        if group not in runner.core.config.priority_groups:
            raise errors.CONSUMER_INVALID_PRIORITY_GROUP.with_values()
        assert isinstance(runner.core, PullConsumer)  # others have no groups
        runner.core.unpin(group)
        runner.step(self._dispatcher.now())
        return True

    async def delete(self, name: str) -> bool:
        """Delete a consumer; False when there is none. Committed when this returns."""
        if name not in self._machine.consumers:
            return False
        return await self._propose(*deletion_of_consumer(self._machine, name))

    async def settle(self) -> None:
        """Return when the replicated state has everything that was delivered and acknowledged before the call."""
        self._dispatcher.propose_noted()
        barrier = Proposal(kind=Kind.CONSUMER_OP, body=commands.encode_consumer_commands([]))
        await self._group.propose_and_wait(barrier)

    def info(self, name: str, cluster: ClusterInfo, *, initial: bool = False) -> ConsumerInfo | None:
        """The consumer as its leader sees it, None when there is none.

        `initial` shows it as it was before its first delivery: clients that replay a stream (key-value watchers) learn
        from the answer to a creation how many messages are to come.
        """
        state = self._machine.consumers.get(name)
        if state is None:
            return None
        figures, config = self._dispatcher.figures(state, initial=initial), state.config
        is_bound = bool(config.deliver_subject) and self._is_bound(config)
        now_ns = self._site.clock.unix_ns()
        return info_of(self._dispatcher.stream, state, figures, cluster, now_ns, is_bound=is_bound)

    def figures(self, state: ConsumerState) -> CoreStatistics:
        """The figures of a consumer, as its info has them."""
        return self._dispatcher.figures(state, initial=False)

    def _check_not_in_use(self, old: ConsumerConfig, new: ConsumerConfig) -> None:
        """A push consumer with a listener keeps its deliver subject."""
        if old.deliver_subject != new.deliver_subject and self._is_bound(old):
            raise errors.CONSUMER_NAME_EXISTS.with_values()

    def _is_bound(self, config: ConsumerConfig) -> bool:
        return self._site.outbox.has_interest(config.deliver_subject.encode(), config.deliver_group.encode())

    async def _propose(self, *batch: commands.ConsumerCommand) -> bool:
        self._dispatcher.propose_noted()
        proposal = Proposal(kind=Kind.CONSUMER_OP, body=commands.encode_consumer_commands(batch))
        results = await self._group.propose_and_wait(proposal)
        assert isinstance(results, list)
        return all(results)

    def _limits_for(self, config: ConsumerConfig, stream: StreamConfig) -> AccountLimits:
        """The account's limits in the tier of the consumer. Raises ApiError when it has no such tier."""
        return limits_for(self._site.limits(), config.num_replicas or stream.num_replicas)

    def _new_name(self) -> str:
        while True:
            name = "".join(self._site.rng.choice(ALPHABET) for _ in range(NAME_CHARS))
            if name not in self._machine.consumers:
                return name


def check_reset(config: ConsumerConfig, seq: int, store: StreamStore) -> None:
    """Check that a consumer with this start policy may be reset to a sequence. Raises ApiError."""
    match config.deliver_policy:
        case DeliverPolicy.ALL:
            return
        case DeliverPolicy.BY_START_SEQUENCE:
            if seq < config.opt_start_seq:
                raise errors.CONSUMER_INVALID_RESET.with_values(err="below start seq")
        case DeliverPolicy.BY_START_TIME:
            if seq < store.seq_at_time(config.opt_start_time or 0):
                raise errors.CONSUMER_INVALID_RESET.with_values(err="below start time")
        case _:
            raise errors.CONSUMER_INVALID_RESET.with_values(err="not allowed")


def _is_exclusive(stream: StreamConfig) -> bool:
    """True when a consumer may keep another one from being created."""
    return stream.retention is RetentionPolicy.WORK_QUEUE or stream.max_consumers > 0
