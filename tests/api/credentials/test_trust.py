"""Whom a token lets in; tests/conformance/scenes/operators.py asks both servers."""

import time
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from jetraft.api.credentials.claims import AccountClaims, account_claims, operator_claims, user_claims
from jetraft.api.credentials.conditions import Conditions, TimeRange, conditions_of
from jetraft.api.credentials.nkeys import signed
from jetraft.api.credentials.templates import TemplateError, fill_rights
from jetraft.api.credentials.tokens import decode_token
from jetraft.api.credentials.trust import TokenJudge, TrustRules
from jetraft.api.credentials.verdicts import ConnectionFacts, Credentials, LoginRefusal, Verdict
from jetraft.store.model.clock import NS_PER_S
from tests.harness.tokens import Keys, TokenAccount, TokenOperator, TokenUser, scope

if TYPE_CHECKING:
    from collections.abc import Mapping

NOW = int(time.time())
OPERATOR = TokenOperator()
ACCOUNT = OPERATOR.account("A")
NONCE = "nonce"


def judge(
    user: TokenUser,
    *accounts: TokenAccount,
    operator: str = "",
    pinned: frozenset[str] = frozenset(),
    signature: str | None = None,
    now_s: float = NOW,
    **facts: Any,
) -> Verdict | LoginRefusal:
    known: Mapping[str, AccountClaims] = {
        account.key: account_claims(decode_token(account.token())) for account in accounts or (ACCOUNT,)
    }
    rules = TrustRules(operators=(operator_claims(decode_token(operator or OPERATOR.token())),), pinned=pinned)
    offered = Credentials(jwt=user.token, signature=user.keys.sign(NONCE.encode()) if signature is None else signature)
    seen = ConnectionFacts(nonce=NONCE.encode(), unix_ns=int(now_s * NS_PER_S), **facts)
    return TokenJudge(rules, known.get, signed).judge(offered, seen)


def test_a_user_gets_what_its_token_says() -> None:
    user = ACCOUNT.user(claims={"exp": NOW + 5}, subs=3, payload=4)
    verdict = judge(user)
    assert isinstance(verdict, Verdict)
    assert (verdict.user, verdict.account) == (user.keys.public, ACCOUNT.key)
    assert (verdict.max_subs, verdict.max_payload) == (3, 4)
    assert verdict.expires_unix_ns == (NOW + 5) * NS_PER_S
    assert b"User" in verdict.last_words
    assert user.token not in repr(verdict)


def test_a_connection_ends_with_what_ends_first() -> None:
    account = OPERATOR.account("E", claims={"exp": NOW + 2})
    verdict = judge(account.user(claims={"exp": NOW + 5}), account)
    assert isinstance(verdict, Verdict)
    assert verdict.expires_unix_ns == (NOW + 2) * NS_PER_S
    assert b"Account" in verdict.last_words


def test_a_strict_operator_signs_with_its_signing_keys_alone() -> None:
    strict = OPERATOR.token(strict_signing_key_usage=True)
    assert isinstance(judge(ACCOUNT.user(), operator=strict), LoginRefusal)
    account = OPERATOR.account("S", by=OPERATOR.signing)
    assert isinstance(judge(account.user(), account, operator=strict), Verdict)


def test_accounts_that_are_not_pinned_are_not_used() -> None:
    assert isinstance(judge(ACCOUNT.user(), pinned=frozenset({ACCOUNT.key})), Verdict)
    assert isinstance(judge(ACCOUNT.user(), pinned=frozenset({OPERATOR.account("X").key})), LoginRefusal)


@pytest.mark.parametrize(
    ("nats", "facts", "why"),
    [
        ({}, {"signature": ""}, "Signature missing"),
        ({}, {"signature": "A" * 86}, "not verified"),
        ({"src": ["10.0.0.0/8"]}, {"ip": "127.0.0.1"}, "Bad src"),
        ({"src": ["10.0.0.0/8"]}, {"ip": "x"}, "Bad src"),
        ({"allowed_connection_types": ["WEBSOCKET"]}, {}, "Connection type"),
        ({"allowed_connection_types": ["PIGEON"]}, {}, "Connection type"),
        ({"proxy_required": True}, {}, "prox"),
        ({"times": [{"start": "00:00:00", "end": "00:00:00"}]}, {}, "times"),
    ],
)
def test_what_does_not_hold_keeps_a_user_out(nats: dict[str, Any], facts: dict[str, Any], why: str) -> None:
    outcome = judge(ACCOUNT.user(**nats), **facts)
    assert isinstance(outcome, LoginRefusal)
    assert why in outcome.why


def test_a_token_counts_at_its_time_alone() -> None:
    user = ACCOUNT.user(claims={"nbf": NOW + 10, "exp": NOW + 20})
    found = [isinstance(judge(user, now_s=NOW + at_s), Verdict) for at_s in (9, 10, 20, 21)]
    assert found == [False, True, True, False]


