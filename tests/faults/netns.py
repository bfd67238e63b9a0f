"""A small network that exists only inside namespaces: nodes and clients around one router, and cuts between them.

Every node has a namespace with an address of its own (10.231.<number>.2), the clients share one, and a router namespace
joins them. A cut is a `blackhole` rule in the router: packets from one address to another vanish without a word, one
way if asked, as on a broken network, while both ends keep their links and their connections. Needs root and iproute2,
no packet filter. Names start with jrf<pid>-, so that nothing else is touched and what a killed run left is found again.
"""

import contextlib
import ctypes
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

PREFIX = "jrf"
CLIENT = 0  # the clients' place in the address plan; nodes count from 1
_CLONE_NEWNET = 0x40000000
_OWN_NAMESPACE = Path("/proc/self/ns/net")
_NAMED_NAMESPACES = Path("/var/run/netns")


def missing() -> str | None:
    """What this machine lacks, in one line; None when a small network could be made, cut and healed.

    A container may grant namespaces and refuse what goes into them. The calling thread is in another one meanwhile.
    """
    if os.geteuid() != 0:
        return "fault tests need root (network namespaces); run them as root or in a privileged container"
    if shutil.which("ip") is None:
        return "fault tests need the ip command (Debian: apt-get install iproute2)"
    try:
        with Network(1) as network:
            network.cut(both_ways([CLIENT], [1]))
            network.heal()
            ip("netns", "exec", network.namespace(1), "true")
    except subprocess.CalledProcessError as error:
        why = (error.stderr or "").strip()
        return f"fault tests need network namespaces, and this machine refuses {' '.join(error.cmd)}: {why}"
    except OSError as error:
        return f"fault tests need network namespaces, and this machine refuses: {error}"
    return None


def ip(*words: str, inside: str | None = None) -> str:
    """Run the ip command, inside a namespace if one is named, and return what it prints."""
    where = ["-n", inside] if inside else []
    return subprocess.run(["ip", *where, *words], check=True, capture_output=True, text=True).stdout


def address(place: int) -> str:
    """The address of a node, or of the clients."""
    return f"10.231.{place}.2"


class Network:
    """`with Network(3) as network:` makes the namespaces; this process talks from the clients' one until the end."""

    def __init__(self, nodes: int) -> None:
        self.places = range(nodes + 1)
        self._name = f"{PREFIX}{os.getpid()}"
        self._router = f"{self._name}-router"
        self._cuts: set[tuple[int, int]] = set()
        self._outside: int | None = None

    def namespace(self, place: int) -> str:
        """The name of a node's namespace, or of the clients'."""
        return f"{self._name}-c" if place == CLIENT else f"{self._name}-n{place}"

    def __enter__(self) -> Self:
        sweep()
        try:
            self._build()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._remove()

    def _build(self) -> None:
        for name in (self._router, *map(self.namespace, self.places)):
            ip("netns", "add", name)
            ip("link", "set", "lo", "up", inside=name)
        ip("netns", "exec", self._router, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
        for place in self.places:
            name, port, gateway = self.namespace(place), f"p{place}", f"10.231.{place}.1"
            ip("link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", name, inside=self._router)
            ip("addr", "add", f"{gateway}/24", "dev", port, inside=self._router)
            ip("link", "set", port, "up", inside=self._router)
            ip("addr", "add", f"{address(place)}/24", "dev", "eth0", inside=name)
            ip("link", "set", "eth0", "up", inside=name)
            ip("route", "add", "default", "via", gateway, inside=name)
        self._outside = os.open(_OWN_NAMESPACE, os.O_RDONLY)
        clients = os.open(_NAMED_NAMESPACES / self.namespace(CLIENT), os.O_RDONLY)
        _enter(clients)
        os.close(clients)

    def _remove(self) -> None:
        if self._outside is not None:
            _enter(self._outside)
            os.close(self._outside)
            self._outside = None
        _delete(name for name in (self._router, *map(self.namespace, self.places)) if name in _existing())

    # --- cuts -----------------------------------------------------------------------------------------------------
    def cut(self, pairs: Iterable[tuple[int, int]]) -> None:
        """Lose every packet from the first to the second of each pair; the other direction is not touched."""
        for source, target in sorted(set(pairs) - self._cuts):
            ip("rule", "add", *_words(source, target), inside=self._router)
            self._cuts.add((source, target))

    def heal(self, pairs: Iterable[tuple[int, int]] | None = None) -> None:
        """Take back these cuts, or all of them."""
        for source, target in sorted(self._cuts.intersection(self._cuts if pairs is None else pairs)):
            ip("rule", "del", *_words(source, target), inside=self._router)
            self._cuts.discard((source, target))


def both_ways(some: Iterable[int], others: Iterable[int]) -> list[tuple[int, int]]:
    """Every pair between two sides, in both directions."""
    others = list(others)
    return [pair for one in some for other in others if one != other for pair in ((one, other), (other, one))]


def sweep() -> None:
    """Remove what a run left that was killed before it could clean up: its servers and its namespaces."""
    left = [name for name in _existing() if (owner := _owner(name)) and not Path(f"/proc/{owner}").exists()]
    for name in left:
        for pid in ip("netns", "pids", name).split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
    _delete(left)


def _owner(name: str) -> str | None:
    match = re.fullmatch(rf"{PREFIX}(\d+)-(router|c|n\d+)", name)
    return match.group(1) if match else None


def _existing() -> list[str]:
    return [line.split()[0] for line in ip("netns", "list").splitlines() if line.strip()]


def _delete(names: Iterable[str]) -> None:
    for name in names:
        with contextlib.suppress(subprocess.CalledProcessError):
            ip("netns", "del", name)


def _words(source: int, target: int) -> tuple[str, ...]:
    return ("from", address(source), "to", address(target), "blackhole")


def _enter(descriptor: int) -> None:
    """Move this thread, and those it starts from now on, to another network namespace."""
    libc = ctypes.CDLL(None, use_errno=True)
    deadline = time.monotonic() + 1
    while libc.setns(descriptor, _CLONE_NEWNET) != 0:
        error = ctypes.get_errno()
        if error != 4 or time.monotonic() > deadline:  # EINTR
            raise OSError(error, os.strerror(error))
