"""The `authorization` block and the flags that say the same; texts and places are nats-server's, `-t` was asked."""

from pathlib import Path

import pytest

from jetraft.api.config.build import build_options
from jetraft.api.config.file import load_settings
from jetraft.api.config.flags import parse_flags
from jetraft.api.config.settings import OptionsError
from jetraft.api.credentials.permissions import ResponseRules, SubjectRules
from jetraft.api.options.options import Options

KEY = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4"
ACCOUNT_KEY = "ABJHLOVMPA4CI6R5KLNGOB4GSLNIY7IOUPAJC4YFNDLQVIOBYQGUWVLA"
HASH = "$2a$11$3kIDaCxw.Glsl1.u5nKa6eUnNDLV5HV9tIuUp7EHhMt6Nm9myW1aS"


def options_of(tmp_path: Path, text: str, *flags: str) -> Options:
    path = tmp_path / "n.conf"
    path.write_text(text)
    return build_options(load_settings(path) | parse_flags(flags))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("authorization {\n users: [{user: a}, {user: a}] }", '1:1: Duplicate user "a" detected'),
        (f"authorization {{\n users: [{{nkey: {KEY}}}, {{nkey: {KEY}}}] }}", f'1:1: Duplicate nkey "{KEY}" detected'),
        ("authorization {\n users: [\n{nkey: UABC}] }", "3:2: Not a valid public nkey for a user"),
        (f"authorization {{\n users: [\n{{nkey: {ACCOUNT_KEY}}}] }}", "3:2: Not a valid public nkey for a user"),
        (
            f"authorization {{\n users: [\n{{nkey: {KEY}, password: x}}] }}",
            "3:66: Nkey users do not take usernames or passwords",
        ),
        ("authorization {\n users: [\n{password: x}] }", "3:2: User entry requires a user"),
        ("authorization {\n users: {user: x} }", "2:2: Expected users field to be an array"),
        ("authorization {\n users: [a] }", "2:2: Expected user entry to be a map/struct"),
        ("authorization { token: t, users: [{user: a}] }", "1:1: Can not have a token and a users array"),
        (
            "authorization { user: t, password: x, users: [{user: a}] }",
            "1:1: Can not have a single user/pass and a users array",
        ),
        ("authorization { user: t, password: x, token: z }", "1:1: Cannot have a user/pass and token"),
        ("authorization { password: x, token: z }", "1:1: Cannot have a user/pass and token"),
        ("authorization {\n token: t\n foo: 1 }", '3:2: unknown field "foo" in authorization'),
        (
            "authorization { users: [{user: a\n clients: [STANDARD, foo]}] }",
            '2:2: invalid connection types ["FOO"]',
        ),
        ("no_auth_user: x", 'no_auth_user: "x" present, but users/nkeys are not defined'),
        (
            "authorization { users: [{user: a}] }\nno_auth_user: x",
            'no_auth_user: "x" not present as user or nkey in authorization block or account configuration',
        ),
    ],
)
def test_what_contradicts_itself_is_refused_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(OptionsError) as caught:
        options_of(tmp_path, text)
    assert str(caught.value).removeprefix(f"{tmp_path / 'n.conf'}:") == message


@pytest.mark.parametrize(
    "text",
    [
        "authorization { user: a, password: 987654 }",
        "authorization { token: 987654 }",
        "authorization { users: [{user: a, password: 987654}] }",
        "authorization { users: {user: a, password: '987654'} }",
        "authorization { users: ['987654'] }",
        "cluster { name: c, authorization { user: a, password: 987654 } }",
        "cluster { name: c, secret: 987654 }",
        "jetstream { key: 987654 }",
    ],
)
def test_no_error_shows_a_secret(tmp_path: Path, text: str) -> None:
    with pytest.raises(OptionsError) as caught:
        options_of(tmp_path, text)
    assert "987654" not in str(caught.value)


