"""What mkdocs is told beside mkdocs.yml: pages from outside of docs/, and links to them and to sources.

The pages are written to be read in a checkout. Here README.md, ARCHITECTURE.md, STYLE.md and CHANGELOG.md become pages
of the site, docs/start.md is its first one, and a link to any other file of the repository is shown as its path: the
site does not have the sources. A link to a file that the repository lacks is an error.
"""
# ruff: noqa: INP001  (hooks of mkdocs, not part of a package)

import re
from pathlib import Path
from posixpath import normpath
from typing import Any, Final

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT: Final = Path(__file__).parent.parent
OUTSIDE: Final = {
    "README.md": "readme.md",
    "ARCHITECTURE.md": "architecture.md",
    "STYLE.md": "style.md",
    "CHANGELOG.md": "changelog.md",
}
FIRST: Final = "docs/start.md"
LINK: Final = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s#]*)(#[^)\s]*)?\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages from outside, and make the start the index."""
    for source, name in OUTSIDE.items():
        files.append(File.generated(config, name, content=(ROOT / source).read_text(encoding="utf-8")))
    start = files.get_file_from_path("start.md")
    assert start is not None
    files.remove(start)
    files.append(File.generated(config, "index.md", content=(ROOT / FIRST).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, **_others: Any) -> str:
    """Links as the site has them."""
    return linked(markdown, page.file.src_uri)


def linked(markdown: str, name: str) -> str:
    """The text of a page of the site with its links changed. Raises PluginError: a link leads nowhere."""
    sources = {site: source for source, site in OUTSIDE.items()} | {"index.md": FIRST}
    source = sources.get(name, f"docs/{name}")
    folder, depth = source.rpartition("/")[0], name.count("/")

    def link(match: re.Match[str]) -> str:
        image, text, to, anchor = match[1], match[2], match[3], match[4] or ""
        if not to or "://" in to or to.startswith("mailto:"):
            return match[0]
        path = normpath(f"{folder}/{to}" if folder else to)
        if not (ROOT / path).exists():
            raise PluginError(f"{source}: a link leads to {path}, which does not exist")
        up = "../" * depth
        if path == FIRST:
            return f"{image}[{text}]({up}index.md{anchor})"
        if path in OUTSIDE:
            return f"{image}[{text}]({up}{OUTSIDE[path]}{anchor})"
        if path in {"docs/decisions", "docs/lab"}:
            path += "/README.md"
        if path.startswith("docs/") and (ROOT / path).is_file():
            return f"{image}[{text}]({up}{path.removeprefix('docs/')}{anchor})"
        return f"{text} (`{path}`)" if text.strip("`") != path else f"`{path}`"

    return LINK.sub(link, markdown)
