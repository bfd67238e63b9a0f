"""`jetraft --signal stop=/run/jetraft.pid`: nats-server's names for the signals that a running server understands."""

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
    """Send the signal named in `name=pid` or `name=pid file`; returns the exit status."""
    name, _, target = text.partition("=")
    number = SIGNALS.get(name)
    if number is None:
        sys.stderr.write(f"jetraft: unknown signal {name!r}; known: {', '.join(SIGNALS)}\n")
        return 1
    if not target:
        sys.stderr.write(f"jetraft: name the process: --signal {name}=<pid or pid file>\n")
        return 1
    try:
        pid = int(target) if target.isdigit() else int(Path(target).read_text(encoding="ascii"))
        os.kill(pid, number)
    except (OSError, ValueError) as error:
        sys.stderr.write(f"jetraft: cannot signal {target}: {error}\n")
        return 1
    return 0
