"""`jetraft completion`: a script that lets a shell complete commands and their options.

The script holds the words of this version: it asks neither a server nor this program while a person types.
"""

import importlib
from typing import Annotated, Any, Final

import typer

from jetraft.api.cli.client.errors import UsageError
from jetraft.api.cli.client.frame import CommandGroup
from jetraft.api.cli.client.output import Printer
from jetraft.api.cli.main import COMMANDS, SERVE

GROUP: Final = CommandGroup.of("completion", "Print a script for a shell.")
main: Final = GROUP.main
OWN: Final = "jetraft.api.cli.client."
SCRIPT: Final = """\
_jetraft() {
    local words
    case "${COMP_WORDS[1]} ${COMP_WORDS[2]}" in
CASES
        *) words="" ;;
    esac
    if [ "$COMP_CWORD" -eq 1 ]; then
        words="FIRST"
    elif [ "$COMP_CWORD" -eq 2 ]; then
        case "${COMP_WORDS[1]}" in
SECOND
        esac
    fi
    COMPREPLY=($(compgen -W "$words" -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _jetraft jetraft
"""
ZSH: Final = "autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n"


@GROUP.command("completion", "completion bash", "completion zsh", connects=False)
def completion(
    out: Printer, shell: Annotated[str, typer.Argument(metavar="SHELL", help="bash or zsh")] = "bash"
) -> None:
    """Print the script; load it with: eval "$(jetraft completion bash)"."""
    if shell not in ("bash", "zsh"):
        raise UsageError(f"there is a script for bash and zsh, and none for {shell}")
    script = (ZSH if shell == "zsh" else "") + filled(tree())
    out.line(script.rstrip(), {"shell": shell, "script": script})


def tree() -> dict[str, dict[str, list[str]]]:
    """The options of each command, by first and second word; the second is empty for a command without one."""
    found: dict[str, dict[str, list[str]]] = {}
    for name, module in COMMANDS.items():
        if not module.startswith(OWN):
            found[name] = {}
            continue
        loaded = importlib.import_module(module)
        group = loaded.GROUPS[name] if hasattr(loaded, "GROUPS") else loaded.GROUP
        command: Any = typer.main.get_command(group.app)
        parts = getattr(command, "commands", None) or {"": command}
        found[name] = {
            second: sorted(
                option for each in part.params for option in [*each.opts, *each.secondary_opts] if option[:2] == "--"
            )
            for second, part in parts.items()
        }
    return found


def filled(commands: dict[str, dict[str, list[str]]]) -> str:
    """The script with these words."""
    cases, seconds = [], []
    for first, parts in commands.items():
        for second, options in parts.items():
            cases.append(f'        "{first} {second or "*"}"'.replace('*"', '"*') + f') words="{" ".join(options)}" ;;')
        words = " ".join(second for second in parts if second)
        if words:
            seconds.append(f'            {first}) words="{words}" ;;')
    return (
        SCRIPT.replace("CASES", "\n".join(cases))
        .replace("FIRST", " ".join(sorted([*commands, SERVE])))
        .replace("SECOND", "\n".join(seconds))
    )
