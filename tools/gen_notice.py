"""Write NOTICE from the packages that the images install: `python tools/gen_notice.py`; `--check` compares."""

# ruff: noqa: INP001  (a script, not part of a package)
import re
import sys
from importlib import metadata
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parent.parent
NOTICE: Final = ROOT / "NOTICE"
LISTS: Final = {  # by what stands above each
    "server": "The server, with the extras `cli` and `tools` (its image installs these)",
    "spark": "The Spark data source and its job (the image of the job installs these beside those above)",
}
PINNED: Final = re.compile(r"^([A-Za-z0-9_.-]+)==", re.MULTILINE)
EXPRESSION: Final = re.compile(r"[A-Za-z]+-?[0-9.]+[A-Za-z0-9.+-]*|MIT(?: OR Apache-2\.0)?")
SPDX: Final = {  # of packages whose metadata has no SPDX expression, by what they say instead
    "Apache 2 License": "Apache-2.0",
    "Apache 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD-3-Clause",
    "ISC License": "ISC",
    "MIT License": "MIT",
}
HEAD: Final = """jetraft
Licensed under the Apache License, version 2.0 (LICENSE).

It contains no code of others. It uses the packages below, which are distributed by themselves, each under its own
licence; wheels for Linux also contain OpenSSL 3 (Apache-2.0).
"""


def text() -> str:
    """The file. Raises PackageNotFoundError, of one that is not installed, and ValueError: a licence is unknown."""
    parts, seen = [HEAD], set[str]()
    for name, title in LISTS.items():
        pinned = PINNED.findall((ROOT / "deploy/requirements" / f"{name}.txt").read_text(encoding="utf-8"))
        new = [package for package in pinned if package not in seen]
        seen.update(new)
        parts.append("\n".join([title, "", *(f"- {package}: {licence(package)}" for package in new)]) + "\n")
    return "\n".join(parts)


def licence(package: str) -> str:
    """The SPDX expression of an installed package's licence. Raises ValueError."""
    found: Any = metadata.metadata(package)  # a message of email; its stub has less
    said: dict[str, str] = dict(found.items())
    if "License-Expression" in said:
        return said["License-Expression"]
    classifiers: list[str] = [text for key, text in found.items() if key == "Classifier" and text.startswith("License")]
    for one in (said.get("License", ""), *(text.rpartition("::")[2].strip() for text in classifiers)):
        if one in SPDX or EXPRESSION.fullmatch(one):
            return SPDX.get(one, one)
    raise ValueError(f"{package}: its licence is not known: {classifiers}")


def main(arguments: list[str]) -> int:
    """Write the file, or say whether it differs."""
    if arguments == ["--check"]:
        return int(not NOTICE.exists() or NOTICE.read_text(encoding="utf-8") != text())
    NOTICE.write_text(text(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
