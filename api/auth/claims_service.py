"""Accounts change while the server runs: what the system account asks with `$SYS.REQ.CLAIMS.*` and the like.

Requests are taken one after the other: a token is verified, written to the directory, and then in force; the answer
comes last. Nodes of a cluster compare digests when one of them comes, and from time to time, and send what the other
lacks; the newer token of an account counts. A node tells the others of tokens that it has looked up. Texts are
nats-server's (server/accounts.go).
"""

import math
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final

import attrs
import orjson
import trio

from jetraft.api.auth.lookups import AccountLookups
from jetraft.api.auth.registry import AccountRegistry, SignedAccount
from jetraft.api.auth.signed_sharing import SignedSharing
from jetraft.api.auth.token_directory import TokenDirectory
from jetraft.api.auth.token_source import TokenSource
from jetraft.api.credentials.claim_fields import TokenError, items
from jetraft.api.credentials.claims import AccountClaims
from jetraft.api.credentials.nkeys import is_account_key
from jetraft.api.credentials.tokens import InvalidClaimsError, decode_token
from jetraft.api.logs.logger import Logger
from jetraft.api.options.options import ResolverOptions
from jetraft.api.turns.outbox import PlaneOutbox
from jetraft.cluster.capture._capture import captures
from jetraft.cluster.capture.reach import MessageOrigin, SinkKind
from jetraft.store.model.clock import NS_PER_S, Clock

UPDATES: Final = ("$SYS.REQ.CLAIMS.UPDATE", "$SYS.REQ.ACCOUNT.*.CLAIMS.UPDATE", "$SYS.ACCOUNT.*.CLAIMS.UPDATE")
LOOKUP: Final = "$SYS.REQ.ACCOUNT.*.CLAIMS.LOOKUP"
LIST: Final = "$SYS.REQ.CLAIMS.LIST"
DELETE: Final = "$SYS.REQ.CLAIMS.DELETE"
PACK: Final = "$SYS.REQ.CLAIMS.PACK"
COMPARE: Final = "$SYS.JETRAFT.CLAIMS.PACK"  # as PACK, to all other nodes of jetraft instead of one
FOUND: Final = "$SYS.JETRAFT.CLAIMS.FOUND"  # an account that a node has looked up, for the others
RESPONDER: Final = b"responder"  # the queue of PACK
WAITING_MAX: Final = 1024  # requests; each holds a token of up to the largest message
WAITING_BYTES_MAX: Final = 16 << 20
OK: Final = 200
FAILED: Final = 500

# (what an account was, what it is now): None where it is not there
OnChange = Callable[[AccountClaims | None, AccountClaims | None], None]


@attrs.frozen
class _Request:
    subject: str
    reply: bytes
    payload: bytes = attrs.field(repr=False)


