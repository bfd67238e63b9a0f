"""Who may connect: tokens, users, hashed passwords, keys, no_auth_user, deadlines, and CONNECT said twice."""

from typing import Any

from tests.conformance.steps import Info, Raw, Scene, Step

HASH = "$2a$04$Wa1QpsUdfiEDGJjBL2/NtOSXT7xT/Cv5nQh3knGAdLT9hMYetrtSi"  # of "secret"
SEED = b"SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY"
KEY = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4"
OTHER_SEED = b"SUAAAAICAMCAKBQHBAEQUCYMBUHA6EARCIJRIFIWC4MBSGQ3DQOR4H776Y"
A: dict[str, Any] = {"user": "a", "pass": "b"}
HASHED: dict[str, Any] = {"user": "h", "pass": "secret"}
PING = b"PING\r\n"


def fails(name: str, *, data: bytes = PING, seed: bytes = b"", **options: Any) -> Raw:
    """A CONNECT that is refused."""
    return Raw(name=name, data=data, options=options, seed=seed, closes=True)


def works(name: str, *, data: bytes = PING, seed: bytes = b"", **options: Any) -> Raw:
    """A CONNECT that is not."""
    return Raw(name=name, data=data, options=options, seed=seed)


USERS: tuple[Step, ...] = (
    Info(name="greeting"),
    works("right", **A),
    fails("wrong password", **(A | {"pass": "x"})),
    fails("unknown user", **(A | {"user": "nobody"})),
    fails("nobody"),
    fails("a token", auth_token="b"),
    works("hashed", **HASHED),
    fails("hashed, wrong", **(HASHED | {"pass": "secretx"})),
    fails("hashed, the hash itself", **(HASHED | {"pass": HASH})),
    fails("hashed, longer than bcrypt reads", **(HASHED | {"pass": "secret" + "x" * 80})),
    works("hashed, with what follows in one piece", data=b"SUB a 1\r\nPUB a 2\r\nhi\r\n", **HASHED),
    works("no password", user="open"),
    fails("no password, one offered", **(A | {"user": "open"})),
    fails("another way to connect", **(A | {"user": "ws", "pass": "w"})),
    works("this way to connect", **(A | {"user": "std", "pass": "s"})),
    fails("an account of its choice", account="X", **A),
    fails("a new account", new_account=True, **A),
    fails("no responders without headers", no_responders=True, headers=False, **A),
    fails("no responders, and wrong", no_responders=True, headers=False, **(A | {"pass": "x"})),
    fails("a protocol that is not there, and wrong", protocol=7, **(A | {"pass": "x"})),
    works("in capitals", data=b'CONNECT {"USER":"a","Pass":"b","verbose":true}\r\n', **A),
    works("verbose", verbose=True, **A),
    *(
        Raw(name=f"begins with {name}", data=data, options=None, closes=True)
        for name, data in {
            "ping": PING,
            "sub": b"SUB a 1\r\n",
            "pub": b"PUB a 0\r\n\r\n",
            "garbage": b"XYZ\r\n",
            "something like connect": b"CFOO\r\n",
            "connect without a document": b"CONNECT\r\n",
        }.items()
    ),
    works("again, as another", data=b'CONNECT {"user":"h","pass":"secret"}\r\nSUB a 1\r\nPUB a 0\r\n\r\n', **A),
    works("again, with nothing", data=b"CONNECT {}\r\n", **A),
    works("again, with another wish", data=b'CONNECT {"verbose":true}\r\nSUB a 1\r\n', **A),
    fails("again, wrong", data=b'CONNECT {"user":"a","pass":"x"}\r\n', **A),
    fails("again, as nobody", data=b'CONNECT {"user":""}\r\n', **A),
    fails("again, hashed and wrong", data=b'CONNECT {"user":"h","pass":"x"}\r\nPUB a 0\r\n\r\n', **A),
    fails("again, malformed", data=b"CONNECT {x\r\n", **A),
)
KEYS: tuple[Step, ...] = (
    works("signed", seed=SEED),
    fails("signed by another", seed=OTHER_SEED),
    fails("without a signature", nkey=KEY),
    fails("with another signature", nkey=KEY, sig="A" * 86),
    fails("with no base64", nkey=KEY, sig="!!!"),
    fails("junk", nkey="junk", sig="A" * 86),
    works("a user with a password", **A),
    fails("its wrong password", **(A | {"pass": "x"})),
    works("a key and a wrong password", seed=SEED, **(A | {"pass": "x"})),
    fails("a wrong key and a password", nkey="junk", sig="A" * 86, **A),
)
NOBODY: tuple[Step, ...] = (
    works("nobody"),
    works("the user", **A),
    fails("the user, wrong", **(A | {"pass": "x"})),
    fails("a password alone", **(A | {"user": ""})),
    fails("a token", auth_token="x"),
    works("a key", nkey="x"),
)


