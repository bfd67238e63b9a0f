"""Tokens of version 1 at every level: whom they let in, with what rights, and what does not count in them."""

from typing import Any, Final

from tests.conformance.scenes.operators import HOUR, NOW, PROBE, fails, works
from tests.conformance.steps import Call, Expect, Scene, Step, Subscribe
from tests.harness.tokens import (
    HEADER,
    HEADER_1,
    JETSTREAM,
    UNLIMITED,
    Keys,
    TokenOperator,
    TokenUser,
    scope,
)

OPERATOR: Final = TokenOperator()
STRANGER: Final = Keys.new("operator")
SIGNING: Final = Keys.new("account")
SCOPED: Final = Keys.new("account")
REVOKED: Final = Keys.new("user")
SYSTEM, A, B, NARROW, NO_BEARER, FOREIGN, EXPIRED, BY_SIGNING_KEY = (Keys.new("account") for _ in range(8))
NEWER: Final = OPERATOR.account("N", signing_keys=[scope(SCOPED)])
EXPORT: Final[dict[str, Any]] = {"name": "s", "subject": "s.>", "type": "stream", "token_req": True}


def account(keys: Keys, *, by: Keys = OPERATOR.keys, claims: dict[str, Any] | None = None, **nats: Any) -> str:
    limits = {**UNLIMITED, **nats.pop("limits", {})}
    return by.token_1("account", keys.public, claims=claims, limits=limits, **nats)


def activated(subject: str, token: str) -> dict[str, Any]:
    return {"name": "s", "subject": subject, "account": B.public, "type": "stream", "token": token}


def user(by: Keys = A, *, keys: Keys | None = None, claims: dict[str, Any] | None = None, **more: Any) -> TokenUser:
    own = keys or Keys.new("user")
    return TokenUser(own, by.token_1("user", own.public, claims=claims, **more))


def signed_as_version_2(header: dict[str, Any], **body: Any) -> TokenUser:
    own = Keys.new("user")
    return TokenUser(own, A.token({"sub": own.public, **body}, header=header))


OF_A: Final = account(
    A,
    signing_keys=[SIGNING.public],
    revocations={REVOKED.public: NOW + HOUR},
    limits={**JETSTREAM, "tiered_limits": {"R1": JETSTREAM}},
    default_permissions={"pub": {"deny": ["a"]}},
    mappings={"a": [{"subject": "b"}]},
    trace={},
    authorization={"xkey": "x"},
    imports=[
        activated("s.a", B.token_1("activation", A.public, subject="s.a", type="stream", max=1, src="10.0.0.0/8")),
        activated("s.b", B.token_1("activation", A.public, subject="s.*", type="stream")),
        {"name": "s", "subject": "s.c", "account": B.public, "type": "stream"},
        activated(
            "s.d",
            SIGNING.token_1(
                "activation", A.public, claims={"issuer_account": B.public}, subject="s.d", type="stream", payload=1
            ),
        ),
    ],
)
ACCOUNTS: Final = {
    A: OF_A,
    B: account(B, exports=[EXPORT], signing_keys=[SIGNING.public]),
    SYSTEM: account(SYSTEM),
    NARROW: account(NARROW, limits={"subs": 1, "payload": 4}),
    NO_BEARER: account(NO_BEARER, limits={"disallow_bearer": True}),
    FOREIGN: account(FOREIGN, by=STRANGER),
    EXPIRED: account(EXPIRED, claims={"exp": NOW - HOUR}),
    BY_SIGNING_KEY: account(BY_SIGNING_KEY, by=OPERATOR.signing),
    NEWER.keys: NEWER.token(),
}
OPERATORS_TOKEN: Final = OPERATOR.keys.token_1(
    "operator",
    OPERATOR.keys.public,
    signing_keys=[OPERATOR.signing.public],
    system_account=SYSTEM.public,
    strict_signing_key_usage=True,
    assert_server_version="99.0.0",
)
PRELOAD: Final = "\n".join(f"  {keys.public}: {token}" for keys, token in ACCOUNTS.items())
CONFIG: Final = f"operator: {OPERATORS_TOKEN}\nresolver: MEMORY\nresolver_preload {{\n{PRELOAD}\n}}\n"
LOGIN: Final[dict[str, Any]] = {"jwt": user(bearer_token=True).token}
UNBOUND: Final[dict[str, Any]] = {"subs": -1, "data": -1, "payload": -1}
NEWEST: Final = signed_as_version_2(HEADER_1, nats={"type": "user", "version": 2, **UNBOUND})

