"""Tokens of version 1: the same claims as those of version 2 that say the same, and no more than they could say."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetraft.api.credentials.claim_fields import TokenError
from jetraft.api.credentials.claims import account_claims, operator_claims, user_claims
from jetraft.api.credentials.tokens import decode_token
from tests.harness.tokens import (
    HEADER,
    HEADER_1,
    JETSTREAM,
    UNLIMITED,
    Keys,
    TokenOperator,
    base64_text,
    claims_of,
    scope,
)

OPERATOR = TokenOperator()
ACCOUNT = OPERATOR.account("A")
SIGNING = Keys.new("account")
OTHER = Keys.new("account")
USER = Keys.new("user")
ISSUED: dict[str, Any] = {"iat": 5, "name": "n"}
RULES: dict[str, Any] = {
    "pub": {"allow": ["a.>"]}, "sub": {"deny": ["b q"]}, "resp": {"max": 2, "ttl": 5}, "bearer_token": True,
    "src": "10.0.0.0/8,127.0.0.1/32", "times": [{"start": "01:00:00", "end": "02:00:00"}], "times_location": "UTC",
}  # fmt: skip
EXPORT: dict[str, Any] = {"subject": "s", "type": "stream", "token_req": True}
IMPORT: dict[str, Any] = {"subject": "s", "account": OTHER.public, "type": "stream"}
VALUES = st.none() | st.booleans() | st.integers() | st.text(max_size=4) | st.lists(st.text(max_size=4), max_size=2)
BLOCKS = st.dictionaries(st.sampled_from(["allow", "subs", "R1", "key"]), VALUES, max_size=3)
FIELDS = ("pub", "sub", "subs", "src", "times", "max", "limits", "imports", "signing_keys", "tags", "type", "version")


@pytest.mark.parametrize("limits", [{}, {"subs": 0, "data": 0, "payload": 0}, {"subs": 3, "payload": 5}])
@pytest.mark.parametrize("beside", [{}, {"issuer_account": ACCOUNT.key, "tags": ["x:y"], "exp": 9, "nbf": 7}])
def test_a_user_is_the_same_in_both_versions(limits: dict[str, Any], beside: dict[str, Any]) -> None:
    signer = SIGNING if beside else ACCOUNT.keys
    old = signer.token_1("user", USER.public, claims={**ISSUED, **beside}, **RULES, **limits)
    within: dict[str, Any] = {key: beside[key] for key in ("issuer_account", "tags") if key in beside}
    nats: dict[str, Any] = {"subs": -1, "data": -1, "payload": -1, **RULES, **limits, **within}
    new = signer.token(claims_of("user", USER.public, nats, {**ISSUED, **beside}))
    assert user_claims(decode_token(old)) == user_claims(decode_token(new))


def test_an_account_is_the_same_in_both_versions() -> None:
    shared: dict[str, Any] = {
        "exports": [EXPORT],
        "imports": [{"subject": "t", "account": OTHER.public, "type": "service"}],
    }
    nats: dict[str, Any] = {
        **shared,
        "limits": UNLIMITED,
        "signing_keys": [SIGNING.public],
        "revocations": {USER.public: 5},
    }
    old = OPERATOR.keys.token_1("account", ACCOUNT.key, claims={**ISSUED, "tags": ["x"]}, **nats)
    new = OPERATOR.keys.token(claims_of("account", ACCOUNT.key, {**nats, "tags": ["x"]}, ISSUED))
    assert account_claims(decode_token(old)) == account_claims(decode_token(new))


def test_an_operator_is_the_same_in_both_versions() -> None:
    key = OPERATOR.keys.public
    nats: dict[str, Any] = {"signing_keys": [OPERATOR.signing.public], "system_account": ACCOUNT.key}
    nats["account_server_url"] = "http://h"
    old = OPERATOR.keys.token_1("operator", key, claims=ISSUED, **nats)
    new = OPERATOR.keys.token(claims_of("operator", key, nats, ISSUED))
    assert operator_claims(decode_token(old)) == operator_claims(decode_token(new))


def test_what_came_with_version_2_is_not_looked_at() -> None:
    later: dict[str, Any] = {"mappings": 5, "trace": {}, "authorization": {"xkey": "x"}, "default_permissions": 5}
    limits = {**UNLIMITED, **JETSTREAM, "tiered_limits": {"R1": JETSTREAM}}
    plain = OPERATOR.keys.token_1("account", ACCOUNT.key, claims=ISSUED, limits=UNLIMITED)
    account = account_claims(
        decode_token(OPERATOR.keys.token_1("account", ACCOUNT.key, claims=ISSUED, limits=limits, **later))
    )
    assert account == account_claims(decode_token(plain))
    assert account.jetstream is None
    token = ACCOUNT.keys.token_1("user", USER.public, allowed_connection_types=5, proxy_required=True, max=5)
    assert not user_claims(decode_token(token)).rights.proxy_required
    token = OPERATOR.keys.token_1("operator", OPERATOR.keys.public, strict_signing_key_usage=True)
    assert not operator_claims(decode_token(token)).strict


def test_the_section_of_a_user_may_be_absent() -> None:
    rights = user_claims(decode_token(ACCOUNT.keys.token_1("user", USER.public, claims={"nats": None}))).rights
    assert (rights.permissions, rights.max_subs, rights.max_data, rights.max_payload) == (None, -1, -1, -1)


def test_an_account_without_limits_has_nothing() -> None:
    account = account_claims(decode_token(OPERATOR.keys.token_1("account", ACCOUNT.key)))
    assert (account.max_subs, account.max_payload, account.max_leafnodes) == (0, 0, 0)
    assert account.sharing.limits.max_connections == 0


def test_the_type_beside_the_section_decides() -> None:
    token = ACCOUNT.keys.token_1("user", USER.public, type="account", version=2, subs=1)
    assert user_claims(decode_token(token)).rights.max_subs == 1


def test_a_section_may_name_version_1_itself() -> None:
    token = ACCOUNT.keys.token_1("", USER.public, type="user", version=1)
    assert user_claims(decode_token(token)).rights.max_subs == -1


def imported(token: str) -> str:
    return OPERATOR.keys.token_1("account", ACCOUNT.key, limits=UNLIMITED, imports=[{**IMPORT, "token": token}])


def test_an_activation_is_read() -> None:
    token = OTHER.token_1("activation", ACCOUNT.key, subject="s", type="stream", max=5, src="10.0.0.0/8")
    (found,) = account_claims(decode_token(imported(token))).sharing.imports
    assert found.activation is not None
    assert (found.activation.signer, found.activation.is_by_signing_key) == (OTHER.public, False)
    beside = {"issuer_account": OTHER.public}
    token = SIGNING.token_1("activation", ACCOUNT.key, claims=beside, subject="s", type="stream")
    (found,) = account_claims(decode_token(imported(token))).sharing.imports
    assert found.activation is not None
    assert (found.activation.signer, found.activation.is_by_signing_key) == (SIGNING.public, True)


@pytest.mark.parametrize(
    ("token", "why"),
    [
        (OTHER.token_1("activation", ACCOUNT.key, subject="s", kind="stream"), "neither a stream nor a service"),
        (OTHER.token_1("activation", ACCOUNT.key, subject="s", type="service"), "mismatch between the type"),
        (OTHER.token_1("activation", ACCOUNT.key, subject="s", type="stream", max="x"), "not an integer"),
        (OTHER.token_1("activation", OTHER.public, subject="s", type="stream"), "match the account it is being"),
        (SIGNING.token_1("activation", ACCOUNT.key, subject="s", type="stream"), "match the account of its import"),
        (OTHER.token_1("activation", ACCOUNT.key, signer=SIGNING, subject="s", type="stream"), "failed V1 signature"),
    ],
)
def test_an_activation_for_something_else_is_refused(token: str, why: str) -> None:
    with pytest.raises(TokenError, match=why):
        account_claims(decode_token(imported(token)))


@pytest.mark.parametrize(
    ("token", "why"),
    [
        (ACCOUNT.keys.token_1("user", USER.public, signer=OTHER), "failed V1 signature"),
        (ACCOUNT.keys.token({"sub": USER.public, "type": "user"}, header=HEADER_1), "failed V1 signature"),
        (ACCOUNT.keys.token(claims_of("user", USER.public, {}, {}), signer=OTHER, header=HEADER_1), "failed V2"),
        (ACCOUNT.keys.token_1("", USER.public, type="user", version=2), "failed V2 signature"),
        (OPERATOR.keys.token_1("user", USER.public), "prefixes"),
        (ACCOUNT.keys.token_1("operator", OPERATOR.keys.public), "prefixes"),
        (ACCOUNT.keys.token_1("user", ""), "no subject"),
        (ACCOUNT.keys.token_1("user", USER.public, header={"typ": "jwt", "alg": "none"}), "algorithm"),
        (ACCOUNT.keys.token_1("cluster", USER.public), "version 2 are expected"),
        (ACCOUNT.keys.token_1("authorization_response", USER.public), "version 2 are expected"),
        (ACCOUNT.keys.token_1("user", USER.public, max="x"), "not an integer"),
        (ACCOUNT.keys.token_1("user", USER.public, subs="5"), "not an integer"),
        (ACCOUNT.keys.token_1("user", USER.public, tags=5), "not a list"),
        (ACCOUNT.keys.token_1("user", USER.public, type=5), "not a text"),
        (ACCOUNT.keys.token_1("user", USER.public, version="1"), "not an integer"),
        (ACCOUNT.keys.token_1("user", USER.public, claims={"type": 5}), "not a text"),
        (ACCOUNT.keys.token_1("user", USER.public, claims={"tags": "x"}), "not a list"),
        (ACCOUNT.keys.token_1("user", USER.public, claims={"issuer_account": "x"}), "not an account public key"),
        (OPERATOR.keys.token_1("account", ACCOUNT.key, signing_keys=[scope(SIGNING)]), "not a list of texts"),
    ],
)
def test_what_is_no_token_of_version_1_is_refused_with_a_reason(token: str, why: str) -> None:
    with pytest.raises(TokenError, match=why) as error:
        read_any(token)
    assert "eyJ" not in str(error.value)


def test_what_was_signed_as_one_version_is_not_believed_as_the_other() -> None:
    header, claims, signature = ACCOUNT.keys.token(claims_of("user", USER.public, {}, {}), header=HEADER).split(".")
    for again in (f".{claims}.{signature}", f"{header}.{base64_text(f'{header}.{claims}'.encode())}.{signature}"):
        with pytest.raises(TokenError):
            decode_token(again)
    _, claims, signature = ACCOUNT.keys.token_1("user", USER.public).split(".")
    assert (
        decode_token(f"{header}.{claims}.{signature}").kind == "user"
    )  # its header was never signed, and says nothing


@given(st.sampled_from(["user", "account", "operator"]), st.dictionaries(st.sampled_from(FIELDS), VALUES | BLOCKS))
def test_signed_claims_of_any_form_are_read_or_refused(kind: str, nats: dict[str, Any]) -> None:
    signer, subject = {
        "user": (ACCOUNT.keys, USER),
        "account": (OPERATOR.keys, ACCOUNT.keys),
        "operator": (OPERATOR.keys, OPERATOR.keys),
    }[kind]
    try:
        read_any(signer.token_1(kind, subject.public, claims={"nats": nats}))
    except TokenError:
        return


def read_any(text: str) -> object:
    token = decode_token(text)
    return {"user": user_claims, "account": account_claims, "operator": operator_claims}[token.kind](token)
