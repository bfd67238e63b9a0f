"""How many connections of one address may be on their way to a login at a time; the others wait in line.

A place is taken when a connection is accepted, and free when it has logged in, needs no login, or is closed. One that
finds no place is accepted, and nothing of it is read or made until a place of its address is free: clients that come
back all at once behind one address are served as fast as they can log in, and a deadline begins with the place. Other
addresses have places of their own; the IPv6 addresses of one /64 share theirs. Waiting connections are bounded in
number and time; beyond that a connection is closed.
"""

from __future__ import annotations

import resource
from collections import deque
from typing import TYPE_CHECKING, Final

import attrs

from jetraft.api.options.interfaces import payer_of
from jetraft.api.options.options import UNAUTHENTICATED_PER_ADDRESS_MAX
from jetraft.store.model.clock import NS_PER_S
from jetraft.store.model.events import CONNECTION_REFUSED, CONNECTIONS_WAIT

if TYPE_CHECKING:
    from collections.abc import Callable

    from jetraft.store.model.clock import Clock

WAITING_MAX: Final = 16_384  # of all addresses; each is a descriptor and some hundred bytes
WAIT_NS: Final = 10 * NS_PER_S  # clients give up after 2 to 5 s
BEGUN_PER_TURN: Final = 16  # each may make the objects of a handshake, as listener.TLS_ACCEPTS_PER_WAKE


def waiting_max() -> int:
    """How many may be in line: they leave half of the descriptors of the process to others."""
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return WAITING_MAX if descriptors == resource.RLIM_INFINITY else min(WAITING_MAX, descriptors // 2)


@attrs.define(eq=False)
class ConnectionInLine:
    """One in line. `begin` or `drop` is called, once."""

    ip: str
    until_ns: int
    begin: Callable[[], None]
    drop: Callable[[], None]
    is_over: bool = False


@attrs.define(eq=False)
class ArrivalPlaces:
    """The places of all listeners for clients, WebSocket and leaf nodes. `attach` comes before the first connection."""

    clock: Clock
    per_address_max: int = UNAUTHENTICATED_PER_ADDRESS_MAX  # 0: no bound
    waited: int = 0  # connections that have been in line
    refused: int = 0  # for which there was no room in it, or that waited too long
    _inside: dict[int, str] = attrs.field(factory=dict)  # connection -> address
    _counts: dict[str, int] = attrs.field(factory=dict)  # of addresses with connections inside
    _line: deque[ConnectionInLine] = attrs.field(factory=deque)  # the oldest first; also some that are over
    _by_address: dict[str, deque[ConnectionInLine]] = attrs.field(factory=dict)
    _waiting: int = 0
    _ready: dict[str, None] = attrs.field(factory=dict)  # addresses with a free place and a line, in turn
    _later: Callable[[Callable[[], None]], None] | None = None
    _call_at: Callable[[int, Callable[[], None]], object] | None = None
    _is_called: bool = False
    _timer: object | None = None
    _waiting_max: int = attrs.field(factory=waiting_max)  # of all addresses; one may have half of it

    def attach(
        self,
        later: Callable[[Callable[[], None]], None],
        call_at: Callable[[int, Callable[[], None]], object],
    ) -> None:
        """`later` calls back in a turn that comes, `call_at` at a time."""
        self._later, self._call_at = later, call_at

    def has_place(self, ip: str) -> bool:
        """Whether a connection of this address may begin now."""
        if not self.per_address_max:
            return True
        ip = payer_of(ip)
        return self._counts.get(ip, 0) < self.per_address_max and ip not in self._by_address

    def enter(self, cid: int, ip: str) -> None:
        """A connection takes a place of this address, and leaves that of another one."""
        ip = payer_of(ip)
        if self._inside.get(cid) == ip:
            return
        self.leave(cid)
        self._inside[cid] = ip
        self._counts[ip] = self._counts.get(ip, 0) + 1

    def leave(self, cid: int) -> None:
        """It has logged in, needs no login, or is closed."""
        ip = self._inside.pop(cid, None)
        if ip is None:
            return
        count = self._counts[ip] - 1
        if count:
            self._counts[ip] = count
        else:
            del self._counts[ip]  # the table has addresses with connections only
        self._offer(ip)

    def wait(self, ip: str, begin: Callable[[], None], drop: Callable[[], None]) -> None:
        """Call `begin` in a turn in which the address has a place, or `drop`: there is no room, or it took too long."""
        ip = payer_of(ip)
        if self._waiting >= self._waiting_max or len(self._by_address.get(ip, ())) >= self._waiting_max // 2:
            self._refuse(ip, drop, "too many wait")
            return
        if ip not in self._by_address:
            CONNECTIONS_WAIT.log(address=ip, count=self.per_address_max)
        waiting = ConnectionInLine(ip, self.clock.mono_ns() + WAIT_NS, begin, drop)
        self._line.append(waiting)
        self._by_address.setdefault(ip, deque()).append(waiting)
        self._waiting += 1
        self.waited += 1
        self._set_timer()

    def follow(self, per_address_max: int) -> None:
        """Bound to another number from now on; those inside stay."""
        self.per_address_max = per_address_max
        for ip in list(self._by_address):
            self._offer(ip)

    def _offer(self, ip: str) -> None:
        """Let the next in line begin where there is one, in a turn that comes: this may be the end of another."""
        if ip in self._by_address:
            self._ready[ip] = None
            self._call()

    def _call(self) -> None:
        if not self._is_called and self._later is not None:
            self._is_called = True
            self._later(self._begin_some)

    def _begin_some(self) -> None:
        """Addresses take turns."""
        self._is_called = False
        for _ in range(BEGUN_PER_TURN):
            if not self._ready:
                return
            ip = next(iter(self._ready))
            del self._ready[ip]
            line = self._by_address.get(ip)
            if line is None or (self.per_address_max and self._counts.get(ip, 0) >= self.per_address_max):
                continue
            self._take(line).begin()
            self._offer(ip)
        if self._ready:
            self._call()

    def _take(self, line: deque[ConnectionInLine]) -> ConnectionInLine:
        """The first of an address."""
        waiting = line.popleft()
        waiting.is_over = True
        self._waiting -= 1
        if not line:
            del self._by_address[waiting.ip]
        while self._line and self._line[0].is_over:
            self._line.popleft()
        return waiting

    def _set_timer(self) -> None:
        if self._timer is None and self._line and self._call_at is not None:
            self._timer = self._call_at(self._line[0].until_ns, self._expire)

    def _expire(self) -> None:
        self._timer = None
        now_ns = self.clock.mono_ns()
        while self._line and self._line[0].until_ns <= now_ns:
            waiting = self._line[0]  # the oldest of all is the oldest of its address
            self._take(self._by_address[waiting.ip])
            self._refuse(waiting.ip, waiting.drop, "it has waited too long for others of its address to log in")
        self._set_timer()

    def _refuse(self, ip: str, drop: Callable[[], None], why: str) -> None:
        self.refused += 1
        CONNECTION_REFUSED.log(client=ip, reason=f"connection closed: {why}")
        drop()

    def statistics(self) -> dict[str, int]:
        """Connections that are not logged in, of how many addresses, and how it went for those in line."""
        return {
            "unauthenticated": len(self._inside),
            "addresses": len(self._counts),
            "waiting": self._waiting,
            "waited": self.waited,
            "refused": self.refused,
        }
