"""Whatever bytes are offered as a token, there is a value or a TokenError, without a part of the token in its text."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetraft.api.credentials.claim_fields import TokenError
from jetraft.api.credentials.claims import account_claims, operator_claims, user_claims
from jetraft.api.credentials.tokens import TOKEN_BYTES_MAX, decode_token
from jetraft.api.exchange.values import TraceDestination
from jetraft.store.model.state import AccountLimits
from jetraft.store.model.tiers import Allowance, TieredLimits
from tests.harness.tokens import Keys, TokenOperator, base64_text, scope

OPERATOR = TokenOperator()
SCOPED = Keys.new("account")
ACCOUNT = OPERATOR.account("A", signing_keys=[scope(SCOPED, pub={"allow": ["{{name()}}"]})])
USER = ACCOUNT.user(pub={"allow": ["a.>"]}, sub={"allow": ["b q"]}, resp={"max": 2, "ttl": 5}, tags=["x:y"])
NOTHING: dict[str, Any] = {"max_memory": 0, "max_storage": 0, "max_streams": 0, "max_consumers": 0}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
FIELDS = (
    "pub", "sub", "resp", "subs", "payload", "src", "times", "times_location", "bearer_token", "tags", "limits",
    "allowed_connection_types", "signing_keys", "revocations", "default_permissions", "issuer_account",
    "system_account", "tiered_limits", "trace",
)  # fmt: skip


def test_a_user_is_read() -> None:
    user = user_claims(decode_token(USER.token))
    assert (user.subject, user.issuer, user.account) == (USER.keys.public, ACCOUNT.key, ACCOUNT.key)
    permissions = user.rights.permissions
    assert permissions is not None
    assert permissions.publish.allow == ("a.>",)
    assert permissions.subscribe.allow == ("b q",)
    assert permissions.responses is not None
    assert (permissions.responses.max_msgs, permissions.responses.expires_ns) == (2, 5)


def test_an_account_and_its_scope_are_read() -> None:
    account = account_claims(decode_token(ACCOUNT.token(limits={"mem_storage": 5, "disk_storage": -1, "streams": 3})))
    assert account.issuer == OPERATOR.keys.public
    assert isinstance(account.jetstream, AccountLimits)
    assert (account.jetstream.max_memory, account.jetstream.max_storage, account.jetstream.max_streams) == (5, -1, 3)
    is_known, rights = account.signer(SCOPED.public)
    assert is_known
    assert rights is not None
    assert rights.max_subs == -1
    assert account.signer(OPERATOR.keys.public) == (False, None)


@pytest.mark.parametrize(
    ("trace", "found"),
    [
        (None, None),
        ({"dest": "tr.d"}, TraceDestination(dest=b"tr.d", sampling=100)),
        ({"dest": "tr.d", "sampling": 0}, TraceDestination(dest=b"tr.d", sampling=100)),
        ({"dest": "tr.d", "sampling": 1}, TraceDestination(dest=b"tr.d", sampling=1)),
    ],
)
def test_an_account_says_where_messages_are_traced_to(trace: object, found: TraceDestination | None) -> None:
    assert account_claims(decode_token(ACCOUNT.token(trace=trace))).trace == found


@pytest.mark.parametrize(
    ("trace", "why"),
    [
        ({}, "cannot be empty"),
        ({"sampling": 5}, "cannot be empty"),
        ({"dest": "tr.*"}, "not a valid publish subject"),
        ({"dest": "a b"}, "not a valid publish subject"),
        ({"dest": "a", "sampling": 101}, "range"),
        ({"dest": "a", "sampling": -1}, "range"),
        ({"dest": "a", "sampling": "5%"}, "not an integer"),
        ({"dest": 5}, "not a text"),
        ([], "not an object"),
    ],
)
def test_a_destination_of_traces_that_cannot_be_is_refused(trace: object, why: str) -> None:
    with pytest.raises(TokenError, match=why):
        account_claims(decode_token(ACCOUNT.token(trace=trace)))


@pytest.mark.parametrize(
    ("limits", "jetstream"),
    [
        ({}, None),
        ({"tiered_limits": {"R1": {"streams": 5}}}, None),
        ({"mem_storage": 5, "tiered_limits": {"R1": {"streams": 5}}}, None),
        ({"mem_storage": 5}, AccountLimits(**{**NOTHING, "max_memory": 5})),
        (
            {"disk_storage": -1, "tiered_limits": {"R1": {"mem_storage": 5, "max_ack_pending": 3}, "R3": {}}},
            TieredLimits(
                {
                    "R1": AccountLimits(**{**NOTHING, "max_memory": 5, "max_ack_pending": 3}),
                    "R3": AccountLimits(**NOTHING),
                }
            ),
        ),
    ],
)
def test_an_account_has_jetstream_where_some_limit_is_not_nothing(
    limits: dict[str, Any], jetstream: Allowance | None
) -> None:
    assert account_claims(decode_token(ACCOUNT.token(limits=limits))).jetstream == jetstream


@pytest.mark.parametrize(
    ("tiers", "why"),
    [
        ({"": {"mem_storage": 5}}, "can not contain a blank"),
        ({"R1": 5}, "not an object"),
        ({"R1": {"mem_storage": "5"}}, "not an integer"),
        ({f"R{number}": {} for number in range(101)}, "too many tiers"),
    ],
)
def test_tiers_that_cannot_be_are_refused(tiers: dict[str, Any], why: str) -> None:
    with pytest.raises(TokenError, match=why):
        account_claims(decode_token(ACCOUNT.token(limits={"tiered_limits": tiers})))


@pytest.mark.parametrize(
    ("block", "why"),
    [
        ({"auth_users": ["U"]}, "not a user public key"),
        ({"allowed_accounts": [ACCOUNT.key]}, "without users"),
        ({"auth_users": [ACCOUNT.user().keys.public], "allowed_accounts": ["A"]}, "not an account public key"),
        ({"auth_users": [ACCOUNT.user().keys.public], "xkey": "X"}, "not a public xkey"),
    ],
)
def test_external_authorization_that_cannot_be_is_refused(block: dict[str, Any], why: str) -> None:
    with pytest.raises(TokenError, match=why):
        account_claims(decode_token(ACCOUNT.token(authorization=block)))


@pytest.mark.parametrize(
    ("token", "why"),
    [
        ("", "chunks"),
        ("a.b", "chunks"),
        ("a.b.c.d", "chunks"),
        ("é.b.c", "base64"),
        ("=.b.c", "base64"),
        (f"{base64_text(b'[]')}.b.c", "no JSON object"),
        (f"{base64_text(b'{')}.b.c", "no JSON"),
        (f"{base64_text(b'{}')}.b.c", "type"),
        ("a" * (TOKEN_BYTES_MAX + 1), "too long"),
        (f"{'a' * 2000}.b.c", "base64"),
        (f"{base64_text(b'[' * 700)}.b.c", "no JSON"),
        (ACCOUNT.keys.token({"sub": "x", "nats": {"version": 3, "type": "user"}}), "newer version"),
        (ACCOUNT.keys.token({"sub": "x", "nats": {"type": "user"}}), "2 or less - received 0"),
        (ACCOUNT.keys.token({"sub": "x"}), "2 or less - received 0"),
        (ACCOUNT.keys.token({"sub": "x", "nats": 5}), "not an object"),
        (ACCOUNT.keys.token({"sub": "x", "nats": {"version": 2, "type": "operator"}}), "prefixes"),
        (ACCOUNT.keys.token({"sub": "x", "iss": "x", "nats": {"version": 2, "type": "user"}}), "prefixes"),
        (ACCOUNT.keys.token({"nats": {"version": 2, "type": "user"}}), "no subject"),
        (ACCOUNT.keys.token({"sub": "x", "exp": True, "nats": {"version": 2, "type": "user"}}), "not an integer"),
        (
            ACCOUNT.keys.token({"sub": "x", "nats": {"version": 2, "type": "user"}}, signer=Keys.new("account")),
            "signature",
        ),
    ],
)
def test_a_text_that_is_no_token_is_refused_with_a_reason(token: str, why: str) -> None:
    with pytest.raises(TokenError, match=why) as error:
        decode_token(token)
    assert "eyJ" not in str(error.value)


@pytest.mark.parametrize("header", [{"alg": "none"}, {"alg": "HS256"}, {"alg": "ed25519x"}, {"alg": None}, {"alg": 5}])
def test_a_token_does_not_choose_how_it_is_verified(header: dict[str, Any]) -> None:
    claims = {"sub": USER.keys.public, "nats": {"version": 2, "type": "user"}}
    with pytest.raises(TokenError):
        decode_token(ACCOUNT.keys.token(claims, header={"typ": "JWT", **header}))


@given(st.binary(max_size=300) | st.binary(max_size=100).map(lambda raw: b".".join([raw, raw, raw])))
def test_any_bytes_are_refused(raw: bytes) -> None:
    with pytest.raises(TokenError):
        decode_token(raw)


@given(JSON, JSON, st.text(max_size=20))
def test_any_json_is_refused(header: Any, claims: Any, signature: str) -> None:
    parts = [base64_text(json.dumps(part).encode()) for part in (header, claims)]
    with pytest.raises(TokenError):
        decode_token(".".join([*parts, signature]))


@given(st.sampled_from(["user", "account", "operator"]), st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=4))
def test_signed_claims_of_any_form_are_read_or_refused(kind: str, nats: dict[str, Any]) -> None:
    signer, subject = {
        "user": (ACCOUNT.keys, USER.keys),
        "account": (OPERATOR.keys, ACCOUNT.keys),
        "operator": (OPERATOR.keys, OPERATOR.keys),
    }[kind]
    text = signer.token({"sub": subject.public, "nats": {**nats, "type": kind, "version": 2}})
    read = {"user": user_claims, "account": account_claims, "operator": operator_claims}[kind]
    try:
        read(decode_token(text))
    except TokenError:
        return


@given(st.integers(0, len(USER.token) - 1), st.characters(max_codepoint=127))
def test_a_changed_character_is_noticed(position: int, char: str) -> None:
    changed = USER.token[:position] + char + USER.token[position + 1 :]
    if changed == USER.token or position == len(USER.token) - 1:  # the last one has bits that are not used
        return
    with pytest.raises(TokenError):
        decode_token(changed)


def test_no_secret_is_in_a_repr() -> None:
    token = decode_token(USER.token)
    assert "pub" not in repr(token)
