"""The next step from a group's members as they are to those that should be. Pure.

One change at a time, each safe by itself, so it does not matter who takes the next one: a new leader, of the stream or
of the cluster, looks at what is and goes on (rules 29, 31 and 32).
- A new member is a learner first, and votes when it has caught up; one that does not answer holds up no other.
- Members that should go, go when all that should come have come. Those that are away go first, the leader last: it
  hands leadership over, and its successor removes it.
- Nothing is removed when those that remain have no majority in contact.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from collections.abc import Iterable
    from collections.abc import Set as AbstractSet

    from jetraft.raft.engine.membership import Configuration
    from jetraft.store.model.ids import NodeId


@attrs.frozen(slots=True)
class MembershipChange:
    """Members to be: another configuration, one voter or learner away from the present one."""

    voters: tuple[NodeId, ...]
    learners: tuple[NodeId, ...]


@attrs.frozen(slots=True)
class HandOver:
    """Another member has to lead before the change can go on."""

    to: NodeId


@attrs.frozen(slots=True)
class Wait:
    """A member has to catch up, or to come back."""


@attrs.frozen(slots=True)
class Settled:
    """The members are those that should be."""


Step = MembershipChange | HandOver | Wait | Settled


@attrs.frozen(kw_only=True, slots=True)
class Contact:
    """The leader's knowledge of the others: who answers, and who of those has nearly everything."""

    online: AbstractSet[NodeId]
    current: AbstractSet[NodeId]


def next_step(node_id: NodeId, wanted: Iterable[NodeId], now: Configuration, contact: Contact) -> Step:
    """Return what the leader `node_id` has to do next."""
    targets = set(wanted)
    voters, learners = set(now.voters), set(now.learners)
    assert node_id in voters, "a leader votes"
    for learner in now.learners:
        if learner not in targets:
            return _change(voters, learners - {learner})
    coming = [learner for learner in now.learners if learner in contact.current]
    if coming:
        return _change(voters | {coming[0]}, learners - {coming[0]})
    missing = sorted(targets - voters - learners)
    if missing and not learners & contact.online:
        return _change(voters, learners | {missing[0]})
    if missing or learners:
        return Wait()
    return _shrink(node_id, targets, now, contact)


def _shrink(node_id: NodeId, targets: set[NodeId], now: Configuration, contact: Contact) -> Step:
    voters = set(now.voters)
    surplus = voters - targets
    if not surplus:
        return Settled()
    others = sorted(surplus - {node_id}, key=lambda node: (node in contact.online, node))
    if not others:
        candidates = sorted(targets & contact.current)
        return HandOver(candidates[0]) if candidates else Wait()
    remaining = voters - {others[0]}
    in_contact = remaining & {node_id, *contact.online}
    return _change(remaining, set()) if 2 * len(in_contact) > len(remaining) else Wait()


def _change(voters: AbstractSet[NodeId], learners: AbstractSet[NodeId]) -> MembershipChange:
    return MembershipChange(tuple(sorted(voters)), tuple(sorted(learners)))