@attrs.define(eq=False, kw_only=True)
class ClaimsService:
    """See the module. `outbox` is the system account's."""

    registry: AccountRegistry
    directory: TokenDirectory | None
    resolver: ResolverOptions
    system_account: str
    server: Callable[[], dict[str, Any]]  # how this server names itself in answers
    inbox: bytes  # a subject of this server alone, for what other nodes send
    outbox: PlaneOutbox
    on_change: OnChange
    sharing: SignedSharing
    clock: Clock
    say: Logger
    lookups: AccountLookups | None = None
    source: TokenSource | None = None  # where these find accounts
    refused: int = 0
    _waiting: deque[_Request] = attrs.field(factory=deque)
    _waiting_bytes: int = 0
    _work: trio.Event = attrs.field(factory=trio.Event)
    _compare: trio.Event = attrs.field(factory=trio.Event)

    async def run(self) -> None:
        """Serve until cancelled."""
        handles = [self._listen(subject, self._on_batch) for subject in UPDATES]
        watch = None
        if self.directory is not None:
            handles += [self._listen(subject, self._on_batch) for subject in (LIST, DELETE)]
        if self.resolver.kind == "full":
            handles.append(self._listen(LOOKUP, self._on_batch))
            handles.append(self._listen(PACK, self._on_batch, queue=RESPONDER))
        if self.compares:
            handles += [self._listen(subject, self._on_batch) for subject in (COMPARE, FOUND)]
            handles.append(self.outbox.add_sink(self.inbox, self._on_batch, kind=SinkKind.REPLY))
            watch = self.outbox.watch_interest(COMPARE.encode(), self._peers_changed)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._serve)
                nursery.start_soon(self.sharing.run)
                if self.compares:
                    nursery.start_soon(self._compare_often)
                if self.lookups is not None and self.source is not None:
                    nursery.start_soon(self.lookups.run, self.source, self.take)
        finally:
            for handle in handles:
                self.outbox.remove_sink(handle)
            if watch is not None:
                self.outbox.unwatch_interest(watch)

    @property
    def compares(self) -> bool:
        """Whether nodes tell each other what they know."""
        return self.resolver.kind != "memory"

    async def take(self, account: SignedAccount) -> None:
        """An account was looked up: it is kept, in force, and the other nodes are told. Raises TokenError, OSError."""
        await self._store(account)
        self.outbox.send(
            FOUND.encode(), payload=f"{account.claims.subject}|{account.token}".encode(), origin=MessageOrigin.SERVER
        )

    def _peers_changed(self) -> None:
        self._compare.set()

    def _listen(self, subject: str, handler: Callable[[bytes], None], *, queue: bytes = b"") -> int:
        return self.outbox.add_sink(subject.encode(), handler, kind=SinkKind.SYSTEM, queue=queue)

    def _on_batch(self, batch: bytes) -> None:
        """Take over the requests of a turn; what does not fit is refused."""
        for capture in captures(batch):
            request = _Request(capture.subject.decode(errors="replace"), capture.reply, capture.payload)
            size = len(request.payload)
            if len(self._waiting) >= WAITING_MAX or self._waiting_bytes + size > WAITING_BYTES_MAX:
                self.refused += 1
                self._answer(request, "jwt update resulted in error", error="too many requests")
                continue
            self._waiting.append(request)
            self._waiting_bytes += size
            self._work.set()

    async def _serve(self) -> None:
        while True:
            if not self._waiting:
                self._work = trio.Event()
                await self._work.wait()
            request = self._waiting.popleft()
            self._waiting_bytes -= len(request.payload)
            await self._carry_out(request)
            # One request between two checkpoints.
            await trio.lowlevel.checkpoint()

    async def _carry_out(self, request: _Request) -> None:
        tokens = request.subject.split(".")
        if request.subject == LIST:
            self._list(request)
        elif request.subject == DELETE:
            await self._delete(request)
        elif tokens[-1] == "LOOKUP":
            self._reply(request, (self.registry.token_of(tokens[3]) or "").encode())
        elif request.subject in (PACK, COMPARE):
            self._pack(request)
        elif request.subject in (self.inbox.decode(), FOUND):
            await self._merge(request)
        else:
            await self._update(request, key="" if request.subject == UPDATES[0] else tokens[-3])

    # -- changes

    async def _update(self, request: _Request, *, key: str) -> None:
        """A new token for an account, which the subject may name."""
        cache = " cache" if self.resolver.kind == "cache" else ""
        failed = f"jwt update{cache} resulted in error"
        try:
            account = SignedAccount.read(request.payload)
        except TokenError as error:
            said = "jwt validation failed" if isinstance(error, InvalidClaimsError) else failed
            self._answer(request, said, account=key or "n/a", error=str(error))
            return
        subject = account.claims.subject
        try:
            if key and key != subject:
                raise TokenError("subject does not match jwt content")  # noqa: TRY301  one answer for every reason
            self.registry.check_issuer(account.claims)
            if self.resolver.kind != "full" and self.registry.get(subject) is None:
                self._answer(request, f"jwt update{cache} skipped", account=subject)
                return
            await self._store(account)
        except (TokenError, OSError) as error:
            self._answer(request, failed, account=key or subject, error=str(error))
            return
        self._answer(request, f"jwt updated{cache}", account=subject)

    async def _store(self, account: SignedAccount) -> None:
        """Write a token, then let it be in force. Raises TokenError, OSError."""
        subject = account.claims.subject
        if self.registry.token_of(subject) == account.token:
            return
        is_new = self.registry.get(subject) is None
        if is_new and self.resolver.kind == "full" and len(self.registry) >= (self.resolver.limit or math.inf):
            raise TokenError("jwt store is full")
        if self.directory is not None:
            await trio.to_thread.run_sync(self.directory.write, subject, account.token)
        before = self.registry.put(account)
        self.on_change(before, account.claims)

    async def _delete(self, request: _Request) -> None:
        """Accounts that an operator wants to be forgotten; it says so in a token that it has signed itself."""
        subject = ""
        try:
            token = decode_token(request.payload)
            subject = token.subject
            if not self.resolver.allow_delete:
                raise TokenError("delete must be enabled in server config")  # noqa: TRY301
            if token.subject != token.issuer:
                raise TokenError("not self signed")  # noqa: TRY301
            if token.issuer not in self.registry.keys:
                raise TokenError("not trusted")  # noqa: TRY301
            if token.kind != "generic" or token.time_problem(self.clock.unix_ns() / NS_PER_S):
                raise TokenError("malformed request")  # noqa: TRY301
            keys = items(token.nats, "accounts")
            if not keys or not all(isinstance(key, str) and is_account_key(key) for key in keys):
                raise TokenError("malformed request")  # noqa: TRY301
            if self.system_account in keys:
                raise TokenError("not allowed to delete system account")  # noqa: TRY301
        except TokenError as error:
            self._answer(request, f"delete accounts request by {subject} failed", error=str(error))
            return
        errors = [problem for key in keys if (problem := await self._remove(key))]
        if errors:
            text = f"deleted {len(keys) - len(errors)} accounts, failed for {len(errors)}"
            self._answer(request, text, error="\n".join(errors))
        else:
            self._answer(request, f"deleted {len(keys)} accounts")

    async def _remove(self, key: str) -> str:
        """Forget an account; returns why that failed, or nothing."""
        assert self.directory is not None
        try:
            remove = partial(self.directory.remove, key, is_hard=self.resolver.hard_delete)
            await trio.to_thread.run_sync(remove)
        except OSError as error:
            return f"{key}: {error.strerror}"
        self.on_change(self.registry.remove(key), None)
        return ""

    # -- between nodes

    def _pack(self, request: _Request) -> None:
        """Send all tokens, one for a message, and an empty message; that one alone where the digests are the same."""
        if request.reply == self.inbox:
            return
        if request.payload != self.registry.digest():
            for claims in self.registry:
                self._reply(request, f"{claims.subject}|{self.registry.token_of(claims.subject)}".encode())
        self._reply(request, b"")

    async def _merge(self, request: _Request) -> None:
        """Tokens of another node: the newer one of an account counts."""
        for line in request.payload.split(b"\n"):
            _, _, token = line.partition(b"|")
            if not token:
                continue
            try:
                account = SignedAccount.read(token)
                self.registry.check_issuer(account.claims)
                known = self.registry.get(account.claims.subject)
                if known is None or known.issued_at_s < account.claims.issued_at_s:
                    await self._store(account)
            except (TokenError, OSError) as error:
                self.say.error(f"DirResolver - Merging resulted in error: {error}")

    async def _compare_often(self) -> None:
        """Ask the other nodes at once when one comes, and again every `interval`."""
        while True:
            self.outbox.send(
                COMPARE.encode(), reply=self.inbox, payload=self.registry.digest(), origin=MessageOrigin.SERVER
            )
            with trio.move_on_after(self.resolver.interval_ns / NS_PER_S):
                await self._compare.wait()
            self._compare = trio.Event()
            if self.resolver.kind == "cache" and self.directory is not None:
                with suppress(OSError):  # the next write says so
                    await trio.to_thread.run_sync(self.directory.expire)

    # -- answers

    def _list(self, request: _Request) -> None:
        keys = [claims.subject for claims in self.registry]
        self._reply(request, orjson.dumps({"server": self.server(), "data": keys}))

    def _answer(self, request: _Request, message: str, *, account: str = "", error: str = "") -> None:
        named = {"account": account} if account else {}
        document: dict[str, Any] = {"server": self.server()}
        if error:
            self.say.error(f"{message} - {account + ' - ' if account else ''}{error}")
            document["error"] = {**named, "code": FAILED, "description": f"{message} - {error}"}
        else:
            self.say.debug(f"{message}{' - ' + account if account else ''}")
            document["data"] = {**named, "code": OK, "message": message}
        self._reply(request, orjson.dumps(document))

    def _reply(self, request: _Request, payload: bytes) -> None:
        if request.reply:
            self.outbox.send(request.reply, payload=payload)
