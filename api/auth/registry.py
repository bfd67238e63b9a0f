"""The accounts that operators have signed, by their public keys. They are known from the start and may change later."""

import hashlib
from collections.abc import Iterator
from functools import reduce
from typing import Final

import attrs

from jetraft.api.credentials.claim_fields import TokenError
from jetraft.api.credentials.claims import AccountClaims, account_claims
from jetraft.api.credentials.nkeys import signed
from jetraft.api.credentials.tokens import decode_token
from jetraft.api.credentials.trust import TokenJudge, TrustRules
from jetraft.api.options.options import JetStreamAccounts
from jetraft.store.model.ids import GLOBAL_ACCOUNT

DIGEST_BYTES: Final = 32


@attrs.frozen
class SignedAccount:
    """An account and the token that says so."""

    claims: AccountClaims
    token: str = attrs.field(repr=False)

    @classmethod
    def read(cls, token: str | bytes) -> "SignedAccount":
        """Verify a token of an account. Raises TokenError."""
        claims = account_claims(decode_token(token))
        return cls(claims, token if isinstance(token, str) else token.decode("ascii"))


@attrs.define(eq=False)
class AccountRegistry:
    """The claims of every account's newest token. `keys` are the operators'; an account of another is not taken in."""

    rules: TrustRules
    keys: frozenset[str] = attrs.field(init=False)
    _by_key: dict[str, SignedAccount] = attrs.field(factory=dict)

    def __attrs_post_init__(self) -> None:
        self.keys = self.rules.keys

    def judge(self) -> TokenJudge:
        """The judge of users of these accounts."""
        return TokenJudge(self.rules, self.get, signed)

    def get(self, key: str) -> AccountClaims | None:
        """The account of this key."""
        known = self._by_key.get(key)
        return None if known is None else known.claims

    def token_of(self, key: str) -> str | None:
        """The token of an account."""
        known = self._by_key.get(key)
        return None if known is None else known.token

    def name_of(self, key: str) -> str:
        """The name of an account in its token; the key where there is none, or it has no name."""
        known = self._by_key.get(key)
        return key if known is None else known.claims.name or key

    def check_issuer(self, claims: AccountClaims) -> None:
        """Raise TokenError for an account of another operator."""
        if claims.issuer not in self.keys:
            if claims.issuer in {operator.subject for operator in self.rules.operators}:
                raise TokenError("operator requires issuer to be a signing key")
            raise TokenError("the account is not signed by a trusted operator")

    def put(self, account: SignedAccount) -> AccountClaims | None:
        """Take over a token; returns what the account was before."""
        before = self._by_key.get(account.claims.subject)
        self._by_key[account.claims.subject] = account
        return None if before is None else before.claims

    def remove(self, key: str) -> AccountClaims | None:
        """Forget an account; returns what it was."""
        known = self._by_key.pop(key, None)
        return None if known is None else known.claims

    def digest(self) -> bytes:
        """A digest that is equal on nodes with the same tokens: their hashes, combined in any order."""
        hashes = (
            int.from_bytes(hashlib.sha256(known.token.encode()).digest(), "big") for known in self._by_key.values()
        )
        return reduce(int.__xor__, hashes, 0).to_bytes(DIGEST_BYTES, "big")

    def jetstream(self, system_account: str) -> JetStreamAccounts:
        """The limits of each account in JetStream; the system account may use nothing and change the cluster."""
        limits = {GLOBAL_ACCOUNT: None, **{claims.subject: claims.jetstream for claims in self}, system_account: None}
        return JetStreamAccounts(limits=limits, operators=frozenset({system_account}), may_change=True)

    def __iter__(self) -> Iterator[AccountClaims]:
        return iter([known.claims for known in self._by_key.values()])

    def __len__(self) -> int:
        return len(self._by_key)
