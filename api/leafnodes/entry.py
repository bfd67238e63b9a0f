"""Servers that may come in as leaf nodes: the rules of the block, or else of clients, and what else is asked."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

import attrs

from jetraft.api.auth.authenticator import Authenticator
from jetraft.api.credentials.nkeys import signed, signed_by_one
from jetraft.api.credentials.verdicts import ConnectionFacts, Credentials, LoginRefusal, Outcome, Verdict
from jetraft.api.exchange.setup import nobody
from jetraft.api.leafnodes.link import LeafLink
from jetraft.api.leafnodes.texts import SAME_CLUSTER, TOO_MANY, err, version_of
from jetraft.api.options.leafnodes import LeafOptions
from jetraft.api.plane.reasons import Reason
from jetraft.api.sessions.connect import credentials_of
from jetraft.api.tls.facts import mapped_user
from jetraft.store.model.clock import NS_PER_S
from jetraft.store.model.gosyntax import go_quote

if TYPE_CHECKING:
    from jetraft.api.auth.callouts import Callouts
    from jetraft.api.auth.lookups import AccountLookups
    from jetraft.api.credentials.claims import AccountClaims
    from jetraft.api.credentials.rules import CalloutRules
    from jetraft.api.credentials.trust import Eviction

Done = Callable[[Verdict | LoginRefusal], None]
LEAFNODE: Final = "LEAFNODE"


def unchanged(_service: "CalloutRules | None") -> object:
    """The basis of judgements by rules that stay."""
    return None


@attrs.define(eq=False)
class LeafEntry:
    """Judges what a CONNECT says. `fallback` judges clients."""

    options: LeafOptions
    cluster: str  # of this server
    fallback: Callable[[], Authenticator]
    lookups: "AccountLookups | None" = None
    callouts: "Callouts | None" = None  # of clients, and of leaf nodes that have no rules of their own
    proxies: tuple[str, ...] = ()  # keys of those that may speak for others
    basis: "Callable[[CalloutRules | None], object]" = unchanged  # of a judgement, as Logins.basis
    elsewhere: Callable[[str], int] = nobody  # how many an account has at the other servers of the cluster
    own: Authenticator = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.own = Authenticator(self.options.auth, signed)

    @property
    def authenticator(self) -> Authenticator:
        """The rules in force."""
        return self.own if self.own.rules.required else self.fallback()

    def is_costly(self, offered: Credentials) -> bool:
        """Whether a signature is verified to find out who this is."""
        authenticator = self.authenticator
        is_signed = authenticator.judge_token is not None or bool(authenticator.rules.nkeys and offered.nkey)
        return is_signed or self.called is not None or bool(self.proxies)

    @property
    def called(self) -> "Callouts | None":
        """The service that is asked, if one is."""
        return self.callouts if self.authenticator is not self.own else None

    def trusts_proxy(self, link: LeafLink) -> bool:
        """Note which trusted proxy speaks for a leaf node; False: one that is not trusted claims to."""
        signature = link.document.get("proxy_sig")
        link.proxy_key = signed_by_one(self.proxies, signature, link.nonce.encode()) if signature else ""
        return bool(link.proxy_key) or not signature

    def facts_of(self, link: LeafLink, unix_ns: int) -> ConnectionFacts:
        """The knowledge of a leaf node without being told by it."""
        nonce, tls, is_proxied = link.nonce.encode(), self.options.tls, bool(link.proxy_key)
        if tls is not None and tls.verify_and_map and self.own.rules.users:
            user = mapped_user(link.tls, self.own.rules.by_name)
            return ConnectionFacts(
                kind=LEAFNODE, nonce=nonce, maps_certificates=True, certificate_user=user, is_proxied=is_proxied
            )
        return ConnectionFacts(kind=LEAFNODE, nonce=nonce, ip=link.ip, unix_ns=unix_ns, is_proxied=is_proxied)

    def judge(self, link: LeafLink, offered: Credentials, unix_ns: int) -> "Outcome | CalloutRules":
        """The user, or the service that is asked."""
        called, authenticator = self.called, self.authenticator
        if called is not None and called.rules is not None and not called.may_stand(offered, None):
            return called.rules
        facts = self.facts_of(link, unix_ns)
        outcome = (self.own if facts.maps_certificates else authenticator).judge(offered, facts)
        service = None if called is None else called.service_for(offered, outcome, of_leaf=True)
        return outcome if service is None else service

    def offered_by(self, link: LeafLink) -> Credentials:
        """Whom a leaf node names; where a service judges, one without a name is `no_auth_user`."""
        offered, called = credentials_of(link.document), self.called
        if called is not None:
            link.document = called.by_default(link.document, offered, self.authenticator.rules)
        return credentials_of(link.document)

    def ask(
        self, link: LeafLink, service: "CalloutRules", unix_ns: int, present: Callable[[], bool], done: Done
    ) -> bool:
        """Ask a service who this is; `done` is called with its answer. False: too many are asked about."""
        from jetraft.api.auth.callouts import AskedConnection, names_of, tls_of  # noqa: PLC0415  where there is one

        assert self.callouts is not None
        about = {"host": link.ip, "id": link.cid, "kind": "Leafnode", **names_of(link.document, link.nonce)}
        asker = AskedConnection(ip=link.ip, client=about, tls=tls_of(link.tls), is_present=present)
        return self.callouts.ask(asker, link.document, self.facts_of(link, unix_ns), done, service)

    def bounded(self, verdict: Verdict) -> Verdict:
        """The verdict, without what a leaf node may not do however it is listed."""
        called = self.called
        return verdict if called is None else called.bounded(verdict)

    def seeks(self, link: LeafLink, outcome: "Outcome | CalloutRules", again: Callable[[], None]) -> bool:
        """Whether the account of a refused user is looked up, and the leaf node judged again after that."""
        if self.lookups is None or not isinstance(outcome, LoginRefusal):
            return False
        return self.lookups.seeks(outcome, link.ip, again)

    def count_elsewhere(self, counts: Callable[[str], int]) -> None:
        """Add these to what an account has here."""
        self.elsewhere = counts

    def is_full(self, link: LeafLink, links: Iterable[LeafLink]) -> bool:
        """Whether the account has as many accepted leaf nodes as its token lets it have."""
        verdict = link.verdict
        if verdict is None or verdict.max_leafnodes < 0:
            return False
        others = sum(one.admitted and one.remote is None and one.account == link.account for one in links)
        return others + self.elsewhere(link.account) >= verdict.max_leafnodes

    @staticmethod
    def judged_again(
        account: str, claims: "AccountClaims | None", links: Iterable[LeafLink], unix_ns: int
    ) -> "list[tuple[LeafLink, Verdict | Eviction]]":
        """The verdicts on the accepted leaf nodes of an account from now on; the oldest of too many may stay."""
        from jetraft.api.credentials.trust import Eviction, renewed  # noqa: PLC0415  only servers with operators have it

        found: list[tuple[LeafLink, Verdict | Eviction]] = []
        kept = 0
        for link in links:
            if link.verdict is None or link.verdict.claims is None or link.account != account:
                continue
            outcome = renewed(link.verdict, claims, unix_ns / NS_PER_S)
            if isinstance(outcome, Verdict):
                kept += 1
                if 0 <= outcome.max_leafnodes < kept:
                    outcome = Eviction(last_words=err(TOO_MANY))
            found.append((link, outcome))
        return found

    def account_of(self, verdict: Verdict) -> str:
        """The account of a user is its own. That of the block is for its one user, and where everybody may come in."""
        rules = self.authenticator.rules
        is_of_clients = rules is not self.own.rules and (rules.required or verdict.claims is not None)
        if is_of_clients or self.options.auth.users or not self.options.account:
            return verdict.account
        return self.options.account

    def objection(self, link: LeafLink) -> tuple[str, Reason] | None:
        """The objection to a server whose user is known."""
        assert link.peer is not None
        if self.cluster and link.peer.cluster == self.cluster:
            return SAME_CLUSTER, Reason.CLUSTER_NAMES_IDENTICAL
        oldest = self.options.min_version
        if oldest is not None and version_of(link.peer.version) < oldest:
            wanted = go_quote(".".join(map(str, oldest)))
            return f"connection rejected since minimum version required is {wanted}", Reason.MINIMUM_VERSION_REQUIRED
        return None
