"""`python -m jetraft` starts the server, exactly like the `jetraft` command.

Signals come before imports. Python makes SIGINT an exception that can appear inside any import: a traceback, or nothing
where it is swallowed, or worse inside a compiled module that does not expect it. So it gets its usual meaning, as
SIGTERM has it, by the first line that is run here: the process ends. `signal` itself would be the first of the slow
imports. `api/cli/start_signals.py` goes on from there.
"""

import _signal  # type: ignore[import-not-found]  # what `signal` is made of


def main() -> int:
    """Entry point of the console script; returns the exit status."""
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
    from jetraft.api.cli.main import main as command  # noqa: PLC0415  see the module

    return command()


if __name__ == "__main__":
    raise SystemExit(main())