def without_connect(*, closes: bool) -> tuple[Step, ...]:
    """What happens to those who begin at once."""
    data = {"ping": PING, "sub": b"SUB a 1\r\nPUB a 2\r\nhi\r\n", "garbage": b"XYZ\r\n"}
    return tuple(
        Raw(name=f"begins with {name}", data=text, options=None, closes=closes or name == "garbage")
        for name, text in data.items()
    )


TOKEN: tuple[Step, ...] = (
    works("right", auth_token="secret"),
    fails("wrong", auth_token="x"),
    fails("as a user", user="secret"),
    fails("nothing"),
)
ONE: tuple[Step, ...] = (
    works("right", **A),
    fails("wrong", **(A | {"pass": "x"})),
    fails("another", **(A | {"user": "z"})),
    fails("nothing"),
    works("permissions are for users of a list", data=b"PUB x 0\r\n\r\n", **A),
)
SILENT: tuple[Step, ...] = (
    Raw(name="silence", data=b"", options=None, closes=True),
    Raw(name="half a connect", data=b'CONNECT {"user":"a"', options=None, closes=True),
    Raw(
        name="a connect in pieces",
        data=(b"CON", b'NECT {"user":"a",', b'"pass":"b","verbose":false}\r', b"\n"),
        options=None,
    ),
)
LIST = f"""users: [
    {{user: a, password: b}}, {{user: h, password: "{HASH}"}}, {{user: open}},
    {{user: ws, password: w, allowed_connection_types: [WEBSOCKET]}},
    {{user: std, password: s, connection_types: [standard]}}
]"""
WITH_KEY = f"authorization {{ users: [ {{nkey: {KEY}}}, {{user: a, password: b}} ] }}"

SCENES = (
    Scene(name="auth/users", steps=USERS, config=f"authorization {{ {LIST} }}", login=A),
    Scene(name="auth/keys", steps=KEYS, config=WITH_KEY, login=A),
    Scene(
        name="auth/no_auth_user",
        steps=(Info(name="greeting"), *NOBODY, *without_connect(closes=False)),
        config=f"authorization {{ {LIST} }}\nno_auth_user: a",
    ),
    Scene(
        name="auth/no_auth_user that has a key",
        steps=(works("nobody"), works("the key without a signature", nkey=KEY), *without_connect(closes=True)),
        config=f"{WITH_KEY}\nno_auth_user: {KEY}",
    ),
    Scene(
        name="auth/no_auth_user of another kind of connection",
        steps=(fails("nobody"), *without_connect(closes=True)),
        config="authorization { users: [{user: w, password: w, allowed_connection_types: [WEBSOCKET]}, "
        "{user: a, password: b}] }\nno_auth_user: w",
        login=A,
    ),
    Scene(
        name="auth/no_auth_user that has a hash",
        steps=(fails("nobody"), works("the user", **HASHED)),
        config=f"authorization {{ {LIST} }}\nno_auth_user: h",
        login=A,
    ),
    Scene(name="auth/token", steps=TOKEN, config="authorization { token: secret }", login={"auth_token": "secret"}),
    Scene(
        name="auth/hashed token",
        steps=TOKEN,
        config=f'authorization {{ token: "{HASH}" }}',
        login={"auth_token": "secret"},
    ),
    Scene(
        name="auth/one user",
        steps=ONE,
        config="authorization { user: a, password: b, permissions: { publish: y } }",
        login=A,
    ),
    Scene(name="auth/deadline", steps=SILENT, config=f"authorization {{ {LIST}, timeout: 0.5 }}", login=A),
)
