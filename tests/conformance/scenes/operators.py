"""Operator mode: whom tokens let in, with what permissions and limits, and who is refused."""

import time
from typing import Any, Final

import attrs

from tests.conformance.steps import Call, Info, Raw, Scene, Step, stream
from tests.harness.tokens import JETSTREAM, Keys, TokenOperator, TokenUser, scope

NOW: Final = int(time.time())
HOUR: Final = 3600
PING: Final = b"PING\r\n"
NAMED: Final[dict[str, Any]] = {"user": "a", "pass": "b"}
PROBE: Final = b"PUB a 2\r\nhi\r\nSUB a 1\r\nSUB b 2\r\nPUB b 0\r\n\r\nPING\r\n"

OPERATOR: Final = TokenOperator()
STRANGER: Final = TokenOperator()
SIGNING: Final = Keys.new("account")
SCOPED: Final = Keys.new("account")
TEMPLATED: Final = Keys.new("account")
NOT_LISTED: Final = Keys.new("account")
REVOKED: Final = Keys.new("user")
RENEWED: Final = Keys.new("user")
SYSTEM: Final = OPERATOR.account("SYS")
A: Final = attrs.evolve(
    OPERATOR.account(
        "A",
        tags=["region:eu", "region:us"],
        limits=JETSTREAM,
        revocations={REVOKED.public: NOW + HOUR, RENEWED.public: NOW - HOUR},
        signing_keys=[
            SIGNING.public,
            scope(SCOPED, pub={"allow": ["a"]}, sub={"allow": ["a"]}, subs=1, payload=4),
            scope(
                TEMPLATED,
                pub={"allow": ["{{name()}}.x", "{{tag(team)}}.{{account-tag(region)}}", "{{account-name()}}"]},
                sub={"allow": ["{{subject()}}", "{{account-subject()}}", "{{tag(none)}}", "_INBOX.>"]},
            ),
        ],
    ),
    signers={"signing": SIGNING, "scoped": SCOPED, "templated": TEMPLATED, "not listed": NOT_LISTED},
)
BY_SIGNING_KEY: Final = OPERATOR.account("B", by=OPERATOR.signing, default_permissions={"pub": {"deny": ["a"]}})
FOREIGN: Final = STRANGER.account("F")
EXPIRED: Final = OPERATOR.account("E", claims={"exp": NOW - HOUR})
ALL_REVOKED: Final = OPERATOR.account("R", revocations={"*": NOW + HOUR})
NO_BEARER: Final = OPERATOR.account("N", limits={"disallow_bearer": True})
NARROW: Final = OPERATOR.account("L", limits={"subs": 1, "payload": 4})
UNKNOWN: Final = OPERATOR.account("U")
CONFIG: Final = OPERATOR.config(SYSTEM, A, BY_SIGNING_KEY, FOREIGN, EXPIRED, ALL_REVOKED, NO_BEARER, NARROW)
LOGIN: Final[dict[str, Any]] = {"jwt": A.user(bearer_token=True).token}


def works(name: str, user: TokenUser, /, *, data: bytes = PING, **options: Any) -> Raw:
    """A CONNECT that is not refused."""
    return Raw(name=name, data=data, options=options, user=user)


def fails(name: str, user: TokenUser | None, /, *, data: bytes = PING, **options: Any) -> Raw:
    """A CONNECT that is."""
    return Raw(name=name, data=data, options=options, user=user, closes=True)


def changed(user: TokenUser, position: int) -> TokenUser:
    """The same with another character in its token."""
    char = "A" if user.token[position] != "A" else "B"
    return attrs.evolve(user, token=user.token[:position] + char + user.token[position + 1 :])


def other_header(**header: Any) -> TokenUser:
    """A user whose token has another header, signed all the same."""
    keys = Keys.new("user")
    claims = {"sub": keys.public, "nats": {"type": "user", "version": 2, "subs": -1, "data": -1, "payload": -1}}
    return TokenUser(keys, A.keys.token(claims, header={"typ": "JWT", "alg": "ed25519-nkey", **header}))


