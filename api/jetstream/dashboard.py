"""JetStream of this node for the dashboard: a part of the rows of a list, made in steps (api/monitor/steps.py).

Between two steps streams come and go and leaderships move. So each replica is asked what it is where its row is made,
and a consumer is looked up again after each step. Consumers are shown by the leader of their stream, as in /jsz.
"""

from __future__ import annotations

from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import attrs

from jetraft.api.jetstream.jsz import META_NAME, plain
from jetraft.api.monitor.questions import PageError
from jetraft.api.monitor.ui.changes import Glance
from jetraft.api.monitor.ui.sorting import sorted_part
from jetraft.store.model.config import StorageType
from jetraft.store.model.gosyntax import go_quote

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from jetraft.api.monitor.questions import ListQuestion
    from jetraft.api.monitor.steps import Steps
    from jetraft.cluster.consumers.effects import CoreStatistics
    from jetraft.cluster.node import ClusterNode
    from jetraft.cluster.streams.replica.replica import StreamReplica
    from jetraft.raft.group import Group

NAMES_AT_ONCE: Final = 256  # compared in a step, some 0.3 us each
NEVER: Final = -(1 << 63)  # before the time of any delivery
SUBJECTS_SHOWN: Final = 3  # in a row: the page of a stream has them all

STREAM_ORDERS: Final[Mapping[str, Callable[[StreamReplica], Any]]] = {
    "": lambda replica: (replica.assignment.account, replica.config.name),
    "name": lambda replica: (replica.config.name, replica.assignment.account),
    "messages": lambda replica: replica.machine.store.messages,
    "bytes": lambda replica: replica.stored_bytes,
    "consumers": lambda replica: replica.consumer_count,
    "lag": lambda replica: worst_lag(replica.group),
}

CONSUMER_ORDERS: Final[Mapping[str, Callable[[int | None, CoreStatistics], int]]] = {
    "lag": lambda _, figures: figures.num_pending,
    "unacked": lambda _, figures: figures.num_ack_pending,
    "oldest": lambda since_ns, _: NEVER if since_ns is None else -since_ns,
    "redelivered": lambda _, figures: figures.num_redelivered,
    "waiting": lambda _, figures: figures.num_waiting,
}


def worst_lag(group: Group) -> int:
    """The entries that the replica lacks which lacks most, as far as this member knows."""
    own = group.commit_index - group.applied_index
    return max([own, *(lag.lag_entries for lag in group.replica_lag())])


