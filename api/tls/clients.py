"""Clients of a listener with TLS: when INFO is sent, who begins, how long it may take, who is admitted.

    handshake_first no      INFO in the clear, then the handshake; with allow_non_tls the first byte decides
    handshake_first yes     the handshake, then INFO in a record; after a delay, INFO in the clear to who is silent

The compiled plane does the handshakes and tells the outcome; log lines are nats-server's.
"""

import hashlib
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, Protocol

import attrs

from jetraft.api.options.tls import TlsOptions
from jetraft.api.plane._secure import DETECT, HANDSHAKE, PLAIN, WAIT, Judged, SecurePlane
from jetraft.api.plane.reasons import Reason
from jetraft.api.tls._handshakes import HandshakePool
from jetraft.api.tls.facts import TlsState
from jetraft.store.model.clock import NS_PER_S, Clock
from jetraft.store.model.events import CONNECTION_REFUSED

FULL = b"-ERR 'maximum connections exceeded'\r\n"
THROTTLED = b"-ERR 'Connection throttling is active. Please try again later.'\r\n"


class Handle(Protocol):
    """A deadline that can be called off."""

    def cancel(self) -> None:
        """Never call back."""


class Log(Protocol):
    """The log of lines."""

    def debug(self, text: str) -> None:
        """Log a line for the search of a fault."""

    def info(self, text: str) -> None:
        """A line that an operator expects."""

    def warning(self, text: str) -> None:
        """A line that an operator should look at."""

    def error(self, text: str) -> None:
        """A line about what went wrong and was handled."""


class TlsSession(Protocol):
    """A connection, as the sessions know it."""

    cid: int
    ip: str
    port: int
    tls: TlsState | None


@attrs.define(eq=False)
class Pending:
    """A connection on its way to be admitted."""

    handle: Handle
    told: bool  # INFO was sent in the clear
    begun: bool  # the handshake, as far as the log knows


