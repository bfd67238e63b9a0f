"""`jetraft context`: saves, lists and selects named connection options."""

import sys
from typing import Annotated, Any, Final

import typer

from jetraft.api.cli.client import contexts
from jetraft.api.cli.client.contexts import without_secrets
from jetraft.api.cli.client.errors import CommandError
from jetraft.api.cli.client.frame import CommandGroup, ConfigOption
from jetraft.api.cli.client.output import Printer, confirm

GROUP: Final = CommandGroup.of("context", "Named connection options; those of the nats command line are read too.")
main: Final = GROUP.main
Name = Annotated[str, typer.Argument(metavar="NAME", help="name of the context")]
SAVED: Final = (
    *(
        ConfigOption(key=contexts.FIELDS[name], flags=flags, convert=str, metavar=metavar, help=text)
        for name, flags, metavar, text in (
            ("server", ("--server", "-s"), "URL", "servers to connect to, comma-separated"),
            ("user", ("--user",), "NAME", "user name"),
            ("password", ("--password",), "TEXT", "password; - reads a line of the standard input"),
            ("token", ("--token",), "TEXT", "token; - reads a line of the standard input"),
            ("creds", ("--creds",), "FILE", "credentials file"),
            ("nkey", ("--nkey",), "FILE", "file with the seed of the user's NKey"),
            ("tlscert", ("--tlscert",), "FILE", "certificate of this client (PEM)"),
            ("tlskey", ("--tlskey",), "FILE", "private key of that certificate (PEM)"),
            ("tlsca", ("--tlsca",), "FILE", "authorities that may have signed the server's certificate (PEM)"),
            ("js_domain", ("--js-domain",), "NAME", "JetStream domain"),
            ("inbox_prefix", ("--inbox-prefix",), "SUBJECT", "what inboxes begin with"),
        )
    ),
    ConfigOption(key="description", flags=("--description",), convert=str, help="text for people"),
)


@GROUP.command("ls", "context ls", connects=False)
def ls(out: Printer) -> None:
    """List the contexts; * marks the one that is used when the command line names none."""
    chosen = contexts.selected()
    found = contexts.every()
    out.table(
        ("", "name", "server", "description", "of"),
        (
            (
                "*" if each.name == chosen else "",
                each.name,
                without_secrets(str(each.options.get("server", ""))) if each.options.get("server") else "",
                each.values.get("description", ""),
                each.origin,
            )
            for each in found
        ),
        [{"name": each.name, "selected": each.name == chosen, "of": each.origin} | each.shown_safely for each in found],
        empty="no context: `jetraft context save NAME --server URL` makes one",
    )


@GROUP.command("save", "context save prod --server nats://n1:4222 --creds prod.creds", fields=SAVED, connects=False)
def save(
    out: Printer,
    name: Name,
    select: Annotated[bool, typer.Option("--select", help="make it the one that is used by default")] = False,
    config: dict[str, Any] | None = None,
) -> None:
    """Save connection options under a name, in a file that only its owner can read; options of it that exist stay."""
    given = dict(config or {})
    for key in contexts.SECRETS:
        if given.get(key) == "-":
            given[key] = sys.stdin.readline().rstrip("\r\n")
    own = contexts.path_of(name)
    kept = contexts.named(name).values if own.exists() else {}
    if not given and not kept:
        raise CommandError("a context without options: give --server at least")
    path = contexts.save(name, kept | given)
    if select:
        contexts.select(name)
    out.line(f"saved context {name}", {"name": name, "path": str(path), "selected": select})


@GROUP.command("show", "context show prod", connects=False)
def show(out: Printer, name: Name) -> None:
    """Show a context without its secrets."""
    found = contexts.named(name)
    shown = found.shown_safely
    out.fields(f"Context {name} of {found.origin}", {"Options": shown}, {"name": name} | shown)


@GROUP.command("select", "context select prod", connects=False)
def select(out: Printer, name: Name) -> None:
    """Use this context when the command line names none."""
    contexts.select(name)
    out.line(f"selected context {name}", {"name": name, "selected": True})


@GROUP.command("rm", "context rm prod --force", connects=False)
def rm(
    out: Printer,
    name: Name,
    force: Annotated[bool, typer.Option("--force", "-f", help="do not ask")] = False,
) -> None:
    """Remove a context."""
    contexts.named(name)
    confirm(f"Remove context {name}?", force=force)
    contexts.remove(name)
    out.line(f"removed context {name}", {"name": name, "removed": True})
