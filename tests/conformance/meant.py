"""Pages, answers and events that differ from nats-server's on purpose: each field with its reason, in words for users.

A field that is not on this list and differs fails `test_documents.py`; a row that explains nothing any more fails it
too. docs/compatibility.md shows the table. `where` is a place (documents.py), `path` what differs there: `-` is missing
here, `+` only here, `~` of another type or value. `*` stands for anything.
"""

import re
from typing import Final

import attrs

CONNECTION: Final = "connections[]"
STREAM: Final = "*stream_detail[]"


@attrs.frozen(kw_only=True)
class Meant:
    """One difference; `at_times`: there are moments at which both servers say the same."""

    where: str
    path: str
    reason: str
    at_times: bool = False

    def explains(self, difference: str) -> bool:
        """Whether a difference, `PLACE -path`, is this one."""
        pattern = f"{self.where} {self.path}"
        return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))) + "(?: .*)?", difference) is not None


MEANT: Final = (
    # Servers.
    Meant(
        where="*",
        path="-feature_flags.js_raft_delete_range",
        reason="a switch of nats-server's own log; the others are shown as they are set",
    ),
    Meant(
        where="VARZ",
        path="-disk_io_wait_stats*",
        reason="no semaphore is waited for; `jetraft.writer` has the figures of the writer threads",
    ),
    Meant(where="*", path="-*limits.default_max_consumers", reason="a stream has any number of consumers by default"),
    Meant(where="VARZ", path="+jetraft*", reason="figures of the parts that exist here alone"),
    Meant(
        where="VARZ",
        path="+websocket.handshake_timeout",
        reason="5 s where none is configured; nats-server has no limit then",
    ),
    Meant(
        where="VARZ",
        path="-trusted_operators_*",
        reason="the token of an operator may have the password of its account server",
    ),
    Meant(where="*", path="+*config.sync_always", reason="every acknowledgement waits for its fsync"),
    # Connections.
    Meant(
        where="CONNZ",
        path=f"-{CONNECTION}.jwt",
        reason="the token of a user is a password where it is a bearer's; `issuer_key` says who signed it",
    ),
    Meant(where="EVENT.*", path="-client.jwt", reason="the token of a user is a password where it is a bearer's"),
    # Accounts.
    Meant(
        where="*",
        path="-*imports*",
        reason="nats-server shows its own services of the system account as imports",
    ),
    Meant(where="ACCOUNTZ", path="-account_detail.exports*", reason="and as exports of the system account"),
    Meant(where="*", path="-*mappings*", reason="and the names of a domain as mappings"),
    # Links between nodes.
    Meant(where="ROUTEZ", path="-routes[].account", reason="no account has a link of its own"),
    Meant(where="ROUTEZ", path="-routes[].rtt", reason="links have heartbeats, which are not answered one by one"),
    Meant(
        where="ROUTEZ",
        path="+routes[].subscriptions_list_detail[].account*",
        reason="what a link carries is of several accounts",
    ),
    Meant(
        where="LEAFZ",
        path="-leafs[].rtt",
        reason="measured with the first PING, which is sent when nothing else has come for a time",
        at_times=True,
    ),
    # JetStream.
    Meant(where="JSZ", path="+scrub*", reason="blocks are read again and compared"),
    Meant(where="JSZ", path="+compare*", reason="the same"),
    Meant(
        where="JSZ",
        path="+raft_groups*",
        reason="`raft=1` shows each group with its figures, which consumers share with their stream",
    ),
    Meant(
        where="JSZ",
        path=f"-{STREAM}*cluster.system_account",
        reason="replication has links of its own, in no account",
    ),
    Meant(where="JSZ", path=f"-{STREAM}*cluster.traffic_account", reason="the same"),
    Meant(where="JSZ", path=f"+{STREAM}.domain", reason="stream info has it, and this is the same document"),
    Meant(where="JSZ", path=f"+{STREAM}.leads", reason="says whether the figures are the leader's"),
    Meant(where="JSZ", path=f"+{STREAM}.mandate*", reason="says whether the replica may be read, and why not"),
    Meant(where="JSZ", path=f"+{STREAM}.ts", reason="stream info has it, and this is the same document"),
    Meant(where="JSZ", path="+*s_leader", reason="nats-server leaves these two out of some answers"),
    Meant(
        where="HEALTHZ",
        path="~(status)=*",
        reason="asked about a stream, a node without a replica of it answers for itself instead of 404",
    ),
    Meant(where="HEALTHZ", path="-error*", reason="the same"),
    Meant(where="RAFTZ", path="-*ipq_*_len", reason="what comes is taken in the same turn: nothing waits there"),
    Meant(where="RAFTZ", path="-*wal.consumer_count", reason="the log of a group is no stream"),
    Meant(where="RAFTZ", path="-*wal.*_ts", reason="entries of it have no times of their own"),
    Meant(where="IPQUEUESZ", path="-<name>*", reason="queues that nats-server alone has", at_times=True),
    Meant(
        where="*",
        path="-*api.inflight",
        reason="how many requests are being answered: shown while there are some",
        at_times=True,
    ),
    Meant(where="*", path="+*api.inflight", reason="the same", at_times=True),
    Meant(where="*", path="-*replicas[].lag", reason="how far a replica is behind: shown while it is", at_times=True),
    Meant(where="*", path="+*replicas[].lag", reason="the same", at_times=True),
    # Go.
    Meant(where="STACKSZ", path="~(type)=*", reason="stacks are text, and not said to be JSON"),
    Meant(where="EXPVARZ", path="*", reason="the variables of Go's runtime have no counterpart; /varz has the figures"),
)


def unexplained(differences: list[str]) -> list[str]:
    """Those that no row explains."""
    return [one for one in differences if not any(meant.explains(one) for meant in MEANT)]
