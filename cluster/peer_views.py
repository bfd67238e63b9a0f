"""The other members of a group as infos and advisories show them, and when a node was heard last."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jetraft.store.model.state import PeerInfo

if TYPE_CHECKING:
    from collections.abc import Callable

    from jetraft.raft.group import Group
    from jetraft.raft.group_spec import ReplicaLag
    from jetraft.store.model.ids import NodeId

    NameOf = Callable[[NodeId], str]
    LinkHeard = Callable[[NodeId], int | None]  # when the link with a node was last heard (mono); None: never


def peer_infos(group: Group, *, name_of: NameOf, link_heard_ns: LinkHeard, now_ns: int) -> tuple[PeerInfo, ...]:
    """The others as this member sees them, and which are up to date: the leader knows of all. `now_ns` is monotonic."""
    if not group.is_leader:
        return tuple(_as_followed(group, node, name_of(node), link_heard_ns(node), now_ns) for node in _others(group))
    return tuple(
        PeerInfo(
            name=name_of(lag.node),
            current=lag.current,
            offline=lag.offline,
            active_ns=silence_ns(lag, link_heard_ns(lag.node), now_ns),
            lag=lag.lag_entries,
            peer=lag.node,
        )
        for lag in group.replica_lag()
    )


def led_replicas(group: Group, *, name_of: NameOf, link_heard_ns: LinkHeard, now_ns: int) -> list[dict[str, Any]]:
    """All members as an advisory of their leader has them, the leader last."""
    others = peer_infos(group, name_of=name_of, link_heard_ns=link_heard_ns, now_ns=now_ns)
    return [*(peer.to_json_dict() for peer in others), _own(group, name_of)]


def unled_replicas(group: Group, *, name_of: NameOf, link_heard_ns: LinkHeard, now_ns: int) -> list[dict[str, Any]]:
    """The same, as told by a member that leads no more: of the others only their links are known."""
    heard = {node: link_heard_ns(node) for node in _others(group)}
    return [
        *(
            PeerInfo(
                name=name_of(node), active_ns=0 if at_ns is None else max(0, now_ns - at_ns), peer=node
            ).to_json_dict()
            for node, at_ns in heard.items()
        ),
        _own(group, name_of),
    ]


def _others(group: Group) -> list[NodeId]:
    return [node for node in group.members if node != group.node_id]


def _as_followed(group: Group, node: NodeId, name: str, heard_ns: int | None, now_ns: int) -> PeerInfo:
    """A member as one that does not lead sees it: only the leader is known to have what is committed."""
    active_ns = 0 if heard_ns is None else max(0, now_ns - heard_ns)
    is_up = node in group.core.up
    return PeerInfo(
        name=name, current=is_up and node == group.leader, offline=not is_up, active_ns=active_ns, peer=node
    )


def silence_ns(lag: ReplicaLag, heard_ns: int | None, now_ns: int) -> int:
    """How long nothing came from a member's node. A group that rests says nothing for hours; its nodes' links do."""
    return lag.active_ns if heard_ns is None else min(lag.active_ns, max(0, now_ns - heard_ns))


def _own(group: Group, name_of: NameOf) -> dict[str, Any]:
    return {"name": name_of(group.node_id), "current": True, "active": 0, "peer": group.node_id}
