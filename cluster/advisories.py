"""Advisories: what JetStream tells about itself on `$JS.EVENT.ADVISORY.>`, in nats-server's words.

The concerns of an account are told within it. Who leads and what has no quorum is told in the system account too, with
the name of the account; what is of the server or the cluster is told only there.

An event costs one look at the interest in its subject, and is made only when there is some. An advisory is published
once, to the subscribers of that moment, and never waits for anything; a server that ends between an action and its
advisory does not publish it later. Source: server/jetstream_events.go, observed on 2.15.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from jetraft.cluster.capture.reach import MessageOrigin
from jetraft.store.model.encoding.jsoncodec import encode
from jetraft.store.model.gotime import ZERO_TIME_NS, format_time
from jetraft.store.model.ids import ALPHABET, GLOBAL_ACCOUNT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from random import Random

    from jetraft.cluster.ports import Outbox, Outboxes
    from jetraft.store.model.clock import Clock
    from jetraft.store.model.ids import NodeId
    from jetraft.store.stream.dead_letter import DeadLetter

SUBJECT_PREFIX: Final = "$JS.EVENT.ADVISORY."
TYPE_PREFIX: Final = "io.nats.jetstream.advisory.v1."
OURS: Final = "io.jetraft.advisory.v1."
AUDITS: Final = SUBJECT_PREFIX.encode() + b"API"
ID_CHARS: Final = 22  # as long as nats-server's


class NodeAdvisories:
    """Those of one node, for each account. `system_account` is empty where there is none."""

    def __init__(
        self, *, outboxes: Outboxes, clock: Clock, rng: Random, domain: str = "", system_account: str = ""
    ) -> None:
        self.domain = domain
        self._system_account = system_account
        self._outboxes = outboxes
        self._clock = clock
        self._rng = rng

    def of(self, account: str) -> Advisories:
        """A way to tell an account."""
        return Advisories(
            outbox=self._outboxes(account),
            clock=self._clock,
            rng=self._rng,
            domain=self.domain,
            account=account,
            system=self._system_outbox if account != self._system_account else None,
        )

    def domain_leader(self, leader: NodeId, replicas: list[dict[str, Any]], cluster: str) -> None:
        """A node leads the meta group from now on; of the leader its id is told."""
        self._tell("DOMAIN.LEADER_ELECTED", "domain_leader_elected", leader=leader, replicas=replicas, cluster=cluster)

    def server_removed(self, server: str, server_id: str, cluster: str) -> None:
        """This server is no member of the cluster any more."""
        self._tell("SERVER.REMOVED", "server_removed", server=server, server_id=server_id, cluster=cluster)

    def out_of_storage(self, server: str, server_id: str, cluster: str) -> None:
        """This server's disk takes no more messages, until there is room again."""
        self._tell("SERVER.OUT_OF_STORAGE", "server_out_of_space", server=server, server_id=server_id, cluster=cluster)

    def _tell(self, subject: str, kind: str, **fields: object) -> None:
        outbox, to = self._system_outbox, (SUBJECT_PREFIX + subject).encode()
        if outbox is not None and outbox.has_interest(to, origin=MessageOrigin.ADVISORY):
            outbox.send(
                to,
                payload=encode(_envelope(kind, self._clock, self._rng) | fields | _of_domain(self.domain)),
                origin=MessageOrigin.ADVISORY,
            )

    @property
    def _system_outbox(self) -> Outbox | None:
        return self._outboxes(self._system_account) if self._system_account else None


