"""Who may come in as a leaf node: the rules of the block, or of clients where it has none, and what else is asked."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

import attrs

from jetraft.api.auth.authenticator import Authenticator
from jetraft.api.auth.nkeys import signed
from jetraft.api.auth.verdicts import ConnectionFacts, Credentials, Outcome, Verdict
from jetraft.api.leafnodes.link import LeafLink
from jetraft.api.leafnodes.options import LeafOptions
from jetraft.api.leafnodes.texts import SAME_CLUSTER, TOO_MANY, err, version_of
from jetraft.api.reasons import Reason
from jetraft.api.tls.facts import mapped_user
from jetraft.store.model.clock import NS_PER_S
from jetraft.store.model.gosyntax import go_quote

if TYPE_CHECKING:
    from jetraft.api.auth.claims import AccountClaims
    from jetraft.api.auth.lookups import AccountLookups
    from jetraft.api.auth.trust import Eviction

LEAFNODE: Final = "LEAFNODE"


@attrs.define(eq=False)
class LeafEntry:
    """Judges what a CONNECT says. `fallback` judges clients."""

    options: LeafOptions
    cluster: str  # of this server
    fallback: Callable[[], Authenticator]
    lookups: "AccountLookups | None" = None
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
        return authenticator.judge_token is not None or bool(authenticator.rules.nkeys and offered.nkey)

    def judge(self, link: LeafLink, offered: Credentials, unix_ns: int) -> Outcome:
        """Who this is."""
        nonce, tls = link.nonce.encode(), self.options.tls
        if tls is not None and tls.verify_and_map and self.own.rules.users:
            user = mapped_user(link.tls, self.own.rules.by_name)
            facts = ConnectionFacts(kind=LEAFNODE, nonce=nonce, maps_certificates=True, certificate_user=user)
            return self.own.judge(offered, facts)
        facts = ConnectionFacts(kind=LEAFNODE, nonce=nonce, ip=link.ip, unix_ns=unix_ns)
        return self.authenticator.judge(offered, facts)

    def seeks(self, link: LeafLink, outcome: Outcome, again: Callable[[], None]) -> bool:
        """Whether the account of a refused user is looked up, and the leaf node judged again after that."""
        return self.lookups is not None and self.lookups.seeks(outcome, link.ip, again)

    @staticmethod
    def is_full(link: LeafLink, links: Iterable[LeafLink]) -> bool:
        """Whether the account has as many accepted leaf nodes as its token lets it have."""
        verdict = link.verdict
        if verdict is None or verdict.max_leafnodes < 0:
            return False
        others = sum(one.admitted and one.remote is None and one.account == link.account for one in links)
        return others >= verdict.max_leafnodes

    @staticmethod
    def judged_again(
        account: str, claims: "AccountClaims | None", links: Iterable[LeafLink], unix_ns: int
    ) -> "list[tuple[LeafLink, Verdict | Eviction]]":
        """What holds for the accepted leaf nodes of an account from now on; the oldest of too many may stay."""
        from jetraft.api.auth.trust import Eviction, renewed  # noqa: PLC0415  only servers with operators have it

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
        """What speaks against a server whose user is known."""
        assert link.peer is not None
        if self.cluster and link.peer.cluster == self.cluster:
            return SAME_CLUSTER, Reason.CLUSTER_NAMES_IDENTICAL
        oldest = self.options.min_version
        if oldest is not None and version_of(link.peer.version) < oldest:
            wanted = go_quote(".".join(map(str, oldest)))
            return f"connection rejected since minimum version required is {wanted}", Reason.MINIMUM_VERSION_REQUIRED
        return None
