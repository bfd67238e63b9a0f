"""Write docs/configuration.md from tools/configuration.tsv: `python tools/gen_configuration.py`; `--check` compares.

The table has a row for each key that nats-server 2.15 accepts, with a value to try it with. Whether jetraft serves the
key is found out by reading a configuration with it, so that a key which becomes served is one as soon as it is.
"""

# ruff: noqa: INP001  (a script, not part of a package)

import csv
import difflib
import sys
import tempfile
from pathlib import Path
from typing import Final

from jetraft.api.config.file import load_settings
from jetraft.api.config.settings import OptionsError

ROOT: Final = Path(__file__).resolve().parent.parent
TABLE: Final = ROOT / "tools" / "configuration.tsv"
PAGE: Final = ROOT / "docs" / "configuration.md"
AROUND: Final = {
    "": "{}",
    "authorization": "authorization {{ {} }}",
    "authorization.users": "authorization {{ users: [ {{ {} }} ] }}",
    "permissions": "authorization {{ users: [ {{ user: a, permissions: {{ {} }} }} ] }}",
    "accounts": "accounts {{ A {{ {} }} }}",
    "accounts.jetstream": "accounts {{ A {{ jetstream {{ {} }} }} }}",
    "cluster": "cluster {{ {} }}",
    "cluster.tls": "cluster {{ tls {{ {} }} }}",
    "jetstream": "jetstream {{ {} }}",
    "jetstream.limits": "jetstream {{ limits {{ {} }} }}",
    "jetstream.limits.batch": "jetstream {{ limits {{ batch {{ {} }} }} }}",
    "tls": "tls {{ {} }}",
    "leafnodes": "leafnodes {{ {} }}",
    "leafnodes.authorization": "leafnodes {{ authorization {{ {} }} }}",
    "leafnodes.authorization.users": "leafnodes {{ authorization {{ users: [ {{ {} }} ] }} }}",
    "leafnodes.remotes": "leafnodes {{ remotes: [ {{ {} }} ] }}",
    "websocket": "websocket {{ {} }}",
    "http_gateway": "http_gateway {{ {} }}",
    "authorization.auth_callout": "authorization {{ auth_callout {{ {} }} }}",
}
TITLES: Final = {"": "At the top", "tls": "`tls`, of clients", "permissions": "`permissions` of a user"}
NOT_SERVED: Final = (
    "is not served by jetraft yet",
    "cert store type not implemented",
    "TPM functionality is not supported",
)
UNKNOWN: Final = ("unknown field", "Unknown field")
HEAD: Final = """# Configuration

Made by `make docs` from `tools/configuration.tsv`; do not edit. It lists the keys that nats-server
2.15 accepts and a few of jetraft's own. A key that is not served is refused by name, with its place in the file.
[operations.md](operations.md) says how a server is run, [security.md](security.md) who may do what, and
[tls.md](tls.md) how TLS is set up.
"""


def is_served(block: str, key: str, sample: str) -> bool:
    """Whether a configuration with this key is read. Raises ValueError for a key that nobody knows."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "c.conf"
        path.write_text(AROUND[block].format(f"{key}: {sample}"), encoding="utf-8")
        try:
            load_settings(path, {})
        except OptionsError as error:
            text = str(error)
            if any(words in text for words in UNKNOWN) and f'"{key}"' in text:
                raise ValueError(f"{block or 'top'}: {text}") from error
            return not any(words in text for words in NOT_SERVED)
    return True


def page() -> str:
    """The text of the page."""
    blocks: dict[str, list[str]] = {}
    with TABLE.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE):
            keys = row["keys"].split()
            served = [is_served(row["block"], key, row["sample"]) for key in keys]
            if len(set(served)) != 1:
                raise ValueError(f"{row['block']}: {keys} are one key with several names, and not all are served")
            status = "served" if served[0] else f"refused: {row['reason'] or 'not served yet'}"
            names = ", ".join(f"`{key}`" for key in keys)
            blocks.setdefault(row["block"], []).append(f"| {names} | {row['meaning']} | {status} |")
    parts = [HEAD]
    for block, lines in blocks.items():
        title = TITLES.get(block, f"`{block}`")
        parts.append("\n".join(["", f"## {title}", "| Key | Meaning | |", "|---|---|---|", *lines, ""]))
    return "".join(parts)


def main(arguments: list[str]) -> int:
    """Write the page, or say how it differs."""
    wanted = page()
    found = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    if arguments == ["--check"]:
        sys.stdout.writelines(
            difflib.unified_diff(found.splitlines(keepends=True), wanted.splitlines(keepends=True), "found", "wanted")
        )
        return int(found != wanted)
    PAGE.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