def test_an_account_counts_at_its_time_alone() -> None:
    account = OPERATOR.account("T", claims={"nbf": NOW + 10, "exp": NOW + 20})
    found = [isinstance(judge(account.user(), account, now_s=NOW + at_s), Verdict) for at_s in (9, 10, 20, 21)]
    assert found == [False, True, True, False]


def test_who_has_the_rights_of_a_scope_brings_none() -> None:
    signer = Keys.new("account")
    account = OPERATOR.account("T", signing_keys=[scope(signer, sub={"allow": ["a"]}, subs=3)])
    signing = attrs.evolve(account, signers={"r": signer})
    verdict = judge(signing.user(role="r"), account)
    assert isinstance(verdict, Verdict)
    assert verdict.max_subs == 3
    for rights in ({"subs": 3}, {"pub": {"allow": ["b"]}}, {"bearer_token": True}, {"src": ["127.0.0.0/8"]}):
        nats: dict[str, Any] = dict(rights)
        assert isinstance(judge(signing.user(role="r", **nats), account), LoginRefusal)


@pytest.mark.parametrize(("said", "holds"), [(-2, 0), (-1, -1), (3, 3), (-(1 << 40), 0)])
def test_a_negative_limit_of_a_token_other_than_the_one_for_none_allows_nothing(said: int, holds: int) -> None:
    account = OPERATOR.account("N")
    verdict = judge(account.user(subs=said, payload=said), account)
    assert isinstance(verdict, Verdict)
    assert (verdict.max_subs, verdict.max_payload) == (holds, holds)


def test_a_revocation_counts_for_tokens_until_its_time() -> None:
    keys = Keys.new("user")
    account = OPERATOR.account("R", revocations={keys.public: NOW, "*": NOW - 100})
    tokens = [account.user(keys=keys, claims={"iat": NOW + at_s}) for at_s in (-1, 0, 1)]
    assert [isinstance(judge(user, account), Verdict) for user in tokens] == [False, False, True]
    others = [account.user(claims={"iat": NOW + at_s}) for at_s in (-100, -99)]
    assert [isinstance(judge(user, account), Verdict) for user in others] == [False, True]


def test_a_part_of_the_day_ends_a_connection() -> None:
    block = {"times": [{"start": "22:00:00", "end": "02:00:00"}], "times_location": "UTC"}
    conditions = conditions_of(block)
    midnight = 20_000 * 86400
    assert conditions.open_until(midnight - 1800) == midnight + 7200
    assert conditions.open_until(midnight - 7200) is None
    assert conditions.open_until(midnight + 12 * 3600) is None
    berlin = conditions_of({**block, "times_location": "Europe/Berlin"})
    assert berlin.open_until(midnight - 3 * 3600) == midnight  # two hours before and after midnight there
    assert berlin.open_until(midnight - 5400) is None  # over midnight it counts from its start, as in nats-server


def test_no_condition_holds_always() -> None:
    assert Conditions().open_until(NOW) == 0.0
    assert Conditions().admits_address("x")
    assert TimeRange.__slots__


def filled(entries: list[str], *, key: str = "allow", **user: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    signer = Keys.new("account")
    account = OPERATOR.account("acc", tags=["r:1", "r:2"], signing_keys=[scope(signer, pub={key: entries})])
    claims = account_claims(decode_token(account.token()))
    named = {"sub": Keys.new("user").public, "name": "ann", **user.pop("claims", {})}
    token = signer.token({**named, "nats": {"type": "user", "version": 2, "issuer_account": account.key, **user}})
    _, rights = claims.signer(signer.public)
    assert rights is not None
    permissions = fill_rights(rights, user_claims(decode_token(token)), claims).permissions
    assert permissions is not None
    return permissions.publish.allow, permissions.publish.deny


def test_templates_are_filled() -> None:
    assert filled(["{{name()}}.a", "{{NAME()}}", "b.{{account-name()}}"]) == (("ann.a", "ann", "b.acc"), ())
    assert filled(["{{account-tag(r)}}.{{tag(t)}}"], tags=["t:x", "t:y"])[0] == ("1.x", "1.y", "2.x", "2.y")
    assert filled(["a", "{{tag(t)}}"]) == (("a",), ())
    assert filled(["{{tag(t)}}"]) == ((), (">",))
    assert filled(["{{what()}}", "x{{name()}}"]) == (("x{{name()}}",), ())


def test_a_denied_template_that_comes_out_invalid_refuses_the_user() -> None:
    with pytest.raises(TemplateError):
        filled(["{{tag(t)}}"], key="deny")


def test_the_number_of_subjects_of_a_template_is_bounded() -> None:
    tags = [f"t:{number}" for number in range(101)]
    with pytest.raises(TemplateError, match="too many"):
        filled(["{{tag(t)}}.{{tag(t)}}"], tags=tags)
