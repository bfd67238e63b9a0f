"""`python -m jetraft` starts the server, exactly like the `jetraft` command.

Python turns SIGINT into an exception, which can be raised inside any import: it prints a traceback, is swallowed, or
breaks a compiled module that does not expect it. So the first line that runs here lets SIGINT end the process, as
SIGTERM does. SIGHUP, SIGUSR1 and SIGUSR2 would end it too, as nothing handles them yet: they are blocked, and come when
the server handles them. It uses `_signal`, because importing `signal` is slow. `api/startup/start_signals.py` sets the
later handlers.
"""

import _signal  # type: ignore[import-not-found]  # the compiled part of `signal`


def main() -> int:
    """Entry point of the console script; returns the exit status."""
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
    _signal.pthread_sigmask(_signal.SIG_BLOCK, (_signal.SIGHUP, _signal.SIGUSR1, _signal.SIGUSR2))
    from jetraft.api.startup.collector import spare_imports  # noqa: PLC0415  see the modules

    spare_imports()
    from jetraft.api.startup.module_code import ModuleCode  # noqa: PLC0415

    modules = ModuleCode.install()
    from jetraft.api.startup.class_code import ClassCode  # noqa: PLC0415

    code = ClassCode.install()
    from jetraft.api.cli.main import main as command  # noqa: PLC0415  its classes are the first that profit

    def save() -> None:
        code.save()
        modules.save()

    return command(at_ready=save)


if __name__ == "__main__":
    raise SystemExit(main())
