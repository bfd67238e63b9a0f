"""The `jetraft` command: reads flags and configuration, then runs the server until a signal stops it.

`jetraft inspect` and `jetraft verify` read a store directory instead (cli/inspect.py), `jetraft quarantine` lists and
removes what one keeps for inspection (cli/quarantine.py); `jetraft recover` makes groups available again without a
majority (cli/recover.py), `jetraft export` writes a stream to a file (cli/export.py), `jetraft backup` and `jetraft
restore` keep streams in a directory (cli/backup.py), `jetraft chain verify` recomputes the head of a chained stream
(cli/chain.py). `jetraft stream` and the other commands for running clusters are in cli/client; they need the extra
`cli`. `jetraft serve` runs the server, as flags alone do.

Exit status: 0 after a clean stop, 1 with one line on the standard error stream when the server cannot start, 2 when the
command line is wrong.
"""

import importlib
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from jetraft import __version__
from jetraft.api.config.build import build_options
from jetraft.api.config.flags import FlagError, help_text, parse_flags
from jetraft.api.config.settings import OptionsError, Settings
from jetraft.api.options.options import Options

USAGE_ERROR = 2
COMMANDS = {  # and the module whose `main` takes the name of the command, and its words
    "inspect": "jetraft.api.cli.inspect",
    "verify": "jetraft.api.cli.inspect",
    "quarantine": "jetraft.api.cli.quarantine",
    "recover": "jetraft.api.cli.recover",
    "export": "jetraft.api.cli.export",
    "backup": "jetraft.api.cli.backup",
    "restore": "jetraft.api.cli.backup",
    "chain": "jetraft.api.cli.chain",
    "account": "jetraft.api.cli.client.accounts",
    "bench": "jetraft.api.cli.client.bench",
    "completion": "jetraft.api.cli.client.completion",
    "consumer": "jetraft.api.cli.client.consumers",
    "context": "jetraft.api.cli.client.context_commands",
    "doctor": "jetraft.api.cli.client.doctor",
    "events": "jetraft.api.cli.client.accounts",
    "kv": "jetraft.api.cli.client.kv",
    "object": "jetraft.api.cli.client.objects",
    "pub": "jetraft.api.cli.client.messages",
    "reply": "jetraft.api.cli.client.messages",
    "req": "jetraft.api.cli.client.messages",
    "server": "jetraft.api.cli.client.servers",
    "stream": "jetraft.api.cli.client.copies.stream_copy",
    "sub": "jetraft.api.cli.client.messages",
    "top": "jetraft.api.cli.client.top",
    "traces": "jetraft.api.cli.client.spans.traces",
}
SERVE = "serve"  # the server's flags follow, as they do without it


def settings_of(arguments: Sequence[str]) -> Settings:
    """Return the settings of the configuration file, overridden by flags. Raises FlagError, OptionsError."""
    flags = parse_flags(arguments)
    if flags.get("test_config") and not flags.get("config_file"):
        raise FlagError("must specify [-c, --config] option to check configuration file syntax")
    if not flags.get("config_file"):
        return flags
    from jetraft.api.config.file import load_settings  # noqa: PLC0415  only servers with a file pay for its parser

    return load_settings(Path(flags["config_file"])) | flags


def run(options: Options, arguments: Sequence[str], at_ready: Callable[[], None]) -> NoReturn:
    """Run the server and end the process with its exit status. A reload reads the arguments and the file again."""
    from jetraft.api.startup.start_signals import end_at_once, hold_back  # noqa: PLC0415

    end_at_once()
    hold_back()
    from jetraft.api.startup.trio_import import import_trio  # noqa: PLC0415

    import_trio()
    from jetraft.api.config.fitting import fitted  # noqa: PLC0415  --help must not load the whole server
    from jetraft.api.server import serve  # noqa: PLC0415
    from jetraft.cluster.memory_room import keep_little, merge_at_once, process_limit_bytes  # noqa: PLC0415

    merge_at_once()
    limit_bytes = process_limit_bytes()  # looked up once: a reload must not see another
    if limit_bytes is not None:
        keep_little()
    reread = (lambda: fitted(options_of(arguments), limit_bytes)) if options.config_file else None
    status = serve(fitted(options, limit_bytes), reread, at_ready)
    sys.stderr.flush()
    os._exit(status)  # all is closed and written: taking the interpreter apart would keep the process for 20 ms more


def version_text(program: str) -> str:
    """The version, and what clients may take this for. In nats-server's place, it first says what scripts read."""
    from jetraft.store.model.versioning import SERVER_VERSION  # noqa: PLC0415

    if program == "nats-server":
        return f"nats-server: v{SERVER_VERSION}\njetraft: v{__version__}\n"
    return f"jetraft: v{__version__}\ncompatible with nats-server: v{SERVER_VERSION}\n"


def options_of(arguments: Sequence[str]) -> Options:
    """The options that the command line and its file ask for. Raises FlagError, OptionsError."""
    return build_options(settings_of(arguments))


def command(name: str, words: Sequence[str]) -> int:
    """Run one of COMMANDS; returns the exit status. Servers do not need their modules."""
    from jetraft.api.startup.start_signals import let_through  # noqa: PLC0415

    let_through()  # a terminal that is closed ends it
    try:
        run_command = importlib.import_module(COMMANDS[name]).main
    except ModuleNotFoundError as error:
        from jetraft.store.model.extras import missing_extra  # noqa: PLC0415  only a fault needs it

        extra = missing_extra(error)
        if extra is None:
            raise
        sys.stderr.write(f"jetraft {name}: {extra.advice}\n")
        return 1
    status: int = run_command(name, words)
    return status


def main(  # noqa: PLR0911  (one for each way to end)
    arguments: Sequence[str] | None = None, at_ready: Callable[[], None] = lambda: None
) -> int:
    """Run the command of the arguments, `sys.argv` by default; returns the exit status.

    `at_ready` is called when the server is ready, and again when the modules that it loads late are there.
    """
    words = sys.argv[1:] if arguments is None else arguments
    if words and words[0] in COMMANDS:
        return command(words[0], words[1:])
    if words and words[0] == SERVE:
        words = words[1:]
    try:
        settings = settings_of(words)
        if settings.get("help"):
            sys.stdout.write(help_text())
            return 0
        if settings.get("help_tls"):
            from jetraft.api.tls.usage import usage  # noqa: PLC0415

            sys.stdout.write(usage())
            return 0
        if settings.get("version"):
            sys.stdout.write(version_text(Path(sys.argv[0]).name))
            return 0
        if settings.get("signal"):
            from jetraft.api.cli.signals import send  # noqa: PLC0415

            return send(settings["signal"])
        options = build_options(settings)
    except FlagError as error:
        sys.stderr.write(f"jetraft: {error}\n")
        return USAGE_ERROR
    except OptionsError as error:
        sys.stderr.write(f"jetraft: {error}\n")
        return 1
    if settings.get("test_config"):
        sys.stderr.write(f"jetraft: configuration file {options.config_file} is valid ({options.config_digest})\n")
        return 0
    return run(options, words, at_ready)
