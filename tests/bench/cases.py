"""The benchmark's cases: names that stay for ever, so that figures can be compared across versions.

A case is a work for the load generator. The peer always runs its default configuration (fsync every two minutes), and
once more, under the suffix `_always`, with `sync_interval: always`; jetraft always runs its own default: fsynced before
the ack, on a majority for three replicas.
"""

from typing import Literal

import attrs

ALWAYS_SUFFIX = "_always"
ALWAYS_CONFIG = "jetstream { sync_interval: always }\n"
# The peer with `always` is 20 to 100 times slower on asynchronous publishes: the same work would take hours.
ALWAYS_PEER_SHARE = 0.03
ALWAYS_PEER_MSGS_MIN = 1500


# The generator names nobody, so it is the user whom `no_auth_user` says.
PERMISSIONS_CONFIG = """
authorization { users: [ { user: bench, password: x, permissions: {
    publish: {
        allow: [ "a.>", "b.*.c", "d.e.f", "bench.>", "orders.*.new", "$JS.API.>", "$JS.ACK.>", "_INBOX.>" ]
        deny: [ "bench.secret.>", "*.internal" ]
    }
    subscribe: { allow: [ "bench.>", "_INBOX.>", "orders.>" ], deny: [ "bench.secret.>" ] }
} } ] }
no_auth_user: bench
"""


@attrs.frozen(kw_only=True)
class Case:
    """One line of the table. `msgs` is about a second's work of the faster server; `floor` is what must be reached."""

    name: str
    mode: Literal["pub", "fan", "req", "jspub", "fast", "atomic", "fetch", "get", "push"]
    msgs: int
    options: tuple[str, ...] = ()
    nodes: int = 1
    fill: int = 0  # messages that are stored before the measured part reads them
    floor: float | None = None
    peer_always: bool = False
    paced: bool = False  # the processor time is that of the messages, without what is prepared before
    config: str = ""  # of both servers
    quick: bool = False
    tls: bool = False

    @property
    def jetstream(self) -> bool:
        """True for the cases that store messages."""
        return self.mode in ("jspub", "fast", "atomic", "fetch", "get", "push")


def many_streams(prefix: str, streams: int, *, msgs: int, nodes: int = 1) -> Case:
    """A connection for each of many streams, with one message in flight."""
    options = (f"conns={streams}", f"streams={streams}", "window=1", f"replicas={nodes}")
    return Case(name=f"{prefix}_{streams}s_w1", mode="jspub", msgs=msgs, options=options, nodes=nodes, paced=True)


CORE = (
    Case(name="pub_none", mode="pub", msgs=4_000_000, floor=2.5, quick=True),
    Case(name="pub_none_1k", mode="pub", msgs=1_000_000, options=("size=1024",), floor=1.5),
    Case(name="fan_1_1", mode="fan", msgs=2_000_000, options=("subs=1",), floor=2.5, quick=True),
    Case(name="fan_1_1_1k", mode="fan", msgs=600_000, options=("subs=1", "size=1024"), floor=1.5),
    Case(name="fan_1_8", mode="fan", msgs=500_000, options=("subs=8",), floor=3, quick=True),
    Case(name="req_reply", mode="req", msgs=15_000, options=("size=16",), floor=1, quick=True),
)
R1 = (
    Case(name="js_r1_w1", mode="jspub", msgs=4_000, options=("window=1",)),
    Case(name="js_r1_w256", mode="jspub", msgs=400_000, options=("window=256",), floor=1.5),
    Case(name="js_r1_w1000", mode="jspub", msgs=600_000, options=("window=1000",), floor=3, quick=True),
    Case(name="js_r1_w4000", mode="jspub", msgs=800_000, options=("window=4000",), floor=5),
    Case(name="js_r1_8c_w1000", mode="jspub", msgs=1_200_000, options=("conns=8", "window=1000"), floor=6, quick=True),
    Case(name="js_r1_1k_w1000", mode="jspub", msgs=200_000, options=("window=1000", "size=1024"), floor=1.5),
    Case(name="js_r1_chain_w1000", mode="jspub", msgs=600_000, options=("window=1000", "chain=1")),
    Case(name="js_r1_1k_chain_w1000", mode="jspub", msgs=200_000, options=("window=1000", "size=1024", "chain=1")),
    Case(name="js_r1_100c_w1", mode="jspub", msgs=100_000, options=("conns=100", "window=1"), floor=1),
    Case(name="js_subjects_100k", mode="jspub", msgs=500_000, options=("window=1000", "subjects=100000")),
)
MANY_R1 = tuple(many_streams("js_r1", streams, msgs=msgs) for streams, msgs in ((100, 60_000), (400, 60_000)))
MANY_R3 = (many_streams("js_r3", 100, msgs=20_000, nodes=3),)
R3 = (
    Case(name="js_r3_w1", mode="jspub", msgs=2_000, options=("window=1", "replicas=3"), nodes=3),
    Case(
        name="js_r3_w1000",
        mode="jspub",
        msgs=300_000,
        options=("window=1000", "replicas=3"),
        nodes=3,
        floor=2,
        quick=True,
    ),
    Case(
        name="js_r3_8c_w1000",
        mode="jspub",
        msgs=500_000,
        options=("conns=8", "window=1000", "replicas=3"),
        nodes=3,
        floor=2,
    ),
)
READ = (
    Case(name="fetch_explicit", mode="fetch", msgs=300_000, fill=300_000, floor=8, quick=True),
    Case(name="fetch_none", mode="fetch", msgs=600_000, options=("ack=none",), fill=600_000, floor=4),
    Case(name="fetch_1k", mode="fetch", msgs=100_000, options=("size=1024",), fill=100_000, floor=1.5),
    Case(name="ordered_push", mode="push", msgs=600_000, fill=600_000, floor=3, quick=True),
)
ALWAYS_FLOORS = {"js_r1_w1": 1.3, "js_r1_w1000": 100, "js_r3_w1": 1.5, "js_r3_w1000": 4}
ALWAYS_QUICK = frozenset({"js_r1_w1000", "js_r3_w1000"})


