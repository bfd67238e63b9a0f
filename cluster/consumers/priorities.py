"""Priority groups: which of the waiting requests of a pull consumer is served next. Pure; see pull.py.

    overflow       a request with a minimum is served only while as many messages wait, or are unacknowledged
    pinned_client  one client gets everything until its pin is taken away or it asks nothing for priority_timeout
    prioritized    requests of the lowest number first, in turn within a number

A pin belongs to the term of the leader that gave it, as in nats-server: after a change of leaders the client's id is
refused with 423 and it asks again without one. A delivery that passes a request over moves it behind the others.
Source: ADR-42; consumer.go (nextWaiting, setPinnedTimer, unassignPinId), observed on 2.15.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from jetraft.cluster.consumers.effects import PinEvent
from jetraft.cluster.consumers.pending import NEVER_NS
from jetraft.store.model.config import PriorityPolicy
from jetraft.store.model.ids import ALPHABET

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from jetraft.cluster.consumers.effects import Now
    from jetraft.cluster.consumers.requests import PullRequest, Waiting, WaitingQueue
    from jetraft.store.model.config import ConsumerConfig

NOT_OVERFLOW: Final = (400, "Bad Request - Not a Overflow Priority consumer")
NOT_PINNED_CLIENT: Final = (400, "Bad Request - Not a Pinned Client Priority consumer")
GROUP_MISSING: Final = (400, "Bad Request - Priority Group missing")
GROUP_UNKNOWN: Final = (400, "Bad Request - Invalid Priority Group")
PIN_MISMATCH: Final = (423, "Nats-Pin-Id mismatch")
WRONG_PIN: Final = b"Nats-Wrong-Pin-Id"
PIN_ID_CHARS: Final = 22  # as long as nats-server's
UNPINNED_BY_ADMIN: Final = "admin"
UNPINNED_BY_TIME: Final = "timeout"


def group_refusal(config: ConsumerConfig, request: PullRequest) -> tuple[int, str] | None:
    """The status for a request that does not suit the consumer's policy, None when it does.

    A body that is not JSON names no group and is not asked for one.
    """
    policy = config.priority_policy
    if (request.min_pending or request.min_ack_pending) and policy is not PriorityPolicy.OVERFLOW:
        return NOT_OVERFLOW
    if request.pin_id and policy is not PriorityPolicy.PINNED_CLIENT:
        return NOT_PINNED_CLIENT
    if policy is PriorityPolicy.NONE or request.group is None:
        return None
    if not request.group:
        return GROUP_MISSING
    return None if request.group in config.priority_groups else GROUP_UNKNOWN


def new_pin_id(rng: Random) -> str:
    """An id for a client that is pinned now."""
    return "".join(rng.choices(ALPHABET, k=PIN_ID_CHARS))


@attrs.frozen(slots=True)
class Pin:
    """The client that is pinned, and since when (Unix time)."""

    id: str
    since_ns: int


class Pinning:
    """The pin of one consumer in this term."""

    def __init__(self, new_id: Callable[[], str]) -> None:
        self._new_id = new_id
        self.pin: Pin | None = None
        self.ends_ns = NEVER_NS  # monotonic
        self.events: list[PinEvent] = []

    @property
    def id(self) -> str:
        """The id of the pinned client, empty when there is none."""
        return "" if self.pin is None else self.pin.id

    def arrives(self, config: ConsumerConfig, request: PullRequest, now: Now) -> bool:
        """A request is here: the pinned client's keeps its pin alive. False for one with another's id."""
        if self.pin is None or not request.pin_id:
            return True
        if request.pin_id != self.pin.id:
            return False
        self._extend(config, now)
        return True

    def give(self, config: ConsumerConfig, waiting: Waiting, now: Now) -> None:
        """Pin the client of this request, which goes on as one with the new id."""
        self.pin = Pin(self._new_id(), now.unix_ns)
        waiting.pin_id = self.pin.id
        self._extend(config, now)
        self.events.append(PinEvent(group=config.priority_groups[0], pin_id=self.pin.id))

    def take(self, group: str, reason: str) -> None:
        """No client is pinned from now on. It is told even when none was, as nats-server does."""
        self.end()
        self.events.append(PinEvent(group=group, reason=reason))

    def end(self) -> None:
        """No client is pinned, and none is told."""
        self.pin, self.ends_ns = None, NEVER_NS

    def look(self, config: ConsumerConfig, now: Now) -> None:
        """The pin ends when its client has asked nothing for too long."""
        if self.ends_ns <= now.mono_ns:
            self.take(config.priority_groups[0] if config.priority_groups else "", UNPINNED_BY_TIME)

    def _extend(self, config: ConsumerConfig, now: Now) -> None:
        self.ends_ns = now.mono_ns + config.priority_timeout


class RequestChoice:
    """Chooses among requests by the policy of a consumer."""

    def __init__(self, pinning: Pinning, has_interest: Callable[[bytes], bool]) -> None:
        self._pinning = pinning
        self._has_interest = has_interest

    def next(  # noqa: PLR0913  (what a choice depends on, by name)
        self,
        config: ConsumerConfig,
        queue: WaitingQueue,
        *,
        available: int,
        unacked: int,
        refuse: Callable[[Waiting], None],
        now: Now,
    ) -> Waiting | None:
        """The request to serve, at the head of the queue; None when none of them may get a message now.

        `available` counts the messages that wait, the next one included. `refuse` tells the client of a request with an
        id that counts no more, which has left the queue.
        """
        is_pinned = config.priority_policy is PriorityPolicy.PINNED_CLIENT
        for _ in range(len(queue)):
            waiting = queue.head()
            assert waiting is not None
            if not self._has_interest(waiting.reply):
                queue.drop_head()
            elif is_pinned and waiting.pin_id and waiting.pin_id != self._pinning.id:
                refuse(queue.drop_head())
            elif (is_pinned and self._is_anothers(waiting)) or _is_below(config, waiting, available, unacked):
                queue.pass_over()
            else:
                if is_pinned and not self._pinning.id and waiting.request.group is not None:
                    self._pinning.give(config, waiting, now)
                return waiting
        return None

    def _is_anothers(self, waiting: Waiting) -> bool:
        """True when another client is pinned."""
        return bool(self._pinning.id) and waiting.pin_id != self._pinning.id


def _is_below(config: ConsumerConfig, waiting: Waiting, available: int, unacked: int) -> bool:
    """True when a request has minimums and neither is reached."""
    if config.priority_policy is not PriorityPolicy.OVERFLOW:
        return False
    request = waiting.request
    minimums = ((request.min_pending, available), (request.min_ack_pending, unacked))
    asked = [(minimum, there) for minimum, there in minimums if minimum > 0]
    return bool(asked) and all(there < minimum for minimum, there in asked)