@attrs.frozen(kw_only=True, eq=False)
class DashboardLists:
    """See JetStreamLists of api/monitor/ui/lists.py."""

    node: ClusterNode
    accounts_with_jetstream: Callable[[], Collection[str]]

    # --- streams

    def streams(self, question: ListQuestion) -> Steps[dict[str, Any]]:
        """Streams with a replica here, in the order of `sort`."""
        order = STREAM_ORDERS.get(question.sort)
        if order is None:
            raise PageError(f"invalid sorting option: {question.sort}")
        found = yield from self._found(question)
        part = yield from sorted_part(
            found, order, offset=question.first, limit=question.rows_max, descending=question.descending
        )
        rows = []
        for replica in part:
            rows.append(self._stream_row(replica))
            yield 0
        return {"total": len(found), "offset": question.first, "rows": rows}

    def _found(self, question: ListQuestion) -> Steps[list[StreamReplica]]:
        """The replicas of the streams that are asked for."""
        found, is_named = [], question.matcher()
        for number, (row, replica) in enumerate(self.node.directory.replicas()):
            if question.acc in ("", row.account) and is_named(replica.config.name, row.account):
                found.append(replica)
            if number % NAMES_AT_ONCE == 0:
                yield 0
        return found

    def _stream_row(self, replica: StreamReplica) -> dict[str, Any]:
        """A row, of what is in memory alone: the time of the first message, for one, may be read from a file."""
        figures, store, config = replica.statistics(), replica.machine.store, replica.config
        group, name_of = figures.group, self.node.view.name_of
        return {
            "account": replica.assignment.account,
            "name": config.name,
            "storage": config.storage.value,
            "subjects": list(config.subjects[:SUBJECTS_SHOWN]),
            "leader": "" if group.leader is None else name_of(group.leader),
            "leads": replica.is_leader,
            "messages": store.messages,
            "bytes": store.message_bytes_total,
            "first_seq": store.first_seq,
            "last_seq": store.last_seq,
            "num_subjects": store.num_subjects,
            "num_deleted": store.num_deleted,
            "lost": sum(high - low + 1 for low, high in store.lost()),
            "consumers": figures.consumers,
            "in_flight": figures.in_flight_messages,
            "term": group.term,
            "failed": group.failed or "",
            "why_not": figures.mandate.why_not,
            "replicas": self._replicas(replica.group),
        }

    def _replicas(self, group: Group) -> list[dict[str, Any]]:
        """The members: as the leader knows them, elsewhere as the links show them, with the own lag."""
        view, own = self.node.view, group.node_id
        lags = {lag.node: lag for lag in group.replica_lag()}
        rows = []
        for member in group.members:
            row: dict[str, Any] = {"name": view.name_of(member), "leader": member == group.leader}
            if member == own:
                row |= {"own": True, "lag": group.commit_index - group.applied_index, "current": True, "up": True}
            elif (lag := lags.get(member)) is not None:
                row |= {"lag": lag.lag_entries, "current": lag.current, "up": not lag.offline}
            else:
                row |= {"lag": None, "current": None, "up": view.is_up(member)}
            rows.append(row)
        return sorted(rows, key=lambda row: row["name"])

    def stream(self, question: ListQuestion) -> Steps[dict[str, Any]]:
        """One stream: its row, and its info with the configuration."""
        yield 0
        for row, replica in self.node.directory.replicas():
            if row.account == question.acc and replica.config.name == question.stream:
                return {"row": self._stream_row(replica), "info": replica.info().to_json_dict()}
        name = go_quote(question.stream)
        raise PageError(f"stream {name} of account {go_quote(question.acc)} has no replica on this node", status=404)

    # --- consumers

    def consumers(self, question: ListQuestion) -> Steps[dict[str, Any]]:
        """Consumers of streams that this node leads, in the order of `sort`.

        Without one: by stream, and in the order in which they were created.
        """
        if not question.sort:
            total, part = yield from self._consumers_as_created(question)
        else:
            order = CONSUMER_ORDERS.get(question.sort)
            if order is None and question.sort != "name":
                raise PageError(f"invalid sorting option: {question.sort}")
            found = yield from self._consumers_with_keys(question, order)
            ordered = yield from sorted_part(
                found, itemgetter(2), offset=question.first, limit=question.rows_max, descending=question.descending
            )
            total, part = len(found), [(replica, name) for replica, name, _ in ordered]
        rows = []
        for replica, name in part:
            if (row := consumer_row(replica, name)) is not None:
                rows.append(row)
            yield 0
        return {"total": total, "offset": question.first, "rows": rows}

    def _consumers_as_created(self, question: ListQuestion) -> Steps[tuple[int, list[tuple[StreamReplica, str]]]]:
        """How many consumers there are, and the part that is asked for."""
        total = 0
        part: list[tuple[StreamReplica, str]] = []
        first, last = question.first, question.first + question.rows_max
        for replica in self._led(question):
            if replica.is_leader:
                names = yield from self._named(replica, question)
                part += ((replica, name) for name in names[max(0, first - total) : max(0, last - total)])
                total += len(names)
            yield 0
        return total, part

    def _consumers_with_keys(
        self, question: ListQuestion, order: Callable[[int | None, CoreStatistics], int] | None
    ) -> Steps[list[tuple[StreamReplica, str, Any]]]:
        """All consumers that are asked for, each with what it is sorted by: its name without an order.

        What a consumer lacks is counted in the stream (some 10 us, more with many filters), so each takes a step.
        """
        found: list[tuple[StreamReplica, str, Any]] = []
        for replica in self._led(question):
            names = (yield from self._named(replica, question)) if replica.is_leader else ()
            for name in names:
                if order is None:
                    found.append((replica, name, name))
                elif (state := replica.machine.consumers.get(name)) is not None and replica.is_leader:
                    found.append((replica, name, order(state.lowest_pending_ns, replica.consumer_figures(state))))
                yield 0
            yield 0
        return found

    def _led(self, question: ListQuestion) -> Iterator[StreamReplica]:
        """The replicas of the streams that are asked for; which of them lead changes between steps."""
        for row, replica in self.node.directory.replicas():
            if question.acc in ("", row.account) and question.stream in ("", replica.config.name):
                yield replica

    @staticmethod
    def _named(replica: StreamReplica, question: ListQuestion) -> Steps[Sequence[str]]:
        """The consumers of a stream that are asked for; a copy, because they change between steps."""
        consumers, account, stream = replica.machine.consumers, replica.assignment.account, replica.config.name
        names, is_named = list(consumers), question.matcher()
        if is_named(account, stream) and not replica.machine.hidden_consumers:
            return names
        found = []
        for number, name in enumerate(names):
            if _is_shown(replica, name) and is_named(name, account, stream):
                found.append(name)
            if number % NAMES_AT_ONCE == 0:
                yield 0
        return found

    # --- changes

    def glances(self) -> Iterator[Glance]:
        """See Watched of api/monitor/ui/events.py. Other work may come between two of them."""
        directory, meta = self.node.directory, self.node.meta_group
        replicas = directory.replicas()
        if meta is not None:
            view = self.node.view
            yield self._glance(
                "", META_NAME, meta, tuple(view.name_of(one) for one in meta.members if not view.is_up(one))
            )
        for row, replica in replicas:
            if directory.get(row.key) is replica:
                yield self._glance(row.account, row.config.name, replica.group)

    def _glance(self, account: str, stream: str, group: Group, offline: tuple[str, ...] = ()) -> Glance:
        leader = group.leader
        return Glance(
            account=account,
            stream=stream,
            leader="" if leader is None else self.node.view.name_of(leader),
            term=group.core.term,
            offline=offline,
            failed="" if group.failed is None else str(group.failed),
        )

    # --- accounts and groups

    def accounts(self, question: ListQuestion) -> Steps[dict[str, Any]]:
        """The holdings of each account's streams here, the accounts by name."""
        sums: dict[str, dict[str, Any]] = {}
        for name in sorted(self.accounts_with_jetstream()):
            sums[name] = _nothing_of(name)
        for row, replica in self.node.directory.replicas():
            found = sums.setdefault(row.account, _nothing_of(row.account))
            found["streams"] += 1
            found["streams_led"] += replica.is_leader
            found["consumers"] += replica.consumer_count
            found["memory" if replica.config.storage is StorageType.MEMORY else "storage"] += replica.stored_bytes
            yield 0
        for name, counts in self.node.service.usages.api.items():
            if name in sums:
                sums[name] |= {"api_requests": counts.requests, "api_errors": counts.errors}
        is_named = question.matcher()
        rows = [row for row in sums.values() if is_named(row["name"])]
        return {
            "total": len(rows),
            "offset": question.first,
            "rows": rows[question.first : question.first + question.rows_max],
        }

    def groups(self, question: ListQuestion) -> Steps[dict[str, Any]]:
        """Raft groups with a member here, the meta group first."""
        total, rows, is_named = 0, [], question.matcher()
        first, last = question.first, question.first + question.rows_max
        for number, (account, stream, group) in enumerate(self._groups()):
            if is_named(account, stream, str(group.group_id)):
                if first <= total < last:
                    rows.append(self._group_row(account, stream, group))
                total += 1
            if number % NAMES_AT_ONCE == 0 or rows:
                yield 0
        return {"total": total, "offset": first, "rows": rows}

    def _groups(self) -> Iterator[tuple[str, str, Group]]:
        if self.node.meta_group is not None:
            yield "", META_NAME, self.node.meta_group
        for row, replica in self.node.directory.replicas():
            yield row.account, replica.config.name, replica.group

    def _group_row(self, account: str, stream: str, group: Group) -> dict[str, Any]:
        figures, name_of = plain(group.statistics()), self.node.view.name_of
        leader = group.leader
        return {
            **figures,
            "account": account,
            "stream": stream,
            "leader": "" if leader is None else name_of(leader),
            "members": [name_of(member) for member in group.members],
            "replicas": self._replicas(group),
        }


