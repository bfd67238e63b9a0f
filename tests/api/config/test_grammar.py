import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetraft.api.config.grammar import ConfigError, Parser, Table


def parse(text: str, environment: dict[str, str] | None = None, files: dict[str, str] | None = None) -> Table:
    def read(name: str) -> str:
        if files is None or name not in files:
            raise FileNotFoundError(2, "no such file or directory")
        return files[name]

    return Parser(text, "test.conf", read, environment or {}).parse()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("port: 4222", {"port": 4222}),
        ("port = 4222\nhost=127.0.0.1", {"port": 4222, "host": "127.0.0.1"}),
        ("port 4222; debug on", {"port": 4222, "debug": True}),
        ("a { b: 1, c: [1, 2\n 3] }", {"a": {"b": 1, "c": [1, 2, 3]}}),
        ("{ a: 1 }", {"a": 1}),
        ("a: 1k\nb: 1kb\nc: 2MiB\nd: 3g", {"a": 1000, "b": 1024, "c": 2 << 20, "d": 3 * 10**9}),
        ("a: \"x\\ty\" # note\nb: 'raw\\t' // note", {"a": "x\ty", "b": "raw\\t"}),
        ("routes = [ nats://a:6222, nats://b:6222 ]", {"routes": ["nats://a:6222", "nats://b:6222"]}),
        ("x: (\nline one\nline two\n)\ny: 1", {"x": "line one\nline two", "y": 1}),
        ("pass: $2a$11$abc", {"pass": "$2a$11$abc"}),
        ("N: 5\nport: $N", {"N": 5, "port": 5}),
        ("t: true\nf: no\nn: -1", {"t": True, "f": False, "n": -1}),
        ("'quoted key': v", {"quoted key": "v"}),
        ("interval: 2m", {"interval": 2_000_000}),
        ("a: \"x\ny\"\nb: 'x\n\ny'\nc: 1", {"a": "x\ny", "b": "x\n\ny", "c": 1}),
    ],
)
def test_texts_become_values(text: str, expected: Table) -> None:
    assert parse(text) == expected


def test_a_variable_of_the_environment_is_read_as_a_value() -> None:
    assert parse("port: $P", {"P": "4333"}) == {"port": 4333}


def test_an_include_is_read_in_place() -> None:
    assert parse("a: 1\ninclude ./b.conf\n", files={"./b.conf": "b: 2"}) == {"a": 1, "b": 2}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a {", "test.conf:1:4: unexpected end of file inside a map"),
        ("a: [1", "test.conf:1:6: unexpected end of file inside an array"),
        ("\na: $NOPE", "test.conf:2:9: variable reference for 'NOPE' can not be found"),
        ('a: "x\n', "test.conf:2:1: a quoted string does not end"),
        ("include ./no.conf", "test.conf:1:18: error parsing include file './no.conf', no such file or directory"),
        ("a: 1 }", "test.conf:1:6: unexpected '}'"),
    ],
)
def test_errors_name_file_line_and_column(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(text)
    ours, _, theirs = str(caught.value).partition(": Parse error on line ")
    assert ours == message
    assert bool(theirs) is ("end" in message)  # what nats-server says is compared by tests/conformance


def test_a_key_knows_where_it_stands_also_in_an_included_file() -> None:
    table = parse("a: 1\n  include ./b.conf\nc { d: 2 }", files={"./b.conf": "\n b: 3"})
    assert (table.place("a"), table.place("b")) == ("test.conf:1:1", "./b.conf:2:2")
    assert table["c"].place("d") == "test.conf:3:5"


def test_an_include_of_itself_ends_with_an_error() -> None:
    with pytest.raises(ConfigError, match="nest deeper"):
        parse("include ./a.conf", files={"./a.conf": "include ./a.conf"})


@pytest.mark.parametrize("text", ["a" + "{a" * 5000, "a: " + "[" * 5000])
def test_deep_nesting_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="nest deeper"):
        parse(text)


@given(st.text(alphabet="ab1 {}[]()$:=,;#\"'\\\n", max_size=60))
def test_any_text_parses_or_is_a_config_error(text: str) -> None:
    with contextlib.suppress(ConfigError):
        assert isinstance(parse(text), dict)