LET_IN: tuple[Step, ...] = (
    works("a user", user(), data=PROBE),
    works("the header of version 2", user(header=HEADER), data=PROBE),
    works("other letters", user(header={"typ": "Jwt", "alg": "ED25519"})),
    works("no section", user(claims={"nats": None}), data=PROBE),
    works("null for limits", user(subs=None, data=None, payload=None, max=None), data=PROBE),
    works("one subscription", user(subs=1), data=PROBE),
    fails("no bytes", user(payload=0), data=PROBE),
    fails("one byte", user(payload=1), data=PROBE),
    works("a number of messages", user(max=1), data=PROBE),
    works("permissions", user(pub={"allow": ["a"]}, sub={"deny": ["b"]}), data=PROBE),
    works("answers", user(sub={"allow": ["a"]}, resp={"max": 1}), data=PROBE),
    works("from this network", user(src="10.0.0.0/8,127.0.0.0/8")),
    works("all day", user(times=[{"start": "00:00:00", "end": "23:59:59"}, {"start": "23:00:00", "end": "01:00:00"}])),
    works("a bearer", user(bearer_token=True), sig=""),
    works("ways, which are of version 2", user(allowed_connection_types=["WEBSOCKET"])),
    works("proxies, which are of version 2", user(proxy_required=True)),
    works("a signing key", user(SIGNING, claims={"issuer_account": A.public}), data=PROBE),
    works("another type in the section", user(type="account", version=2, subs=1), data=PROBE),
    works("the type in the section alone", user(claims={"type": ""}, type="user", version=1), data=PROBE),
    works("an account's limit of subscriptions", user(NARROW), data=b"SUB a 1\r\nSUB b 2\r\nPING\r\n"),
    fails("an account's limit of bytes", user(NARROW), data=b"PUB a 5\r\nhello\r\nPING\r\n"),
    works("an account of a signing key", user(BY_SIGNING_KEY), data=PROBE),
    works("an account of version 2", user(NEWER.keys), data=PROBE),
    works("version 2 in an account of version 1", NEWEST, data=PROBE),
    works("a user of the system", user(SYSTEM)),
)
REFUSED: tuple[Step, ...] = (
    fails("the signature of version 2", signed_as_version_2(HEADER_1, type="user", nats={})),
    fails("version 1 with that of version 2", signed_as_version_2(HEADER, nats={"type": "user", "version": 1})),
    fails("version 0", signed_as_version_2(HEADER, nats={"type": "user", **UNBOUND})),
    fails("version 3", signed_as_version_2(HEADER, nats={"type": "user", "version": 3, **UNBOUND})),
    fails("version 2 with that of version 1", user(claims={"type": ""}, type="user", version=2, **UNBOUND)),
    fails("signed by another", user(signer=SIGNING)),
    fails("no algorithm", user(header={"typ": "jwt", "alg": "none"})),
    fails("an algorithm like it", user(header={"typ": "jwt", "alg": "ed25519x"})),
    fails("an account's type", user(claims={"type": "account"})),
    fails("a type that is a number", user(claims={"type": 5})),
    fails("a type in the section that is a number", user(type=5)),
    fails("a signing key named in the section", user(SIGNING, issuer_account=A.public)),
    fails("a signing key that is not listed", user(SCOPED, claims={"issuer_account": A.public})),
    fails("a scope", user(SCOPED, claims={"issuer_account": NEWER.key})),
    fails("not signed", user(), sig=""),
    fails("a bearer where there is none", user(NO_BEARER, bearer_token=True), sig=""),
    fails("revoked", user(keys=REVOKED)),
    fails("expired", user(claims={"exp": NOW - HOUR})),
    fails("not yet", user(claims={"nbf": NOW + HOUR})),
    fails("another network", user(src="10.0.0.0/8")),
    fails("never", user(times=[{"start": "00:00:00", "end": "00:00:00"}])),
    fails("a number of messages that is none", user(max="x")),
    fails("a limit that is none", user(subs="5")),
    fails("tags that are none", user(claims={"tags": "x"})),
    fails("tags in the section that are none", user(tags=5)),
    fails("an account of another operator", user(FOREIGN)),
    fails("an expired account", user(EXPIRED)),
    fails("the operator's token", TokenUser(Keys.new("user"), OPERATORS_TOKEN)),
    fails("an account's token", TokenUser(Keys.new("user"), OF_A)),
)
SHARED: tuple[Step, ...] = (
    Call(name="no JetStream", subject="$JS.API.INFO"),
    Subscribe(name="all", subject="s.>"),
    Call(name="settled", subject="nobody"),
    works("publish", user(B), data=b"".join(b"PUB s.%c 1\r\n%c\r\n" % (char, char) for char in b"cabd") + b"PING\r\n"),
    Expect(name="what was activated", of="all", count=3),
)

SCENES = (
    Scene(name="operators of version 1/let in", steps=LET_IN, config=CONFIG, login=LOGIN),
    Scene(name="operators of version 1/refused", steps=REFUSED, config=CONFIG, login=LOGIN),
    Scene(name="operators of version 1/shared", steps=SHARED, config=CONFIG, login=LOGIN),
)
