"""`jetraft --signal stop=/run/jetraft.pid`: sends a signal to a running server, with nats-server's names."""

import os
import signal
import sys
from pathlib import Path

SIGNALS = {
    "stop": signal.SIGKILL,
    "quit": signal.SIGINT,
    "term": signal.SIGTERM,
    "reopen": signal.SIGUSR1,
    "reload": signal.SIGHUP,
    "ldm": signal.SIGUSR2,
}


def send(text: str) -> int:
    """Send the signal of `name=pid` or `name=file`; returns the exit status."""
    name, _, target = text.partition("=")
    number = SIGNALS.get(name)
    if number is None:
        sys.stderr.write(f"jetraft: --signal: expected one of {', '.join(SIGNALS)}, got {name!r}\n")
        return 1
    if not target:
        sys.stderr.write(f"jetraft: --signal {name}: the process is missing, expected {name}=<pid or pid file>\n")
        return 1
    try:
        pid = int(target) if target.isdigit() else int(Path(target).read_text(encoding="ascii"))
        os.kill(pid, number)
    except (OSError, ValueError) as error:
        sys.stderr.write(f"jetraft: --signal {name}: cannot send it to {target}: {error}\n")
        return 1
    return 0
