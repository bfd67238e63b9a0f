"""Differences from the reference that are meant, each with its reason. An entry that no longer differs is an error.

Scene, step and path of the field are patterns of text in which `*` stands for anything; a path of "*" admits any
difference in the step.
"""

import re

import attrs


@attrs.frozen(kw_only=True)
class Known:
    """One meant difference."""

    scene: str
    step: str
    path: str
    reason: str
    always: bool = True  # False: nats-server answers now like this, now like that

    def covers(self, scene: str, step: str, path: str) -> bool:
        """Whether this entry speaks of that field."""
        return all(
            re.fullmatch(re.escape(pattern).replace(r"\*", ".*"), given)
            for pattern, given in ((self.scene, scene), (self.step, step), (self.path, path))
        )


GIVEN_UP = (
    "a message that was delivered as often as allowed is waited for no longer, and the ack floor passes it at once; "
    "nats-server moves the floor with the next ack, and counts the message as redelivered until then"
)


@attrs.frozen(kw_only=True)
class Shown:
    """A meant difference that no scene asks for, and the test, the decision or the page that has it."""

    what: str
    ours: str
    theirs: str
    where: str


SHOWN: tuple[Shown, ...] = (
    Shown(
        what="pull requests that wait at one consumer",
        ours="`max_waiting`, but 5,000 at most; then 409 Exceeded MaxWaiting",
        theirs="`max_waiting`",
        where="docs/security.md",
    ),
    Shown(
        what="limits by tier (`tiered_limits` of tokens)",
        ours="a tier is looked up by a stream's replicas; an account that goes on without tiers stores at once",
        theirs="a stream keeps the tier it had, and refuses publishes until the server starts again",
        where="docs/decisions/0104-tiers-of-accounts.md",
    ),
    Shown(
        what="an account whose token has no JetStream any more",
        ours="its streams stay, and what is published to them is refused (10039)",
        theirs="its streams are gone until it has JetStream again, and no server answers",
        where="tests/api/auth/test_signed_tiers.py",
    ),
    Shown(
        what="`CONSUMER.PEER.REMOVE`, `CONSUMER.PEER.EVACUATE`",
        ours="refused (10075), whatever the consumer's replicas: it has those of its stream",
        theirs="a consumer with fewer replicas than its stream goes to another of the stream's servers",
        where="tests/cluster/membership/test_moves.py",
    ),
    Shown(
        what="`STREAM.CANCEL_MOVE` after `STREAM.PEER.REMOVE` or `STREAM.PEER.EVACUATE`",
        ours="taken back like any change of replicas that is not complete",
        theirs="10129: such a change is not taken back",
        where="docs/decisions/0119-moves-are-changes-of-peers.md",
    ),
    Shown(
        what="`STREAM.UPDATE` to other replicas or another placement while these change",
        ours="accepted: the change goes on to where the last update says",
        theirs="10124 until the first change is complete",
        where="docs/decisions/0119-moves-are-changes-of-peers.md",
    ),
    Shown(
        what="`ACCOUNT.STREAM.MOVE` with a `cluster` that does not exist",
        ours="10005",
        theirs="moves to another server of its own cluster",
        where="tests/cluster/meta/test_frontend.py",
    ),
    Shown(
        what="a message that breaks two rules",
        ours="the order in which nats-server judges streams with replicas",
        theirs="another order for streams without: an invalid TTL comes last, say",
        where="cluster/streams/admission/admit.py",
    ),
    Shown(
        what="`ack_floor` of a filtered consumer before its first ack",
        ours="what is in front of the first message that waits",
        theirs="as when the consumer was created",
        where="cluster/consumers/core.py",
    ),
    Shown(
        what="`delivered` and `ack_floor` after a purge by subject, or a rollup",
        ours="all consumers are behind what is in front of the stream's first message; a rollup changes none",
        theirs="consumers of that subject alone are in front of the next message that they wait for",
        where="cluster/state/machine.py",
    ),
    Shown(
        what="`delivered` of a consumer that begins with the last message, or the last of each subject, and finds none",
        ours="the stream's last sequence",
        theirs="0, or the one before the last",
        where="cluster/state/consumer_configs.py",
    ),
    Shown(
        what="a consumer with `mem_storage` after a restart of its server",
        ours="it goes on; a client that is back in time notices nothing and makes no new one",
        theirs="it goes on in a cluster; a server without one has forgotten it, and a client makes another",
        where="tests/clients/test_restarts.py",
    ),
    Shown(
        what="`STREAM.RESTORE` with more replicas than one on a server without a cluster",
        ours="10074 before the archive is sent",
        theirs="takes all of the archive and answers 10062 with the text of 10074",
        where="cluster/meta/frontend.py",
    ),
    Shown(
        what="who a closed connection was, asked without `auth`",
        ours="not told, as of open ones",
        theirs="`jwt`, `issuer_key` and `name_tag` of users with tokens",
        where="api/monitor/connz.py",
    ),
    Shown(
        what="`SERVER.REMOVED` advisory",
        ours="sent by the meta leader, also of a server that is away",
        theirs="sent by the removed server, if it runs",
        where="docs/backup.md",
    ),
)

KNOWN: tuple[Known, ...] = (
    Known(
        scene="rewriting/republish",
        step="it is there",
        path="[0].payload.state.bytes",
        reason="a republished message has its time in a header, without zeros at its end",
        always=False,
    ),
    *(
        Known(
            scene="reset/life",
            step=step,
            path=f"[0].payload.{path}.*",
            reason="after a reset to the first message nats-server shows what its store remembers of before",
            always=False,
        )
        for step in ("below what was acked", "unknown field")
        for path in ("delivered", "ack_floor")
    ),
    Known(
        scene="tracing/*",
        step="trace*",
        path="[0].payload.server.*",
        reason="what a server says of itself: it counts its messages and has features of its own",
    ),
    Known(
        scene="clients/changes",
        step="update: first_seq",
        path="[0].payload.config.first_seq",
        reason="where a stream begins was decided when it was created; counted from a later value, a replay of its log "
        "would give its messages other sequences",
    ),
    Known(
        scene="bad input/stream bodies",
        step="create: deep*",
        path="[0].payload.error.description",
        reason="the depth of a body is bounded before it is decoded; code and err_code are the same",
    ),
    Known(
        scene="bad input/*",
        step="both * names: control",
        path="*",
        reason="a name with a control character is refused: it would reach log lines and terminals",
    ),
    Known(
        scene="pull/late acks*",
        step="all given up",
        path="[0].payload.ack_floor.*",
        reason=GIVEN_UP,
    ),
    Known(
        scene="pull/redelivery",
        step="given up",
        path="[0].payload.ack_floor.*",
        reason=GIVEN_UP,
    ),
    Known(
        scene="pull/redelivery",
        step="given up",
        path="[0].payload.num_redelivered",
        reason=GIVEN_UP,
    ),
    Known(
        scene="permissions/wider",
        step="the tail of one token",
        path="*",
        reason="who may subscribe to a.* may not to a.>, which reaches more; nats-server takes the `>` for any token",
    ),
    Known(
        scene="permissions/wider",
        step="denied with empty tokens",
        path="*",
        reason="what is denied stays so when a token is left empty; nats-server lets it pass, and nobody receives it",
    ),
    Known(
        scene="*",
        step="*",
        path="*xkey",
        reason="the curve key of auth callouts; a server that serves none must not offer one",
    ),
)


def meant(scene: str, step: str, path: str) -> bool:
    """Whether a difference in this field is on the list."""
    return any(known.covers(scene, step, path) for known in KNOWN)
