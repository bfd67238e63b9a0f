"""Requests that wait to be answered: a bounded number for each account, taken from the accounts in turn. Pure."""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final

import attrs

WAITING_MAX: Final = 1024  # of the system account
ACCOUNT_WAITING_MAX: Final = 64  # of each other one
REFUSALS_MAX: Final = 512  # that are answered, of an account in a turn: each takes some 20 us, a receive brings 10,000


@attrs.frozen(kw_only=True, slots=True)
class SystemRequest:
    """One request. `account` is the one that asks, `subject` what it asked, `client` its id if it is on this node."""

    account: str
    subject: str
    reply: bytes
    payload: bytes
    client: int


@attrs.define(kw_only=True, eq=False)
class RequestLines:
    """The requests of all accounts."""

    system: str
    lines: dict[str, deque[SystemRequest]] = attrs.field(factory=dict)

    def offer(self, asked: SystemRequest) -> bool:
        """Let a request wait; False when its account has as many as it may."""
        line = self.lines.setdefault(asked.account, deque())
        if len(line) >= (WAITING_MAX if asked.account == self.system else ACCOUNT_WAITING_MAX):
            return False
        line.append(asked)
        return True

    def sorted_out(self, asked: Iterable[SystemRequest]) -> Iterator[tuple[SystemRequest, bool]]:
        """Those of an account that came in a turn, each with whether it waits now; not all of too many are refused."""
        refused = 0
        for request in asked:
            waits = self.offer(request)
            yield request, waits
            refused += not waits
            if refused >= REFUSALS_MAX:  # nothing leaves the line within the turn: the rest would be refused as well
                return

    def take(self) -> SystemRequest | None:
        """The next request: the oldest of the account whose turn it is."""
        for account in list(self.lines):
            line = self.lines.pop(account)
            if line:
                asked = line.popleft()
                if line:
                    self.lines[account] = line  # behind the others
                return asked
        return None

    @property
    def count(self) -> int:
        """How many wait."""
        return sum(len(line) for line in self.lines.values())