def always(case: Case) -> Case:
    """The same work with the peer fsyncing every append."""
    return attrs.evolve(
        case,
        name=case.name + ALWAYS_SUFFIX,
        floor=ALWAYS_FLOORS.get(case.name),
        peer_always=True,
        quick=case.name in ALWAYS_QUICK,
    )


def with_permissions(case: Case) -> Case:
    """The same work of a user with a list of permissions: within 5 % of the work of one without."""
    return attrs.evolve(case, name=f"{case.name}_perm", config=PERMISSIONS_CONFIG, quick=False)


PERMISSIONS = tuple(with_permissions(case) for case in (*CORE, *R1) if case.name in ("fan_1_1", "js_r1_w1000"))
TLS_FLOOR = 1.0
TLS_CASES = frozenset({"fan_1_1", "fan_1_8", "js_r1_w1000", "fetch_explicit"})
TLS = tuple(
    attrs.evolve(
        case, name=f"{case.name}_tls", options=(*case.options, "tls=1"), floor=TLS_FLOOR, quick=False, tls=True
    )
    for case in (*CORE, *R1, *READ)
    if case.name in TLS_CASES
)
# The shapes of `nats bench`, which is what a newcomer runs; its own way of sending them is the client's.
CLI = (
    Case(name="cli_fast_500", mode="fast", msgs=300_000, options=("batch=500",), floor=1.5),
    Case(name="cli_fast_500_r3", mode="fast", msgs=150_000, options=("batch=500", "replicas=3"), nodes=3, floor=1.5),
    Case(name="cli_atomic_500", mode="atomic", msgs=200_000, options=("batch=500",)),
    Case(name="cli_atomic_500_r3", mode="atomic", msgs=100_000, options=("batch=500", "replicas=3"), nodes=3),
    Case(name="cli_sync_20c", mode="jspub", msgs=60_000, options=("conns=20", "window=1")),
    Case(name="cli_sync_20c_r3", mode="jspub", msgs=20_000, options=("conns=20", "window=1", "replicas=3"), nodes=3),
    Case(name="cli_kv_put_20c", mode="jspub", msgs=60_000, options=("conns=20", "window=1", "kv=1", "subjects=1000")),
    Case(name="cli_get_batch", mode="get", msgs=400_000, fill=400_000),
    Case(name="cli_get_batch_r3", mode="get", msgs=200_000, options=("replicas=3",), nodes=3, fill=200_000),
    Case(
        name="cli_fetch_none_r3", mode="fetch", msgs=400_000, options=("ack=none", "replicas=3"), nodes=3, fill=400_000
    ),
)
# A lone writer waits for the disk: compared with a peer whose every acknowledgement waits for it too.
CLI_ALONE = (
    Case(name="cli_sync_1c", mode="jspub", msgs=4_000, options=("window=1",)),
    Case(name="cli_sync_1c_r3", mode="jspub", msgs=2_000, options=("window=1", "replicas=3"), nodes=3),
    Case(name="cli_kv_put_1c", mode="jspub", msgs=4_000, options=("window=1", "kv=1", "subjects=1000")),
)
PUBLISH = (*R1, *MANY_R1, *R3, *MANY_R3)
CASES = (
    *CORE, *PUBLISH, *CLI, *CLI_ALONE, *READ, *PERMISSIONS, *TLS,
    *(always(case) for case in (*PUBLISH, *CLI_ALONE)),
)  # fmt: skip
