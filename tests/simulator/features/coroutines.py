"""The coroutines of the glue, driven by the world's events: what they wait for is the end of a proposal."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any
from unittest import mock

import attrs

from jetraft.raft.group import Group
from jetraft.raft.proposals import NotLeaderError, Outcome, OutcomeUnknownError
from jetraft.store.model.api_error import ApiError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator

    from jetraft.raft.engine.port import Proposal


@attrs.frozen
class _Settling:
    """A proposal whose end is awaited."""

    group: Group
    proposal: Proposal

    def __await__(self) -> Generator[_Settling, tuple[Outcome, object], tuple[Outcome, object]]:
        return (yield self)


async def _propose_and_wait(group: Group, proposal: Proposal) -> object:
    outcome, result = await _Settling(group, proposal)
    if outcome is Outcome.OK:
        return result
    raise (NotLeaderError if outcome is Outcome.REFUSED else OutcomeUnknownError)(group.group_id)


@contextlib.contextmanager
def proposals_of_the_world() -> Generator[None, None, None]:
    """Let coroutines wait for proposals without a scheduler."""
    with mock.patch.object(Group, "propose_and_wait", _propose_and_wait):
        yield


def drive(coroutine: Coroutine[Any, Any, Any], done: Callable[[Any], None]) -> None:
    """Run a coroutine from proposal to proposal; `done` gets what it returns, or the exception that ended it."""

    def step(value: tuple[Outcome, object] | None) -> None:
        try:
            settling = coroutine.send(value)
        except StopIteration as end:
            done(end.value)
        except (ApiError, NotLeaderError, OutcomeUnknownError) as error:
            done(error)
        else:
            settling.group.propose(settling.proposal, lambda outcome, result: step((outcome, result)))

    step(None)