def _is_shown(replica: StreamReplica, name: str) -> bool:
    """Whether a consumer is still there and one of clients: others are those through which streams read streams."""
    state = replica.machine.consumers.get(name)
    return state is not None and not state.config.direct


def consumer_row(replica: StreamReplica, name: str) -> dict[str, Any] | None:
    """A consumer as its leader sees it; None when it, or the leadership, is gone."""
    state = replica.machine.consumers.get(name)
    info = replica.consumer_info(name) if replica.is_leader and state is not None else None
    if info is None or state is None:
        return None
    since_ns, config = state.lowest_pending_ns, state.config
    return {
        "account": replica.assignment.account,
        "stream": info.stream_name,
        "name": name,
        "durable": bool(config.durable_name),
        "pull": not config.deliver_subject,
        "filters": _filters(config.filter_subject, config.filter_subjects),
        "num_pending": info.num_pending,
        "num_ack_pending": info.num_ack_pending,
        "num_redelivered": info.num_redelivered,
        "num_waiting": info.num_waiting,
        "delivered": info.delivered.stream_seq,
        "ack_floor": info.ack_floor.stream_seq,
        "oldest_unacked_ns": None if since_ns is None else max(0, info.ts_ns - since_ns),
        "paused": info.paused,
        "push_bound": info.push_bound,
    }


def _filters(one: str, several: Sequence[str]) -> list[str]:
    return list(islice(several, SUBJECTS_SHOWN)) if several else [one] if one else []


def _nothing_of(name: str) -> dict[str, Any]:
    figures = ("streams", "streams_led", "consumers", "memory", "storage", "api_requests", "api_errors")
    return {"name": name, **dict.fromkeys(figures, 0)}
