"""Is this node current? Pure: figures in, one verdict out, in nats-server's words for `/healthz`.

Current means: it knows a meta leader, it has applied what is committed, and its replicas run and have done the same.
A replica whose applied index does not move is not healthy even if its links are (nats-server #8519).
Source: monitor.go, healthz.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

import attrs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from jetraft.cluster.meta.assignment import StreamKey
    from jetraft.store.model.ids import GroupId, NodeId

LAG_MAX: Final = 1_000  # entries committed and not yet applied: more, and the node is catching up
LOST_RUNS_SHOWN: Final = 5
LOST_STREAMS_SHOWN: Final = 20
DISK_FULL: Final = "is out of storage: the disk is nearly full, and messages are refused until there is room"
HTTP_OK: Final = 200
HTTP_UNAVAILABLE: Final = 503


class GroupFigures(Protocol):
    """What health looks at."""

    @property
    def leader(self) -> NodeId | None:
        """The known leader."""

    @property
    def commit_index(self) -> int:
        """The highest index known to be committed."""

    @property
    def applied_index(self) -> int:
        """The highest index applied."""

    @property
    def failed(self) -> Exception | None:
        """Why the group stopped."""

    @property
    def is_starved(self) -> bool:
        """Whether its log waits until a file can be opened again."""


@attrs.frozen(kw_only=True, slots=True)
class Health:
    """The verdict: an HTTP status and, unless it is 200, the first reason found."""

    http_status: int
    reason: str = ""

    @property
    def status(self) -> str:
        """The word under `status`."""
        return "ok" if self.http_status == HTTP_OK else "unavailable"


HEALTHY: Final = Health(http_status=HTTP_OK)


def assess(  # noqa: PLR0913  (everything that a verdict is made from, by name)
    *,
    clustered: bool,
    outside: bool,
    meta: GroupFigures | None,
    failed: Mapping[StreamKey, str],
    replicas: Sequence[tuple[StreamKey, GroupFigures]],
    lost: Sequence[tuple[StreamKey, Sequence[tuple[int, int]]]] = (),
    unclaimed: Sequence[GroupId] = (),
    is_full: bool = False,
) -> Health:
    """Judge; `failed` are streams whose replica could not be started, `lost` has messages damaged on every replica.

    `unclaimed`: groups whose data is here, and of which nobody knows what stream they are, or that it was deleted.
    `is_full`: the disk has so little room that messages are refused.
    """
    reason = next(_reasons(clustered=clustered, outside=outside, meta=meta, failed=failed, replicas=replicas), None)
    if reason is None:
        reason = _damaged_messages([(key, runs) for key, runs in lost if runs])
    if reason is None and unclaimed:
        reason = (
            f"has data of {len(unclaimed)} groups that belong to no known stream: {', '.join(unclaimed)}; "
            "restore the store from a backup, or remove what `jetraft inspect` shows to be of no use"
        )
    if reason is None and is_full:
        reason = DISK_FULL
    return HEALTHY if reason is None else Health(http_status=HTTP_UNAVAILABLE, reason=f"JetStream {reason}")


def _damaged_messages(lost: Sequence[tuple[StreamKey, Sequence[tuple[int, int]]]]) -> str | None:
    """Each stream by its name: one that is not named here looks well."""
    shown = [
        f"stream '{key.account} > {key.name}' has damaged messages: "
        + ", ".join(f"{first}-{last}" for first, last in runs[:LOST_RUNS_SHOWN])
        for key, runs in lost[:LOST_STREAMS_SHOWN]
    ]
    if len(lost) > LOST_STREAMS_SHOWN:
        shown.append(f"and {len(lost) - LOST_STREAMS_SHOWN} more streams have some")
    return "; ".join(shown) or None


def _reasons(
    *,
    clustered: bool,
    outside: bool,
    meta: GroupFigures | None,
    failed: Mapping[StreamKey, str],
    replicas: Sequence[tuple[StreamKey, GroupFigures]],
) -> Iterator[str]:
    if outside:
        yield "is not a member of the meta group"
    if meta is None or (clustered and meta.leader is None and meta.failed is None):
        yield "has not established contact with a meta leader"
    elif meta.failed is not None:
        yield f"has stopped its replica of the meta group: {meta.failed}"
    elif not _is_current(meta):
        yield "is not current with the meta leader"
    for key, why in failed.items():
        yield f"stream '{key.account} > {key.name}' could not be recovered: {why}"
    for key, group in replicas:
        if trouble := _trouble_of(group):
            yield f"stream '{key.account} > {key.name}' {trouble}"


def _trouble_of(group: GroupFigures) -> str | None:
    """What keeps the replica from being current, the worst first."""
    if group.failed is not None:
        return f"has stopped: {group.failed}"
    if group.is_starved:
        return "waits until a file can be opened: Too many open files"
    if group.leader is None:
        return "has no leader"
    return None if _is_current(group) else "is not current"


def _is_current(group: GroupFigures) -> bool:
    return group.commit_index - group.applied_index <= LAG_MAX
