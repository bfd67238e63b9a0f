"""How a command is declared: its options, the connection options that every command has, examples, and one way to end.

A command is an async function that takes the connection (or the printer, where it needs no server) and its options by
name. `--json` prints one document of a stable form; a failure is one line and an exit status (client/errors.py).
"""

import asyncio
import functools
import inspect
import os
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final

import attrs
import typer
from rich.markup import escape

from jetraft.api.cli.client.connection import connected, unconnected
from jetraft.api.cli.client.errors import FAILED_STATUS, STATUSES, CommandError, UsageError
from jetraft.api.cli.client.login import ENVIRONMENT, login_of
from jetraft.api.cli.client.output import Printer
from jetraft.api.cli.client.units import duration_ns

PANEL: Final = "Connection"
PIPE_STATUS: Final = 141  # what a shell shows for a program that SIGPIPE ended
CONNECTION_OPTIONS: Final = {  # flags, metavar and help; in the order of the help
    "server": (("--server", "-s"), "URL", "servers to connect to, comma-separated"),
    "context": (("--context",), "NAME", "context with the connection options"),
    "user": (("--user",), "NAME", "user name"),
    "password": (("--password",), "TEXT", "password; other users of this machine see it, and not the variable"),
    "creds": (("--creds",), "FILE", "credentials file"),
    "nkey": (("--nkey",), "FILE", "file with the seed of the user's NKey"),
    "token": (("--token",), "TEXT", "token; other users of this machine see it, and not the variable"),
    "tlscert": (("--tlscert",), "FILE", "certificate of this client (PEM)"),
    "tlskey": (("--tlskey",), "FILE", "private key of that certificate (PEM)"),
    "tlsca": (("--tlsca",), "FILE", "authorities that may have signed the server's certificate (PEM)"),
    "js_domain": (("--js-domain",), "NAME", "JetStream domain"),
    "timeout": (("--timeout",), "DURATION", "how long an answer may take (5s)"),
}


@attrs.frozen(kw_only=True)
class ConfigOption:
    """An option that sets a key of a configuration; keys of inner objects are joined by dots."""

    key: str
    flags: tuple[str, ...]
    convert: Callable[[str], Any] | None = None  # None: a flag with a --no- form
    help: str = ""
    metavar: str = "TEXT"
    many: bool = False  # may be repeated


