"""`authorization { auth_callout { ... } }`: a service says who clients are. Texts of errors are nats-server's."""

from collections.abc import Mapping

from jetraft.api.config.blocks import Apply, apply_all, put, spelled
from jetraft.api.config.gotypes import go_type
from jetraft.api.config.settings import OptionsError, Settings
from jetraft.api.config.values import text
from jetraft.api.credentials.nkeys import is_account_key
from jetraft.api.credentials.rules import AuthRules, CalloutRules
from jetraft.api.credentials.sealing import is_curve_key
from jetraft.store.model.gosyntax import go_quote
from jetraft.store.model.ids import GLOBAL_ACCOUNT


def auth_callout(settings: Settings, value: object) -> None:
    """The block."""
    found: Settings = {}
    apply_all("authorization.auth_callout", value, KEYS, found)
    if not found.get("issuer"):
        raise OptionsError("Authorization callouts require an issuer to be specified")
    if not found.get("users"):
        raise OptionsError("Authorization callouts require authorized users to be specified")
    settings["callout"] = CalloutRules(account=found.pop("account", "") or GLOBAL_ACCOUNT, **found)


def issuer(_key: str, value: object) -> str:
    """The key that signs the service's answers."""
    if not isinstance(value, str) or not is_account_key(value):
        raise OptionsError(f"Expected callout user to be a valid public account nkey, got {go_quote(str(value))}")
    return value


def users(_key: str, value: object) -> frozenset[str]:
    """Those that the configuration judges."""
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise OptionsError("Expected auth_users field to be an array")
    return frozenset(value)


def allowed(_key: str, value: object) -> frozenset[str] | None:
    """Accounts whose users the service judges; an empty list is all."""
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise OptionsError(f"Expected allowed accounts field to be an array, got {go_type(value)}")
    return frozenset(value) or None


def xkey(_key: str, value: object) -> str:
    """The key for which requests are sealed."""
    if not isinstance(value, str) or not is_curve_key(value):
        raise OptionsError(f"Expected callout xkey to be a valid public xkey, got {go_quote(str(value))}")
    return value


KEYS: Mapping[str, Apply] = {
    "issuer": put("issuer", issuer),
    **spelled(put("account", text), "account", "acc"),
    **spelled(put("users", users), "auth_users", "users"),
    **spelled(put("xkey", xkey), "xkey", "key"),
    "allowed_accounts": put("delegated", allowed),
}


def check_callout(rules: AuthRules, accounts: frozenset[str]) -> None:
    """Raise OptionsError where a callout names what there is not."""
    callout = rules.callout
    if callout is None:
        return
    if callout.account not in accounts:
        raise OptionsError(f"Authorization callout account {go_quote(callout.account)} not valid")
    for name in sorted(callout.users):
        if name not in rules.by_name and name not in rules.by_nkey and name != rules.username:
            raise OptionsError(f"Authorization callout user {go_quote(name)} not valid")
    for account in sorted(callout.delegated or ()):
        if account not in accounts:
            raise OptionsError(f"auth_callout allowed account {go_quote(account)} not found in configured accounts")
    if rules.no_auth_user in rules.by_nkey:
        raise OptionsError("no_auth_user of a key with auth_callout is not served by jetraft yet")
