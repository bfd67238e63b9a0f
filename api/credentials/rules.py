"""Rules of who may connect, as flags and configuration file say it: one frozen value. Pure."""

from collections.abc import Mapping
from types import MappingProxyType

import attrs

from jetraft.api.credentials.permissions import Permissions
from jetraft.api.credentials.secret import Secret
from jetraft.store.model.ids import GLOBAL_ACCOUNT

STANDARD = "STANDARD"
WEBSOCKET = "WEBSOCKET"
CONNECTION_TYPES = frozenset({
    STANDARD, WEBSOCKET, "LEAFNODE", "LEAFNODE_WS", "MQTT", "MQTT_WS", "IN_PROCESS",
})  # fmt: skip


@attrs.frozen(kw_only=True, slots=True)
class PasswordUser:
    """A user with a name and a password, plain or hashed. No connection types: all."""

    name: str
    password: Secret
    account: str = GLOBAL_ACCOUNT
    permissions: Permissions | None = None
    connection_types: frozenset[str] = frozenset()
    proxy_required: bool = False  # it may only come through a proxy that is trusted


@attrs.frozen(kw_only=True, slots=True)
class NkeyUser:
    """A user that is a public key and proves to have the private one."""

    nkey: str
    account: str = GLOBAL_ACCOUNT
    permissions: Permissions | None = None
    connection_types: frozenset[str] = frozenset()
    proxy_required: bool = False  # it may only come through a proxy that is trusted


@attrs.frozen(kw_only=True, slots=True)
class CalloutRules:
    """`auth_callout`: a service in `account` says who clients are, with tokens of `issuer`; but not who `users` are."""

    issuer: str
    account: str
    users: frozenset[str]
    xkey: str = ""  # the key for which requests are sealed; empty: they are not
    allowed: frozenset[str] | None = None  # of a signed account: others in which it may put a client, `*`: all
    signers: frozenset[str] = frozenset()  # of a signed account: keys that sign for it, beside its own
    delegated: frozenset[str] | None = None  # accounts of the configuration whose users it judges; None: all


@attrs.frozen(kw_only=True)
class AuthRules:
    """All of them. Without users, a name or a token everybody may connect."""

    users: tuple[PasswordUser, ...] = ()
    nkeys: tuple[NkeyUser, ...] = ()
    proxy_required: bool = False  # of everybody
    username: str = ""  # of `authorization { user, password }` and of --user and --pass
    password: Secret = attrs.field(factory=lambda: Secret(""))
    token: Secret = attrs.field(factory=lambda: Secret(""))
    no_auth_user: str = ""
    callout: CalloutRules | None = None
    by_name: Mapping[str, PasswordUser] = attrs.field(init=False, repr=False, eq=False)
    by_nkey: Mapping[str, NkeyUser] = attrs.field(init=False, repr=False, eq=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "by_name", MappingProxyType({user.name: user for user in self.users}))
        object.__setattr__(self, "by_nkey", MappingProxyType({user.nkey: user for user in self.nkeys}))

    def named(self, name: str) -> PasswordUser | NkeyUser | None:
        """The listed user of a name or a key."""
        return self.by_name.get(name) or self.by_nkey.get(name)

    @property
    def required(self) -> bool:
        """True when a client must say who it is."""
        return bool(self.users or self.nkeys or self.username or self.token or self.callout)

    @property
    def needs_nonce(self) -> bool:
        """True when INFO carries a nonce, which users with a key sign."""
        return bool(self.nkeys) or self.callout is not None

    @property
    def hashes(self) -> list[bytes]:
        """The bcrypt hashes among the secrets."""
        secrets = [self.password, self.token, *(user.password for user in self.users)]
        return [hashed for secret in secrets if (hashed := secret.hashed)]

    @property
    def has_plain_password(self) -> bool:
        """True when a password stands in the configuration as it is (a token does not count, as with nats-server)."""
        passwords = [*([self.password] if self.password else []), *(user.password for user in self.users)]
        return any(password.hashed is None for password in passwords)