@attrs.define(eq=False)
class CommandGroup:
    """Commands that share a first word."""

    name: str
    help: str
    app: Any = None

    @classmethod
    def of(cls, name: str, text: str) -> "CommandGroup":
        """A group without commands."""
        app = typer.Typer(
            name=name,
            help=text,
            add_completion=False,
            rich_markup_mode="rich",
            pretty_exceptions_enable=False,
            context_settings={"help_option_names": ["-h", "--help"]},
            epilog=escape(STATUSES),
        )
        return cls(name, text, app)

    def with_subcommands(self) -> "CommandGroup":
        """The second word is a command even where there is only one."""
        self.app.callback()(lambda: None)
        return self

    def command(
        self, name: str, *examples: str, fields: Sequence[ConfigOption] = (), connects: bool = True
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Declare a command; `examples` are what follows `jetraft`."""
        epilog = "\n\n".join([*(f"Example: {escape(f'jetraft {each}')}" for each in examples), escape(STATUSES)])

        def declare(function: Callable[..., Any]) -> Callable[..., Any]:
            run = _runner(function, fields, connects=connects)
            self.app.command(name, epilog=epilog, help=escape(inspect.getdoc(function) or ""))(run)
            return function

        return declare

    def main(self, _name: str, words: Sequence[str]) -> int:
        """Run a command; returns the exit status."""
        try:
            status = self.app(args=list(words), prog_name=f"jetraft {self.name}", standalone_mode=False)
        except CommandError as error:
            return _say(self._said(words), str(error), error.status)
        except typer.Abort:
            return _say(self._said(words), "interrupted", FAILED_STATUS)
        except BrokenPipeError:  # `| head` has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return PIPE_STATUS
        except Exception as error:
            text = getattr(error, "format_message", None)  # of typer's own errors, which have no public base class
            if text is None:
                raise
            advice = f"see `jetraft {self._said(words)} --help`"
            return _say(self._said(words), f"{text().rstrip('.')}: {advice}", UsageError.status)
        return status if isinstance(status, int) else 0

    def _said(self, words: Sequence[str]) -> str:
        known = {command.name for command in self.app.registered_commands}
        second = next((word for word in words if word in known and word != self.name), "")
        return f"{self.name} {second}".strip()


def _say(command: str, text: str, status: int) -> int:
    sys.stdout.flush()
    sys.stderr.write(f"jetraft {command}: {' '.join(text.split())}\n")
    return status


def _runner(function: Callable[..., Any], fields: Sequence[ConfigOption], *, connects: bool) -> Callable[..., Any]:
    """The function that typer calls: options in, a connection made, the command run to its end."""
    own = list(inspect.signature(function).parameters.values())[1:]
    parameters = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own if each.name != "config"]
    parameters += [_field_parameter(field) for field in fields]
    parameters += [_json_parameter(), *(_connection_parameters() if connects else ())]

    @functools.wraps(function)
    def run(**given: Any) -> Any:
        out = Printer(as_json=given.pop("as_json"))
        flags = {name: given.pop(name, None) for name in CONNECTION_OPTIONS} if connects else {}
        if fields:
            given["config"] = _config(fields, given)
        if not connects:
            return function(out, **given)
        timeout_s = duration_ns(flags.pop("timeout") or "5s") / 1e9
        login = login_of(flags)

        async def work() -> Any:
            if given.get("monitor"):  # pages over HTTP, which need no user
                return await function(unconnected(login, out, timeout_s), **given)
            async with connected(login, out, timeout_s) as connection:
                return await function(connection, **given)

        return asyncio.run(work())

    del run.__wrapped__
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


def _config(fields: Sequence[ConfigOption], given: dict[str, Any]) -> dict[str, Any]:
    """The keys that options set. Raises UsageError."""
    found: dict[str, Any] = {}
    for field in fields:
        value = given.pop(field.key.replace(".", "__"))
        if value is None or value == []:
            continue
        inner = found
        *outer, last = field.key.split(".")
        for key in outer:
            inner = inner.setdefault(key, {})
        try:
            if field.convert is None:
                inner[last] = value
            else:
                inner[last] = [field.convert(each) for each in value] if field.many else field.convert(value)
        except UsageError as error:
            raise UsageError(f"{field.flags[0]}: {error}") from None
    return found


def _field_parameter(field: ConfigOption) -> inspect.Parameter:
    name = field.key.replace(".", "__")
    if field.convert is None:
        positive = field.flags[0]
        spelled = (f"{positive}/--no-{positive[2:]}", *field.flags[1:])
        annotation: Any = Annotated[bool | None, typer.Option(*spelled, help=escape(field.help), show_default=False)]
    else:
        kind: Any = list[str] | None if field.many else str | None
        option = typer.Option(*field.flags, help=escape(field.help), metavar=field.metavar, show_default=False)
        annotation = Annotated[kind, option]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _json_parameter() -> inspect.Parameter:
    option = typer.Option("--json", "-j", help="print JSON, with the names of the API")
    return inspect.Parameter(
        "as_json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Annotated[bool, option]
    )


def _connection_parameters() -> list[inspect.Parameter]:
    found = []
    for name, (flags, metavar, text) in CONNECTION_OPTIONS.items():
        variable = f" ({ENVIRONMENT[name]})" if name in ENVIRONMENT else ""
        option = typer.Option(
            *flags, metavar=metavar, help=escape(text + variable), rich_help_panel=PANEL, show_default=False
        )
        kind = inspect.Parameter.KEYWORD_ONLY
        found.append(inspect.Parameter(name, kind, default=None, annotation=Annotated[str | None, option]))
    return found
