"""The output of a command: tables and fields for people, one stable JSON document for programs.

Texts from messages and names of others are shown without control characters: they cannot move a terminal's cursor.
"""

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Final

import attrs
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from jetraft.api.cli.client.errors import CommandError

PIPE_COLUMNS: Final = 120  # where no terminal says how wide it is
DELETE: Final = 0x7F
C1_END: Final = 0xA0


def clean(text: str, *, lines: bool = False) -> str:
    """The text with its control characters escaped; with `lines`, ends of lines and tabs stay."""
    return "".join(
        char if char.isprintable() or (lines and char in "\n\t") or not is_control(char) else f"\\x{ord(char):02x}"
        for char in text
    )


def is_control(char: str) -> bool:
    """Whether a terminal may act on it: C0, DEL, C1, and marks that change the direction of text."""
    code = ord(char)
    return code < ord(" ") or DELETE <= code < C1_END or 0x202A <= code <= 0x202E or 0x2066 <= code <= 0x2069  # noqa: PLR2004  (Unicode's ranges)


def payload_text(payload: bytes) -> str:
    """A payload for people: UTF-8 without control characters, otherwise its length and its first bytes in hex."""
    try:
        return clean(payload.decode(), lines=True)
    except UnicodeDecodeError:
        more = " …" if len(payload) > 32 else ""  # noqa: PLR2004  (a line)
        return f"({len(payload)} bytes) {payload[:32].hex(' ')}{more}"


@attrs.frozen(kw_only=True)
class Printer:
    """Prints results in the form that was asked for."""

    as_json: bool = False

    @property
    def console(self) -> Console:
        """Made for each use, because tests and pipes exchange the stream."""
        width = None if sys.stdout.isatty() else PIPE_COLUMNS
        return Console(markup=False, highlight=False, emoji=False, width=width)

    def json(self, value: object) -> None:
        """One document, indented; the names in it are those of the API."""
        sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False, default=str) + "\n")

    def json_line(self, value: object) -> None:
        """One document of a series, a line each."""
        sys.stdout.write(json.dumps(value, ensure_ascii=False, default=str) + "\n")
        sys.stdout.flush()

    def line(self, text: str, value: object = None) -> None:
        """One line for people, or the value as JSON."""
        if self.as_json:
            self.json(value)
            return
        sys.stdout.write(clean(text, lines=True) + "\n")
        sys.stdout.flush()

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[object]], value: object, *, empty: str) -> None:
        """A table; a column whose name starts with `>` is a number. `empty`: the line when there is no row."""
        if self.as_json:
            self.json(value)
            return
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
        for column in columns:
            table.add_column(column.lstrip(">"), justify="right" if column.startswith(">") else "left")
        for row in rows:
            table.add_row(*(Text(clean(str(cell))) for cell in row))
        if table.row_count:
            self.console.print(table)
        else:
            self.line(empty)

    def fields(self, title: str, sections: dict[str, dict[str, object]], value: object) -> None:
        """Names and values, in sections; a value that is None or empty is left out."""
        if self.as_json:
            self.json(value)
            return
        self.line(title)
        for name, pairs in sections.items():
            shown = {key: clean(str(each)) for key, each in pairs.items() if each not in (None, "", [], {})}
            if shown:
                self.line(f"\n{name}:")
                for key, text in shown.items():
                    self.line(f"  {key + ':':<22} {text}")


def note(text: str) -> None:
    """A line beside the result, on the standard error stream."""
    sys.stdout.flush()
    sys.stderr.write(f"jetraft: {clean(text)}\n")


def confirm(question: str, *, force: bool) -> None:
    """Ask on the terminal. Raises CommandError when the answer is no, or when there is no terminal and no --force."""
    if force:
        return
    if not sys.stdin.isatty():
        raise CommandError("this needs a confirmation and there is no terminal to ask on: add --force (or --yes)")
    sys.stderr.write(f"{clean(question)} [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CommandError("not confirmed, nothing was changed")


def asked(question: str, flag: str) -> str:
    """A value that the command line lacks, from the terminal. Raises CommandError where there is none."""
    if not sys.stdin.isatty():
        raise CommandError(f"{question} is missing: add {flag}")
    sys.stderr.write(f"{question}: ")
    sys.stderr.flush()
    answer = sys.stdin.readline().strip()
    if not answer:
        raise CommandError(f"{question} is missing: add {flag}")
    return answer