def test_no_repr_shows_a_secret(tmp_path: Path) -> None:
    options = options_of(
        tmp_path,
        "authorization { users: [{user: a, password: hush1}, {user: b, password: hush2}] }\n"
        "cluster { name: c, port: 1, routes: ['nats://r:hush3@h:1'], authorization { user: r, password: hush4 } }",
    )
    assert "'a'" in repr(options)
    assert "hush" not in repr(options)
    single = options_of(tmp_path, "", "--user", "a", "--pass", "hush", "--auth", "hush5")
    assert "hush" not in repr(single)


def test_a_hash_may_stand_with_or_without_quotes(tmp_path: Path) -> None:
    for written in (HASH, f'"{HASH}"'):
        users = options_of(tmp_path, f"authorization {{ users: [{{user: a, password: {written}}}] }}").auth.users
        assert users[0].password.hashed == HASH.encode()


def test_flags_win_over_the_one_user_and_the_token_of_the_file(tmp_path: Path) -> None:
    auth = options_of(tmp_path, "authorization { user: a, password: b }", "--user", "x", "--pass", "y").auth
    assert (auth.username, auth.password.equals("y")) == ("x", True)
    auth = options_of(tmp_path, "authorization { token: a }", "--auth", "x").auth
    assert auth.token.equals("x")


@pytest.mark.parametrize(
    ("text", "timeout_ns"),
    [("2.5", 2_500_000_000), ('"300ms"', 300_000_000), ("1s", 10**9), ("0", 2 * 10**9)],
)
def test_the_timeout_is_seconds_or_a_duration_and_0_the_default(tmp_path: Path, text: str, timeout_ns: int) -> None:
    options = options_of(tmp_path, f"authorization {{ token: a, timeout: {text} }}")
    assert options.auth_timeout_ns == timeout_ns


def test_a_server_without_users_asks_nobody(tmp_path: Path) -> None:
    for text in ("", "authorization { }", "authorization { users: [] }", "authorization { password: b }"):
        assert not options_of(tmp_path, text).auth.required


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("5", "1:50: Expected permissions to be a map/struct, got 5"),
        ("{ foo: 5 }", '1:65: Unknown field "foo" parsing permissions'),
        ("{ publish: 5 }", "1:65: Expected subject permissions to be a subject, or array of subjects"),
        ('{ publish: [a, "b..c"] }', '1:65: subject "b..c" is not a valid subject'),
        ('{ publish: "a b" }', '1:65: subject "a b" is not a valid subject'),
        ('{ subscribe: "a b c" }', '1:65: subject "a b c" is not a valid subject'),
        ('{ subscribe: "a..x b" }', '1:65: subject "a..x" is not a valid subject'),
        (
            "{ publish: { foo: a } }",
            "1:76: Unknown field name \"foo\" parsing subject permissions, only 'allow' or 'deny' are permitted",
        ),
        ("{ allow_responses: 5 }", "1:65: error parsing response permissions, expected a boolean or a map"),
        ("{ allow_responses: { expires: 5 } }", "1:84: error parsing expires, not a duration string"),
        (
            "{ allow_responses: { expires: xx } }",
            '1:84: error parsing expires: time: invalid duration "xx"',
        ),
    ],
)
def test_wrong_permissions_name_the_place(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(OptionsError) as caught:
        options_of(tmp_path, f"authorization {{ users: [ {{ user: a, password: b, permissions: {text} }} ] }}")
    assert str(caught.value).removeprefix(f"{tmp_path / 'n.conf'}:") == message


def test_users_without_permissions_have_the_default_ones(tmp_path: Path) -> None:
    text = """
    authorization {
      default_permissions: { publish: d, allow_responses: { max: -1, expires: "-1s" } }
      users: [ {user: a}, {user: b, permissions: { subscribe: { allow: "s q", deny: [t] } } } ]
    }
    """
    first, second = (user.permissions for user in options_of(tmp_path, text).auth.users)
    assert first is not None
    assert (first.publish.allow, first.responses) == (("d",), ResponseRules(max_msgs=-1, expires_ns=-(10**9)))
    assert second is not None
    assert (second.publish.allow, second.subscribe) == ((), SubjectRules(allow=("s q",), deny=("t",)))
