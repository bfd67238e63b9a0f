"""What a simulated host waits for before it goes on, as the owner of replicas awaits it (raft/recovery/repair.py)."""

from collections.abc import Callable
from typing import Protocol

from jetraft.store.ledger.ledger import Ledger
from jetraft.store.log.file_log import FileLog
from jetraft.store.port import GroupLog
from tests.simulator.world import MS


class Waiting(Protocol):
    """A host: its ledger, and a timer that ends with the process."""

    ledger: Ledger

    def later(self, delay_ns: int, event: Callable[[], None]) -> None:
        """Do this unless the process has ended by then."""


def when_ledger_complete(host: Waiting, finish: Callable[[], None]) -> None:
    """Finish once no failed write of the ledger may reappear after a crash."""
    if not host.ledger.is_in_doubt:
        finish()
        return
    if host.ledger.is_idle:
        host.ledger.append([], lambda _error: None)
    host.later(5 * MS, lambda: when_ledger_complete(host, finish))


def when_durable(host: Waiting, log: GroupLog, finish: Callable[[], None]) -> None:
    """Finish once all of the log is on disk; never for a failed one, which is opened again after a repair."""
    if log.failed is not None:
        return
    is_busy = isinstance(log, FileLog) and log.durability.is_busy
    if log.durable_token < log.token() or is_busy:
        log.submit()
        host.later(5 * MS, lambda: when_durable(host, log, finish))
    elif host.ledger.is_in_doubt:
        when_ledger_complete(host, lambda: when_durable(host, log, finish))
    else:
        finish()