class Advisories:
    """Tells events of one account on one node."""

    def __init__(  # noqa: PLR0913  (who is told, and what each event has)
        self,
        *,
        outbox: Outbox,
        clock: Clock,
        rng: Random,
        domain: str = "",
        account: str = GLOBAL_ACCOUNT,
        system: Outbox | None = None,
    ) -> None:
        """`system` is that of the system account, when this is another one."""
        self._domain = domain
        self._account = account
        self._system = system
        self._outbox = outbox
        self._clock = clock
        self._rng = rng

    # --- streams

    def stream_action(self, stream: str, action: str) -> None:
        """A stream was made (`create`), changed (`modify`) or deleted (`delete`)."""
        past = {"create": "CREATED", "modify": "UPDATED", "delete": "DELETED"}[action]
        self._tell(f"STREAM.{past}.{stream}", "stream_action", {"stream": stream, "action": action})

    def stream_leader(self, stream: str, leader: str, replicas: list[dict[str, Any]]) -> None:
        """A replica leads from now on."""
        fields = {"stream": stream, "leader": leader, "replicas": replicas}
        self._tell(f"STREAM.LEADER_ELECTED.{stream}", "stream_leader_elected", fields, also_system=True)

    def stream_quorum_lost(self, stream: str, replicas: list[dict[str, Any]]) -> None:
        """The replica that led has lost contact with a majority."""
        fields = {"stream": stream, "replicas": replicas}
        self._tell(f"STREAM.QUORUM_LOST.{stream}", "stream_quorum_lost", fields, also_system=True)

    def replica_differs(self, stream: str, peer: str, first_seq: int, last_seq: int) -> None:
        """A replica does not hold what a majority holds: ours alone."""
        fields = {"stream": stream, "peer": peer, "first_seq": first_seq, "last_seq": last_seq}
        self._tell(f"STREAM.REPLICA_DIFFERS.{stream}", OURS + "replica_differs", fields)

    def batch_abandoned(self, stream: str, batch: str, reason: str) -> None:
        """A batch had begun and is dropped."""
        fields = {"stream": stream, "batch": batch, "reason": reason}
        self._tell(f"STREAM.BATCH_ABANDONED.{stream}", "stream_batch_abandoned", fields)

    # --- backups

    def snapshot_began(self, stream: str, state: Mapping[str, object], client: Mapping[str, object]) -> None:
        """A snapshot of this state is on its way, to this client."""
        fields = {"stream": stream, "state": state, "client": client}
        self._tell(f"STREAM.SNAPSHOT_CREATE.{stream}", "snapshot_create", fields)

    def snapshot_ended(self, stream: str, began_ns: int, error: str, client: Mapping[str, object]) -> None:
        """A snapshot is complete, or has failed."""
        fields = {"stream": stream, **self._span(began_ns), "client": client, **({"error": error} if error else {})}
        self._tell(f"STREAM.SNAPSHOT_COMPLETE.{stream}", "snapshot_complete", fields)

    def restore_began(self, stream: str, client: Mapping[str, object]) -> None:
        """An archive may be sent by this client."""
        self._tell(f"STREAM.RESTORE_CREATE.{stream}", "restore_create", {"stream": stream, "client": client})

    def restore_ended(self, stream: str, began_ns: int, size_bytes: int, client: Mapping[str, object]) -> None:
        """An archive has been taken or refused."""
        fields = {"stream": stream, **self._span(began_ns), "bytes": size_bytes, "client": client}
        self._tell(f"STREAM.RESTORE_COMPLETE.{stream}", "restore_complete", fields)

    # --- consumers

    def consumer_action(self, stream: str, consumer: str, action: str) -> None:
        """A consumer was made (`create`) or deleted (`delete`)."""
        past = {"create": "CREATED", "delete": "DELETED"}[action]
        fields = {"stream": stream, "consumer": consumer, "action": action}
        self._tell(f"CONSUMER.{past}.{stream}.{consumer}", "consumer_action", fields)

    def consumer_leader(self, stream: str, consumer: str, leader: str, replicas: list[dict[str, Any]]) -> None:
        """A replica leads a consumer from now on: the one that leads its stream."""
        fields = {"stream": stream, "consumer": consumer, "leader": leader, "replicas": replicas}
        self._tell(f"CONSUMER.LEADER_ELECTED.{stream}.{consumer}", "consumer_leader_elected", fields, also_system=True)

    def consumer_quorum_lost(self, stream: str, consumer: str, replicas: list[dict[str, Any]]) -> None:
        """The replica that led a consumer has lost contact with a majority: the one that led its stream."""
        fields = {"stream": stream, "consumer": consumer, "replicas": replicas}
        self._tell(f"CONSUMER.QUORUM_LOST.{stream}.{consumer}", "consumer_quorum_lost", fields, also_system=True)

    def paused(self, stream: str, consumer: str, until_ns: int | None, *, is_paused: bool) -> None:
        """A consumer delivers nothing until then (Unix time), or goes on."""
        shown = format_time(ZERO_TIME_NS if until_ns is None else until_ns)
        fields = {"stream": stream, "consumer": consumer, "paused": is_paused, "pause_until": shown}
        self._tell(f"CONSUMER.PAUSE.{stream}.{consumer}", "consumer_pause", fields)

    def refused(self, stream: str, consumer: str, *, consumer_seq: int, stream_seq: int, deliveries: int) -> None:
        """A message was answered with -NAK."""
        fields = {"stream": stream, "consumer": consumer, "consumer_seq": consumer_seq, "stream_seq": stream_seq}
        self._tell(f"CONSUMER.MSG_NAKED.{stream}.{consumer}", "nak", {**fields, "deliveries": deliveries})

    def terminated(  # noqa: PLR0913  (the fields of the event)
        self, stream: str, consumer: str, *, consumer_seq: int, stream_seq: int, deliveries: int, reason: str
    ) -> None:
        """A message was answered with +TERM."""
        fields = {"stream": stream, "consumer": consumer, "consumer_seq": consumer_seq, "stream_seq": stream_seq}
        why = {"reason": reason} if reason else {}
        self._tell(
            f"CONSUMER.MSG_TERMINATED.{stream}.{consumer}", "terminated", {**fields, "deliveries": deliveries, **why}
        )

    def given_up(self, stream: str, consumer: str, stream_seq: int, deliveries: int) -> None:
        """A message was delivered as often as its consumer allows."""
        fields = {"stream": stream, "consumer": consumer, "stream_seq": stream_seq, "deliveries": deliveries}
        self._tell(f"CONSUMER.MAX_DELIVERIES.{stream}.{consumer}", "max_deliver", fields)

    def dead_lettered(  # noqa: PLR0913  (the fields of the event)
        self, stream: str, consumer: str, stream_seq: int, letter: DeadLetter, *, to_stream: str, to_seq: int
    ) -> None:
        """A message that was given up is kept by another stream: ours alone."""
        fields = {"stream": stream, "consumer": consumer, "stream_seq": stream_seq, "deliveries": letter.deliveries}
        why = {"cause": letter.cause, **({"reason": letter.reason} if letter.reason else {})}
        kept = {"dead_letter_stream": to_stream, "dead_letter_seq": to_seq}
        subject = f"CONSUMER.DEAD_LETTERED.{stream}.{consumer}"
        self._tell(subject, OURS + "dead_lettered", {**fields, **why, **kept})

    def pin_changed(self, stream: str, consumer: str, group: str, *, pin_id: str, reason: str) -> None:
        """A client of a priority group was pinned, or, without an id, is no longer for this reason."""
        past, how = ("PINNED", {"pinned_id": pin_id}) if pin_id else ("UNPINNED", {"reason": reason})
        fields = {"account": self._account, "stream": stream, "consumer": consumer, "group": group, **how}
        self._tell(f"CONSUMER.{past}.{stream}.{consumer}", f"consumer_group_{past.lower()}", fields)

    # --- the API

    def api_audit(
        self,
        *,
        server: str,
        client: Callable[[], Mapping[str, object]],
        subject: bytes,
        request: bytes,
        response: bytes,
    ) -> None:
        """A request was answered. `client` describes who asked; it is called only if the event is wanted."""
        if not self.is_wanted("API"):
            return
        fields = {
            "server": server,
            "client": client(),
            "subject": subject.decode(errors="replace"),
            **({"request": request.decode(errors="replace")} if request else {}),
            "response": response.decode(errors="replace"),
        }
        self._tell("API", "api_audit", fields)

    def api_limit_reached(self, *, server: str, dropped: int) -> None:
        """So many requests were refused since this was told last."""
        self._tell("API.LIMIT_REACHED", "api_limit_reached", {"server": server, "dropped": dropped})

    # --- inside

    def is_wanted(self, subject: str) -> bool:
        """Whether anything has subscribed to events of this kind."""
        return self._outbox.has_interest((SUBJECT_PREFIX + subject).encode(), origin=MessageOrigin.ADVISORY)

    def _tell(self, subject: str, kind: str, fields: Mapping[str, object], *, also_system: bool = False) -> None:
        to = (SUBJECT_PREFIX + subject).encode()
        system = self._system if also_system else None
        is_wanted = self._outbox.has_interest(to, origin=MessageOrigin.ADVISORY)
        is_wanted_by_system = system is not None and system.has_interest(to, origin=MessageOrigin.ADVISORY)
        if not is_wanted and not is_wanted_by_system:
            return
        head, tail = _envelope(kind, self._clock, self._rng), _of_domain(self._domain)
        if is_wanted:
            self._outbox.send(to, payload=encode({**head, **fields, **tail}), origin=MessageOrigin.ADVISORY)
        if system is not None and is_wanted_by_system:
            system.send(
                to, payload=encode({**head, "account": self._account, **fields, **tail}), origin=MessageOrigin.ADVISORY
            )

    def _span(self, began_ns: int) -> dict[str, str]:
        return {"start": format_time(began_ns), "end": format_time(self._clock.unix_ns())}


def _envelope(kind: str, clock: Clock, rng: Random) -> dict[str, object]:
    return {
        "type": kind if kind.startswith(OURS) else TYPE_PREFIX + kind,
        "id": "".join(rng.choice(ALPHABET) for _ in range(ID_CHARS)),
        "timestamp": format_time(clock.unix_ns()),
    }


def _of_domain(domain: str) -> dict[str, object]:
    return {"domain": domain} if domain else {}
