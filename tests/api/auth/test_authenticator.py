"""Who is judged to be whom; every row was asked of nats-server 2.15.1 (tests/conformance compares both)."""

import attrs
import bcrypt
import pytest

from jetraft.api.auth.authenticator import Authenticator
from jetraft.api.credentials.rules import AuthRules, NkeyUser, PasswordUser
from jetraft.api.credentials.secret import Secret
from jetraft.api.credentials.verdicts import (
    ConnectionFacts,
    Credentials,
    LoginRefusal,
    Outcome,
    SlowCheck,
    Verdict,
)

KEY = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4"
HASH = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()
COSTLY = bcrypt.hashpw(b"other", bcrypt.gensalt(5)).decode()
PLAIN = AuthRules(
    users=(
        PasswordUser(name="a", password=Secret("b")),
        PasswordUser(name="ws", password=Secret("w"), connection_types=frozenset({"WEBSOCKET"})),
        PasswordUser(name="open", password=Secret("")),
    )
)
KEYS = AuthRules(nkeys=(NkeyUser(nkey=KEY),), users=(PasswordUser(name="a", password=Secret("b")),))
HASHED = AuthRules(
    users=(
        PasswordUser(name="h", password=Secret(HASH)),
        PasswordUser(name="c", password=Secret(COSTLY)),
        PasswordUser(name="a", password=Secret("b")),
    )
)


def good(_nkey: str, signature: str, nonce: bytes) -> bool:
    return signature == "good" and nonce == b"n"


def judge(rules: AuthRules, *, kind: str = "STANDARD", **offered: str) -> Outcome:
    return Authenticator(rules, good).judge(Credentials(**offered), ConnectionFacts(kind=kind, nonce=b"n"))


@pytest.mark.parametrize(
    ("rules", "offered", "user"),
    [
        (AuthRules(), {}, ""),
        (AuthRules(), {"user": "z"}, "z"),
        (AuthRules(), {"token": "z"}, "[REDACTED]"),
        (PLAIN, {"user": "a", "password": "b"}, "a"),
        (PLAIN, {"user": "a", "password": "x"}, None),
        (PLAIN, {"user": "z", "password": "b"}, None),
        (PLAIN, {"token": "b"}, None),
        (PLAIN, {}, None),
        (PLAIN, {"user": "ws", "password": "w"}, None),
        (PLAIN, {"user": "ws", "password": "w", "kind": "WEBSOCKET"}, "ws"),
        (PLAIN, {"user": "open"}, "open"),
        (attrs.evolve(PLAIN, no_auth_user="a"), {}, "a"),
        (attrs.evolve(PLAIN, no_auth_user="a"), {"nkey": "U"}, "a"),
        (attrs.evolve(PLAIN, no_auth_user="a"), {"password": "x"}, None),
        (attrs.evolve(PLAIN, no_auth_user="a"), {"user": "a", "password": "x"}, None),
        (KEYS, {"nkey": KEY, "signature": "good"}, KEY),
        (KEYS, {"nkey": KEY, "signature": "bad"}, None),
        (KEYS, {"nkey": KEY}, None),
        (KEYS, {"nkey": "UOTHER", "signature": "good"}, None),
        (KEYS, {"user": "a", "password": "b"}, "a"),
        (KEYS, {"nkey": KEY, "signature": "good", "user": "a", "password": "x"}, KEY),
        (KEYS, {"nkey": "UOTHER", "signature": "good", "user": "a", "password": "b"}, None),
        (attrs.evolve(KEYS, no_auth_user=KEY), {}, KEY),
        (attrs.evolve(KEYS, no_auth_user=KEY), {"nkey": KEY}, KEY),
        (AuthRules(token=Secret("t")), {"token": "t"}, "[REDACTED]"),
        (AuthRules(token=Secret("t")), {"user": "t"}, None),
        (AuthRules(username="a", password=Secret("b")), {"user": "a", "password": "b"}, "a"),
        (AuthRules(username="a", password=Secret("b")), {"user": "a", "password": "x"}, None),
        (AuthRules(username="a", password=Secret("b")), {"user": "x", "password": "b"}, None),
    ],
)
def test_who_a_client_is(rules: AuthRules, offered: dict[str, str], user: str | None) -> None:
    outcome = judge(rules, **offered)
    assert isinstance(outcome, LoginRefusal) if user is None else isinstance(outcome, Verdict) and outcome.user == user


def test_a_hashed_password_is_for_somebody_else_to_compare() -> None:
    outcome = judge(HASHED, user="h", password="secret")
    assert isinstance(outcome, SlowCheck)
    assert (outcome.hashed, outcome.offered) == (HASH.encode(), b"secret")
    assert isinstance(outcome.outcome, Verdict)
    assert outcome.outcome.user == "h"


@pytest.mark.parametrize("offered", [{"user": "nobody", "password": "x"}, {"user": "a", "password": "x"}])
def test_where_a_password_is_hashed_a_refusal_costs_as_much(offered: dict[str, str]) -> None:
    outcome = judge(HASHED, **offered)
    assert isinstance(outcome, SlowCheck)
    assert outcome.hashed == COSTLY.encode()
    assert isinstance(outcome.outcome, LoginRefusal)


def test_who_names_nobody_is_refused_at_once() -> None:
    assert isinstance(judge(HASHED), LoginRefusal)


def test_no_repr_shows_what_was_offered() -> None:
    assert "hush" not in repr(Credentials(user="a", password="hush", token="hush", signature="hush"))
    assert "hush" not in repr(judge(HASHED, user="h", password="hush"))


def test_a_refusal_names_the_key_or_the_user_and_no_token() -> None:
    assert Credentials(nkey="U", user="a", token="t").named == ' - Nkey "U"'
    assert Credentials(user='a"\n', password="x").named == ' - User "a\\"\\n"'
    assert Credentials(token="hush").named == ' - Token "[REDACTED]"'
    assert Credentials().named == ""
