"""Core NATS: greetings, delivery, and what malformed lines are answered with."""

from tests.conformance.steps import Call, Expect, Info, Publish, Raw, Scene, Step, Subscribe

BIG = 1024 * 1024 + 1
PEDANTIC = {"pedantic": True}
VERBOSE = {"verbose": True}
RAW: tuple[Step, ...] = (
    Raw(name="ping", data=b"PING\r\n"),
    Raw(name="ping in lower case", data=b"ping\r\n"),
    Raw(name="ping with bare newline", data=b"PING\n"),
    Raw(name="pong unasked", data=b"PONG\r\n"),
    Raw(name="publish to own subscription", data=b"SUB a 1\r\nPUB a 2\r\nhi\r\n"),
    Raw(name="publish with reply", data=b"SUB a 1\r\nPUB a r.e.p 2\r\nhi\r\n"),
    Raw(name="publish with tabs and spaces", data=b"SUB a 1\r\nPUB \t a   2\r\nhi\r\n"),
    Raw(name="publish empty", data=b"SUB a 1\r\nPUB a 0\r\n\r\n"),
    Raw(name="publish split in pieces", data=(b"SUB a 1\r\nPU", b"B a 2", b"\r\nh", b"i\r", b"\n")),
    Raw(name="headers", data=b"SUB a 1\r\nHPUB a 18 20\r\nNATS/1.0\r\nA: b\r\n\r\nhi\r\n"),
    Raw(name="headers with reply", data=b"SUB a 1\r\nHPUB a r 18 20\r\nNATS/1.0\r\nA: b\r\n\r\nhi\r\n"),
    Raw(name="headers only", data=b"SUB a 1\r\nHPUB a 18 18\r\nNATS/1.0\r\nA: b\r\n\r\n\r\n"),
    Raw(name="headers longer than total", data=b"HPUB a 20 10\r\nNATS/1.0\r\n\r\n", closes=True),
    Raw(
        name="headers not agreed",
        data=b"HPUB a 18 20\r\nNATS/1.0\r\nA: b\r\n\r\nhi\r\n",
        options={"headers": False, "no_responders": False},
        closes=True,
    ),
    Raw(
        name="headers stripped for an old client",
        data=b"SUB a 1\r\nPUB a 2\r\nhi\r\n",
        options={"headers": False, "no_responders": False},
    ),
    Raw(name="no responders without headers", data=b"", options={"headers": False, "no_responders": True}, closes=True),
    Raw(name="no responders", data=b"SUB inbox 1\r\nPUB nobody.home inbox 0\r\n\r\n"),
    Raw(name="no responders on a wildcard inbox", data=b"SUB in.* 7\r\nPUB nobody.home in.1 0\r\n\r\n"),
    Raw(
        name="no responders of several subscriptions",
        data=b"SUB in.1 7\r\nSUB in.* 8\r\nPUB nobody.home in.1 0\r\n\r\n",
    ),
    Raw(
        name="no responders not asked for",
        data=b"SUB inbox 1\r\nPUB nobody.home inbox 0\r\n\r\n",
        options={"no_responders": False},
    ),
    Raw(name="echo off", data=b"SUB a 1\r\nPUB a 2\r\nhi\r\n", options={"echo": False}),
    Raw(name="verbose", data=b"PING\r\nSUB a 1\r\nPUB a 0\r\n\r\nUNSUB 1\r\n", options=VERBOSE),
    Raw(name="pedantic subject", data=b"SUB a. 1\r\nPUB a..b 0\r\n\r\n", options=PEDANTIC),
    Raw(name="pedantic publish to a wildcard", data=b"PUB a.* 0\r\n\r\nPUB > 0\r\n\r\n", options=PEDANTIC),
    Raw(name="publish to a wildcard", data=b"SUB a.b 1\r\nPUB a.* 0\r\n\r\n"),
    Raw(name="unsub", data=b"SUB a 1\r\nUNSUB 1\r\nPUB a 0\r\n\r\n"),
    Raw(name="unsub max", data=b"SUB a 1\r\nUNSUB 1 2\r\n" + b"PUB a 1\r\nx\r\n" * 3),
    Raw(
        name="unsub max below what came",
        data=b"SUB a 1\r\n" + b"PUB a 1\r\nx\r\n" * 3 + b"UNSUB 1 2\r\nPUB a 0\r\n\r\n",
    ),
    Raw(name="unsub unknown", data=b"UNSUB 99\r\n"),
    Raw(name="unsub in verbose", data=b"UNSUB 99\r\n", options=VERBOSE),
    Raw(name="same sid twice", data=b"SUB a 1\r\nSUB b 1\r\nPUB a 0\r\n\r\nPUB b 0\r\n\r\n"),
    Raw(name="two subscriptions", data=b"SUB a 1\r\nSUB a 2\r\nUNSUB 1\r\nPUB a 0\r\n\r\n"),
    Raw(name="wildcards", data=b"SUB a.*.c 1\r\nPUB a.b.c 0\r\n\r\nPUB a.b.d 0\r\n\r\nPUB a.b 0\r\n\r\n"),
    Raw(name="full wildcard", data=b"SUB a.> 1\r\nPUB a.b.c 0\r\n\r\nPUB a 0\r\n\r\nPUB a.b 0\r\n\r\n"),
    Raw(name="wildcards inside tokens", data=b"SUB a*.b> 1\r\nPUB a*.b> 0\r\n\r\nPUB ax.by 0\r\n\r\n"),
    Raw(name="queue group takes one", data=b"SUB a q 1\r\nPUB a 0\r\n\r\n"),
    Raw(name="invalid subject to subscribe", data=b"SUB a..b 1\r\n"),
    Raw(name="subscribe leading dot", data=b"SUB .a 1\r\n"),
    Raw(name="subscribe trailing dot", data=b"SUB a. 1\r\n"),
    Raw(name="subscribe full wildcard inside", data=b"SUB a.>.b 1\r\n"),
    Raw(name="subscribe without sid", data=b"SUB a\r\n", closes=True),
    Raw(name="subscribe with too many words", data=b"SUB a b c d\r\n", closes=True),
    Raw(name="unsub without sid", data=b"UNSUB\r\n", closes=True),
    Raw(name="unsub with too many words", data=b"UNSUB 1 2 3\r\n", closes=True),
    Raw(name="unsub with a bad max", data=b"SUB a 1\r\nUNSUB 1 x\r\nPUB a 0\r\n\r\n"),
    Raw(name="unknown verb", data=b"HELLO\r\n", closes=True),
    Raw(name="http", data=b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", closes=True),
    Raw(name="empty line", data=b"\r\n", closes=True),
    Raw(name="nul byte", data=b"\0\r\n", closes=True),
    Raw(name="publish without size", data=b"PUB a\r\n", closes=True),
    Raw(name="publish size not a number", data=b"PUB a x\r\n\r\n", closes=True),
    Raw(name="publish negative size", data=b"PUB a -1\r\n\r\n", closes=True),
    Raw(name="publish size with sign", data=b"PUB a +1\r\nx\r\n", closes=True),
    Raw(name="publish huge size", data=b"PUB a 99999999999999999999\r\n", closes=True),
    Raw(name="publish with too many words", data=b"PUB a b c 1\r\nx\r\n", closes=True),
    Raw(name="publish payload longer than said", data=b"PUB a 1\r\nxy\r\n", closes=True),
    Raw(name="publish payload shorter than said", data=b"PUB a 3\r\nx\r\nPING\r\n", closes=True),
    Raw(name="publish says above max_payload", data=b"PUB a %d\r\n" % BIG, closes=True),
    Raw(name="headers above max_payload", data=b"HPUB a 12 %d\r\n" % BIG, closes=True),
    Raw(name="control line too long", data=b"PUB " + b"a" * 5000 + b" 0\r\n\r\n", closes=True),
    Raw(name="control line without end", data=b"SUB " + b"a" * 8192, closes=True),
    Raw(name="msg from a client", data=b"MSG a 1 0\r\n\r\n", closes=True),
    Raw(name="info from a client", data=b"INFO {}\r\n"),
    Raw(name="ok from a client", data=b"+OK\r\n"),
    Raw(name="err from a client", data=b"-ERR 'x'\r\n", closes=True),
    Raw(name="connect not json", data=b"CONNECT {x\r\n", options=None, closes=True),
    Raw(name="connect empty", data=b"CONNECT \r\n", options=None, closes=True),
    Raw(name="connect array", data=b"CONNECT []\r\n", options=None, closes=True),
    Raw(name="connect wrong types", data=b'CONNECT {"verbose":"yes"}\r\n', options=None, closes=True),
    Raw(name="connect unknown fields", data=b'CONNECT {"verbose":false,"x":[{}]}\r\n', options=None),
    Raw(name="connect protocol 2", data=b'CONNECT {"verbose":false,"protocol":2}\r\n', options=None, closes=True),
    Raw(name="connect twice", data=b'CONNECT {"verbose":true}\r\n', options={}),
    Raw(name="no connect", data=b"PING\r\n", options=None),
    Raw(name="publish before connect", data=b"SUB a 1\r\nPUB a 2\r\nhi\r\n", options=None),
    Raw(name="reply with a wildcard", data=b"SUB a 1\r\nPUB a r.* 0\r\n\r\n"),
    Raw(name="reply with a wildcard, pedantic", data=b"SUB a 1\r\nPUB a r.* 0\r\n\r\n", options=PEDANTIC),
    Raw(name="account info on a plain subject", data=b"SUB $SYS.> 1\r\nPUB $SYS.x 0\r\n\r\n"),
    Raw(name="non ascii subject", data="SUB å.ö 1\r\nPUB å.ö 0\r\n\r\n".encode()),
    Raw(name="not utf-8 subject", data=b"SUB \xff.a 1\r\nPUB \xff.a 0\r\n\r\n"),
)
DELIVERY: tuple[Step, ...] = (
    Subscribe(name="one", subject="d.*"),
    Subscribe(name="queue a", subject="d.q", queue="g"),
    Publish(name="publish", subject="d.q", payload=b"1", headers=(("A", "b"), ("A", "c"), ("empty", ""))),
    Expect(name="one gets it", of="one", count=1),
    Expect(name="the queue gets it", of="queue a", count=1),
    Call(name="request without responder", subject="d.nobody.here"),
    Call(name="request with headers without responder", subject="d.nobody.here", headers=(("A", "b"),)),
)

FULL = (
    b"SUB a 1\r\nSUB b 2\r\nSUB c 3\r\nPUB c 1\r\nx\r\nPUB a 1\r\ny\r\nSUB a.. 4\r\nSUB a 1\r\n"
    b"UNSUB 1\r\nSUB c 3\r\nPUB c 1\r\nz\r\n"
)
LIMITED: tuple[Step, ...] = (
    Raw(name="silent", data=FULL),
    Raw(name="verbose", data=FULL, options=VERBOSE),
    Raw(name="pedantic", data=FULL, options=PEDANTIC),
)

SCENES = (
    Scene(name="core/info", steps=[Info(name="greeting")]),
    Scene(name="core/lines", steps=RAW),
    Scene(name="core/delivery", steps=DELIVERY),
    Scene(name="core/max subscriptions", steps=LIMITED, config="max_subscriptions: 2"),
)