@attrs.define(eq=False)
class TlsClients:
    """All connections of one listener that are to speak TLS, from their first moment until they are admitted."""

    starting: ClassVar[str] = "Starting TLS client connection handshake"
    mark: ClassVar[str] = "cid"  # before the number of a connection
    failing: ClassVar[str] = "TLS handshake"

    options: TlsOptions
    plane: SecurePlane
    pool: HandshakePool
    clock: Clock
    say: Log
    sessions: Any  # Sessions: by_cid, info(session), port, options
    call_at: Callable[[int, Callable[[], None]], Handle]
    has_certificates: bool = True
    completed: int = 0
    failed: int = 0
    timed_out: int = 0
    rejected: int = 0
    _pending: dict[int, Pending] = attrs.field(factory=dict)
    _former: list[tuple[int, object]] = attrs.field(factory=list)  # handshakes that have begun need them until then
    _window_end_ns: int = 0
    _begun: int = 0
    _blocked: int = 0

    def follow(self, options: TlsOptions, material: Any) -> None:
        """Welcome the next clients with other options and certificates (Material); those who are there keep theirs."""
        now_ns = self.clock.mono_ns()
        self._former = [(until_ns, context) for until_ns, context in self._former if until_ns > now_ns]
        self._former.append((now_ns + self.options.timeout_ns + NS_PER_S, self.pool.context))
        self.plane.serve_tls(material.context, self.pool)
        self.options, self.has_certificates = options, material.has_certificates
        self.sessions.tls_not_after = material.not_after

    def welcome(self, session: TlsSession, *, is_full: bool, is_told: bool = False) -> None:
        """Begin with a connection that was accepted just now; `is_told`: it has had INFO where that comes first."""
        options, cid = self.options, session.cid
        now_ns = self.clock.mono_ns()
        if not options.handshake_first and not is_told:
            self.plane.write(cid, self.sessions.info(session))
        if is_full:
            CONNECTION_REFUSED.log(client=self._title(session), reason="maximum connections exceeded")
            self.plane.close(cid, Reason.MAXIMUM_CONNECTIONS_EXCEEDED, FULL)
        elif not self._within_rate(now_ns):
            self.plane.close(cid, Reason.MAXIMUM_CONNECTIONS_EXCEEDED, THROTTLED)
        elif options.handshake_first and options.first_delay_ns:
            handle = self.call_at(now_ns + options.first_delay_ns, partial(self._tell, cid))
            self._pending[cid] = Pending(handle, told=False, begun=False)
            self.plane.start_tls(cid, WAIT, self.pool)
        else:
            told = not options.handshake_first
            phase = DETECT if options.allow_non_tls and told else HANDSHAKE
            self._begin(session, phase, told=told)
            self.plane.start_tls(cid, phase, self.pool)

    def _begin(self, session: TlsSession, phase: int, *, told: bool) -> None:
        if phase == HANDSHAKE:
            self._debug(session, self.starting)
        deadline_ns = self.clock.mono_ns() + self.options.timeout_ns
        handle = self.call_at(deadline_ns, partial(self._expire, session.cid))
        self._pending[session.cid] = Pending(handle, told=told, begun=phase == HANDSHAKE)

    def _within_rate(self, now_ns: int) -> bool:
        limit = self.options.connection_rate_limit
        if not limit:
            return True
        if now_ns >= self._window_end_ns:
            self._window_end_ns, self._begun = now_ns + NS_PER_S, 0
        self._begun += 1
        if self._begun <= limit:
            return True
        self.rejected += 1
        if not self._blocked:
            self.call_at(self._window_end_ns, self._report_blocked)
        self._blocked += 1
        return False

    def _report_blocked(self) -> None:
        self.say.warning(f"Rejected {self._blocked} connections due to TLS rate limiting")
        self._blocked = 0

    def _tell(self, cid: int) -> None:
        """A client that could begin with the handshake has not: it gets INFO, as if it had not been asked."""
        session = self.sessions.by_cid.get(cid)
        if session is None:
            return
        is_silent = self.plane.tls_phase(cid) == WAIT
        phase = DETECT if is_silent and self.options.allow_non_tls else HANDSHAKE
        if is_silent:
            self.plane.write(cid, self.sessions.info(session))
            self.plane.go_on(cid, phase)
        self._begin(session, phase, told=is_silent)

    def _expire(self, cid: int) -> None:
        """The time for a handshake is over."""
        session, phase = self.sessions.by_cid.get(cid), self.plane.tls_phase(cid)
        self._pending.pop(cid, None)
        if session is None or phase is None or phase == PLAIN:
            return
        if phase == DETECT:
            self.plane.go_on(cid, PLAIN)
            return
        self.timed_out += 1
        local, remote = self._addresses(session)
        self._debug(session, f"{self.failing} error: read tcp {local}->{remote}: i/o timeout")
        self.plane.close(cid, Reason.TLS_HANDSHAKE_FAILURE)
        self._debug(session, f"{self.failing} timeout")

    def take_judged(self) -> None:
        """Admit those whose handshake is complete, close those whose has failed."""
        for judged in self.plane.judged(self.pool):
            session = self.sessions.by_cid.get(judged.cid)
            pending = self._pending.pop(judged.cid, None)
            if pending is not None:
                pending.handle.cancel()
                if session is not None and not pending.begun:
                    self._debug(session, self.starting)
            if session is None:
                self.plane.close(judged.cid, Reason.TLS_HANDSHAKE_FAILURE)
            elif judged.complete:
                self._complete(session, judged, first=pending is not None and not pending.told)
            else:
                self._fail(session, judged)

    def _complete(self, session: TlsSession, judged: Judged, *, first: bool) -> None:
        if not self._pinned(session, judged):
            self._refuse(session, "certificate not pinned")
            return
        version = judged.version.removeprefix("TLSv")
        self._debug(session, "TLS handshake complete")
        self._debug(session, f"TLS version {version}, cipher suite {judged.cipher}")
        self.completed += 1
        certificates = tuple(judged.certificates)
        state = TlsState(version=version, cipher=judged.cipher, first=first, certificates=certificates)
        self.sessions.is_secure(session, state)
        if first:
            self.plane.write(session.cid, self.sessions.info(session))
        self.plane.admit(session.cid)

    def _pinned(self, session: TlsSession, judged: Judged) -> bool:
        pins = self.options.pinned_certs
        if not pins:
            return True
        if not judged.certificates:
            self._debug(session, "Failed pinned cert test as client did not provide a certificate")
            return False
        from cryptography import x509  # noqa: PLC0415

        from jetraft.api.tls.identity import public_key_info  # noqa: PLC0415

        certificate = x509.load_der_x509_certificate(judged.certificates[0])
        digest = hashlib.sha256(public_key_info(certificate)).hexdigest()
        if digest not in pins:
            self._debug(session, f"Failed pinned cert test for key id: {digest}")
        return digest in pins

    def _fail(self, session: TlsSession, judged: Judged) -> None:
        from jetraft.api.tls.reasons import quiet, text_of  # noqa: PLC0415  most servers see no failure

        local, remote = self._addresses(session)
        text = text_of(judged, local=local, remote=remote, has_certificates=self.has_certificates)
        self._refuse(session, text, is_quiet=quiet(judged))

    def _refuse(self, session: TlsSession, text: str, *, is_quiet: bool = False) -> None:
        self.failed += 1
        (self.say.debug if is_quiet else self.say.error)(self._failure(session, text))
        self.plane.close(session.cid, Reason.TLS_HANDSHAKE_FAILURE)

    def _failure(self, session: TlsSession, text: str) -> str:
        return f"{self._title(session)} - {self.failing} error: {text}"

    def _title(self, session: TlsSession) -> str:
        return f"{session.ip}:{session.port} - {self.mark}:{session.cid}"

    def _addresses(self, session: TlsSession) -> tuple[str, str]:
        return f"{self.sessions.options.host}:{self.sessions.port}", f"{session.ip}:{session.port}"

    def _debug(self, session: TlsSession, text: str) -> None:
        self.say.debug(f"{self._title(session)} - {text}")

    def statistics(self) -> dict[str, int]:
        """How handshakes went."""
        return {
            "completed": self.completed,
            "failed": self.failed,
            "timed_out": self.timed_out,
            "rejected": self.rejected,
            "waiting": len(self._pending),
        }
