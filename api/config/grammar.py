"""nats-server's configuration grammar: text in, nested dicts out.

    port: 4222            # `=`, `:` or a space between key and value
    jetstream { store_dir: "/data", max_file_store: 10G }
    routes = [ nats://a:6222, nats://b:6222 ]
    include ./users.conf
    password: $SECRET     # looked up in the file, then in the environment

Sizes: k m g t p e count by 1000, kb kib ki ... by 1024 (conf/parse.go).

Pure: the text, the environment and the function that reads included files are arguments.
"""

import re
from collections.abc import Callable, Container, Mapping
from typing import Any

import attrs

INCLUDE_DEPTH_MAX = 16  # nats-server has no limit and recurses until its stack overflows
NESTING_MAX = 64
DECIMAL = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "p": 10**15, "e": 10**18}
BINARY = {"k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40, "p": 2**50, "e": 2**60}
NUMBER = re.compile(r"^([-+]?\d+)([kmgtpe]?)(b|i|ib)?$", re.IGNORECASE)
FLOAT = re.compile(r"^[-+]?\d+\.\d+$")
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "\\": "\\"}
WORD = re.compile(r"[^ \t\r\n,;\]}#]*")
KEY = re.compile(r"[^ \t\r\n=:{#]*")
LITERAL = {'"': re.compile(r'[^"\\]*'), "'": re.compile(r"[^']*")}  # only double quotes have escapes
# Possessive: nothing is tried twice, and a file of any length needs no stack.
BLANK = {
    extra: re.compile(rf"(?:[\s{extra}]++|(?:#|//)[^\n]*+)*+") for extra in ("", ",", ",;")
}  # white space, comments, and separators
TRUE = frozenset({"true", "yes", "on"})
FALSE = frozenset({"false", "no", "off"})

ENDS_IN = 'Expected {} terminator "," or {} terminator "{}", but got \'{}\' instead.'  # as nats-server's lexer says it
ALLOWED_ESCAPES = r"Only the following escape characters are allowed: \xXX, \t, \n, \r, \", \\."

ReadFile = Callable[[str], str]


class ConfigError(ValueError):
    """The text is not a configuration; the message is one line that starts with `file:line:column`."""


class Table(dict[str, Any]):
    """A map of a configuration, with the places of its keys, and those that a `$key` somewhere refers to."""

    def __init__(self) -> None:
        super().__init__()
        self.offsets: dict[str, tuple[Parser, int]] = {}
        self.used: set[str] = set()

    def given(self, known: Container[str]) -> list[tuple[str, Any]]:
        """Keys and values, without variables: as in nats-server that is what is used as one and is no known key."""
        return [(key, value) for key, value in self.items() if key not in self.used or key.lower() in known]

    def place(self, key: str) -> str:
        """`file:line:column` of a key."""
        parser, at = self.offsets[key]
        return parser.place(at)


def typed(word: str) -> Any:
    """Return the value of an unquoted word: a boolean, an integer with an optional unit, a float or a string."""
    lowered = word.lower()
    if lowered in TRUE:
        return True
    if lowered in FALSE:
        return False
    match = NUMBER.match(word)
    if match:
        number, unit, binary = int(match[1]), match[2].lower(), match[3]
        if not unit:
            return number if not binary else word
        return number * (BINARY if binary else DECIMAL)[unit]
    if FLOAT.match(word):
        return float(word)
    return word