USER: Final = A.user()
ALL_DAY: Final = [{"start": "00:00:00", "end": "23:59:59"}, {"start": "23:00:00", "end": "01:00:00"}]
LET_IN: tuple[Step, ...] = (
    Info(name="greeting"),
    works("a user", USER, data=PROBE),
    works("a user of a signing key", A.user(role="signing", subs=-1, data=-1, payload=-1), data=PROBE),
    works("a user of a scoped key", A.user(role="scoped"), data=PROBE),
    fails("too many bytes for a scoped key", A.user(role="scoped"), data=b"PUB a 5\r\nhello\r\nPING\r\n"),
    works("an account of a signing key", BY_SIGNING_KEY.user(), data=PROBE),
    works("a bearer without a signature", A.user(bearer_token=True), sig=""),
    fails("no bytes in the token", A.user(payload=0, data=0), data=PROBE),
    works("two subscriptions at most", A.user(subs=2), data=b"SUB a 1\r\nSUB b 2\r\nSUB c 3\r\nPING\r\n"),
    fails("three bytes at most", A.user(payload=3), data=b"PUB a 4\r\nhiya\r\nPING\r\n"),
    works("the account's limit of subscriptions", NARROW.user(), data=b"SUB a 1\r\nSUB b 2\r\nPING\r\n"),
    fails("the account's limit of bytes", NARROW.user(), data=b"PUB a 5\r\nhello\r\nPING\r\n"),
    works("own permissions before the account's", BY_SIGNING_KEY.user(pub={"deny": ["b"]}), data=PROBE),
    works("permissions", A.user(pub={"allow": ["a"]}, sub={"deny": ["b"]}), data=PROBE),
    works(
        "answers",
        A.user(sub={"allow": ["a", "r"]}, resp={"max": 1, "ttl": 10**9 * 60}),
        data=b"PUB b 0\r\n\r\nPING\r\n",
    ),
    works("a queue", A.user(sub={"allow": ["a q"]}), data=b"SUB a 1\r\nSUB a q 2\r\nSUB a p 3\r\nPING\r\n"),
    works("from this network", A.user(src=["10.0.0.0/8", "127.0.0.0/8"])),
    works("from this network, as a text", A.user(src="10.0.0.0/8,127.0.0.0/8")),
    works("all day", A.user(times=[{"start": "00:00:00", "end": "00:00:00"}, *ALL_DAY])),
    works("this way", A.user(allowed_connection_types=["STANDARD"])),
    works("this way among unknown ones", A.user(allowed_connection_types=["PIGEON", "standard"])),
    works("renewed after it was revoked", A.user(keys=RENEWED)),
    works("a wrong password beside it", USER, **NAMED),
    works("another key beside it", USER, nkey="junk"),
    works("what expires later", A.user(claims={"exp": NOW + HOUR})),
    works("not before now", A.user(claims={"nbf": NOW - HOUR})),
    works("a header in other letters", other_header(typ="jwt", alg="ED25519-NKEY")),
    works("connect again", USER, data=b'CONNECT {"verbose":true}\r\nPING\r\n'),
    works("a user of the system", SYSTEM.user()),
)
TEMPLATES: tuple[Step, ...] = tuple(
    works(
        name,
        user,
        data=b"PUB ann.x 0\r\n\r\nPUB t.eu 0\r\n\r\nPUB t.us 0\r\n\r\nPUB A 0\r\n\r\nPUB b 0\r\n\r\nPING\r\n",
    )
    for name, user in {
        "name and tags": A.user(role="templated", claims={"name": "ann"}, tags=["team:t"]),
        "no tags": A.user(role="templated", claims={"name": "ann"}),
        "two tags": A.user(role="templated", claims={"name": "bob"}, tags=["team:t", "team:u"]),
        "a name that is no token": A.user(role="templated", claims={"name": "a b"}),
        "a name with a dot": A.user(role="templated", claims={"name": "ann.x"}),
        "a name that is a wildcard": A.user(role="templated", claims={"name": "*"}),
    }.items()
)
REFUSED: tuple[Step, ...] = (
    fails("nobody", None),
    fails("a name", None, **NAMED),
    fails("no token", None, jwt="x"),
    fails("an empty token", None, jwt=".."),
    fails("a token of four parts", None, jwt=USER.token + ".x"),
    fails("without a signature", USER, sig=""),
    fails("the signature of another", USER, sig="A" * 86),
    fails("no base64", USER, sig="!!!"),
    fails("changed claims", changed(USER, USER.token.index(".") + 20)),
    fails("a changed signature", changed(USER, len(USER.token) - 20)),
    fails("another type", other_header(typ="JWS")),
    fails("no algorithm", other_header(alg="none")),
    fails("an algorithm with a shared secret", other_header(alg="HS256")),
    fails("an algorithm of others", other_header(alg="EdDSA")),
    fails("expired", A.user(claims={"exp": NOW - HOUR})),
    fails("not yet", A.user(claims={"nbf": NOW + HOUR})),
    fails("an account that is not there", UNKNOWN.user()),
    fails("an account of another operator", FOREIGN.user()),
    fails("an expired account", EXPIRED.user()),
    fails("a signing key that is not listed", A.user(role="not listed")),
    fails("an operator's token", TokenUser(Keys.new("user"), OPERATOR.token())),
    fails("an account's token", TokenUser(Keys.new("user"), A.token())),
    fails("revoked", A.user(keys=REVOKED)),
    fails("all revoked", ALL_REVOKED.user()),
    fails("a bearer where there is none", NO_BEARER.user(bearer_token=True)),
    fails("another way", A.user(allowed_connection_types=["WEBSOCKET"])),
    fails("an unknown way alone", A.user(allowed_connection_types=["PIGEON"])),
    fails("another network", A.user(src=["10.0.0.0/8"])),
    fails("no network", A.user(src=["x"])),
    fails("never", A.user(times=[{"start": "00:00:00", "end": "00:00:00"}])),
    fails("no time", A.user(times=[{"start": "x", "end": "00:00:00"}])),
    fails("nowhere", A.user(times=ALL_DAY, times_location="Nowhere")),
    fails("rights beside a scope", A.user(role="scoped", subs=5)),
    fails("a permission with blanks", A.user(pub={"allow": ["a b"]})),
    fails("wrong types", A.user(pub="a")),
    fails("a wrong type of a limit", A.user(subs="5")),
)
STREAMS: tuple[Step, ...] = (
    Call(name="account", subject="$JS.API.INFO"),
    stream("S", ["s"]),
    Call(name="publish", subject="s", payload=b"x"),
)

SCENES = (
    Scene(name="operators/let in", steps=LET_IN, config=CONFIG, login=LOGIN),
    Scene(name="operators/templates", steps=TEMPLATES, config=CONFIG, login=LOGIN),
    Scene(name="operators/refused", steps=REFUSED, config=CONFIG, login=LOGIN),
    Scene(name="operators/streams", steps=STREAMS, config=CONFIG, login=LOGIN),
)