@attrs.define(eq=False)
class Parser:
    """Parses one text. Included files have their own parsers, which share scopes and limits."""

    text: str
    name: str
    read_file: ReadFile
    environment: Mapping[str, str]
    depth: int = 0
    at: int = 0
    scopes: list[Table] = attrs.field(factory=list)
    looking_up: frozenset[str] = frozenset()

    def error(self, text: str, theirs: str = "") -> ConfigError:
        """Return an error at the current place, with the words that nats-server has for it, which scripts look for."""
        known = f": Parse error on line {self.text.count(chr(10), 0, self.at) + 1}: '{theirs}'" if theirs else ""
        return ConfigError(f"{self.place(self.at)}: {text}{known}")

    def place(self, at: int) -> str:
        """Return `file:line:column` of an offset; lines and columns start at 1."""
        line_start = self.text.rfind("\n", 0, at) + 1
        return f"{self.name}:{self.text.count(chr(10), 0, at) + 1}:{at - line_start + 1}"

    def peek(self) -> str:
        """Return the next character, empty at the end."""
        return self.text[self.at] if self.at < len(self.text) else ""

    def skip(self, extra: str = "") -> None:
        """Skip white space, comments and the separators in `extra`."""
        self._take(BLANK[extra])

    def parse(self) -> Table:
        """Parse the text as one map; an outer pair of braces is allowed. Raises ConfigError."""
        self.skip()
        braced = self.peek() == "{"
        if braced:
            self.at += 1
        result = self.pairs("}" if braced else "")
        self.skip()
        if self.at < len(self.text):
            raise self.error(f"unexpected {self.peek()!r}")
        return result

    def pairs(self, end: str) -> Table:
        """Parse key-value pairs up to the closing brace, or to the end of the text."""
        if len(self.scopes) > NESTING_MAX:
            raise self.error(f"maps nest deeper than {NESTING_MAX}")
        scope = Table()
        self.scopes.append(scope)
        while True:
            self.skip(",;")
            if not self.peek():
                if end:
                    raise self.error("unexpected end of file inside a map", self._ended_map())
                break
            if self.peek() == end:
                self.at += 1
                break
            if self.peek() in "}])":
                theirs = ENDS_IN.format("a map value", "a map", "}", self.peek()) if len(self.scopes) > 1 else ""
                raise self.error(f"unexpected {self.peek()!r}", theirs)
            self.pair(scope)
        self.scopes.pop()
        return scope

    def _ended_map(self) -> str:
        """nats-server tells a value that the end cuts off from a map that lacks its brace, which the outermost may."""
        if len(self.scopes) == 1:
            return ""
        ends = ENDS_IN.format("a map value", "a map", "}", " ")
        return "Unexpected EOF processing map." if self.text.endswith("\n") else ends

    def pair(self, scope: Table) -> None:
        """Parse one key and its value, or an include."""
        at, key = self.at, self.key()
        while self.peek() in (" ", "\t"):
            self.at += 1
        if key == "include" and self.peek() not in ("=", ":"):
            included = self.include(str(self.value()))
            scope.update(included)
            scope.offsets |= included.offsets
            scope.used |= included.used
            return
        if self.peek() and self.peek() in "=:":
            self.at += 1
        self.skip()
        scope[key], scope.offsets[key] = self.value(), (self, at)

    def key(self) -> str:
        """Parse a key, quoted or not."""
        if self.peek() in ('"', "'"):
            return self.quoted()
        word = self._take(KEY)
        if not word:
            found = self.peek()
            raise self.error(f"expected a key, found {found!r}", f"Unexpected key separator '{found}'")
        return word

    def _take(self, pattern: re.Pattern[str]) -> str:
        """Take what a pattern that also matches nothing finds here."""
        found = pattern.match(self.text, self.at)
        assert found is not None
        self.at = found.end()
        return found[0]

    def value(self) -> Any:
        """Parse a value of any type."""
        char = self.peek()
        if char == "{":
            self.at += 1
            return self.pairs("}")
        if char == "[":
            return self.array()
        if char in ('"', "'"):
            return self.quoted()
        if char == "(":
            return self.block()
        word = self._take(WORD)
        if not word:
            raise self.error("expected a value", "" if self.peek() else "Expected value but found new line")
        # A bcrypt hash starts with a dollar sign and is a plain string.
        return self.variable(word[1:]) if word.startswith("$") and not word.startswith("$2") else typed(word)

    def array(self) -> list[Any]:
        """Parse the values up to the closing bracket."""
        self.at += 1
        values: list[Any] = []
        while True:
            self.skip(",")
            if not self.peek():
                raise self.error(
                    "unexpected end of file inside an array", ENDS_IN.format("an array value", "an array", "]", " ")
                )
            if self.peek() == "]":
                self.at += 1
                return values
            if len(self.scopes) > NESTING_MAX:
                raise self.error(f"values nest deeper than {NESTING_MAX}")
            self.scopes.append(Table())
            values.append(self.value())
            self.scopes.pop()

    def quoted(self) -> str:
        """Parse a quoted string, which may have lines; escapes work in double quotes only."""
        quote = self.peek()
        self.at += 1
        parts: list[str] = []
        while True:
            parts.append(self._take(LITERAL[quote]))
            char = self.peek()
            if not char:
                raise self.error("a quoted string does not end", "Unexpected EOF.")
            self.at += 1
            if char == quote:
                return "".join(parts)
            parts.append(self.escape())

    def escape(self) -> str:
        """Parse the characters after a backslash."""
        char = self.peek()
        self.at += 1
        if char == "x":
            digits, self.at = self.text[self.at : self.at + 2], self.at + 2
            try:
                return chr(int(digits, 16))
            except ValueError:
                theirs = f"Expected two hexadecimal digits after '\\x', but got '{digits}'"
                raise self.error(f"invalid escape \\x{digits}", theirs) from None
        if char not in ESCAPES:
            raise self.error(f"invalid escape \\{char}", f"Invalid escape character '{char}'. {ALLOWED_ESCAPES}")
        return ESCAPES[char]

    def block(self) -> str:
        """Parse a text between parentheses, the closing one at the start of a line."""
        end = self.text.find("\n)", self.at)
        if end < 0:
            self.at = len(self.text)
            raise self.error("a block does not end", "Unexpected EOF processing block.")
        body, self.at = self.text[self.at + 1 : end], end + 2
        return body.removeprefix("\n")

    def variable(self, name: str) -> Any:
        """Return the value of $name: from the innermost map that has it, else parsed from the environment."""
        for scope in reversed(self.scopes):
            if name in scope:
                scope.used.add(name)
                return scope[name]
        if name in self.looking_up:
            raise self.error(f"variable cycle for '{name}'")
        if name not in self.environment:
            raise self.error(f"variable reference for '{name}' can not be found")
        inner = Parser(
            self.environment[name], f"${name}", self.read_file, self.environment, looking_up=self.looking_up | {name}
        )
        inner.skip()
        return inner.value() if inner.peek() else ""

    def include(self, path: str) -> Table:
        """Parse another file and return its map."""
        if self.depth >= INCLUDE_DEPTH_MAX:
            raise self.error(f"includes nest deeper than {INCLUDE_DEPTH_MAX}")
        try:
            text = self.read_file(path)
        except OSError as error:
            raise self.error(f"error parsing include file '{path}', {error.strerror}") from error
        inner = Parser(text, path, self.read_file, self.environment, depth=self.depth + 1, scopes=list(self.scopes))
        return inner.parse()
