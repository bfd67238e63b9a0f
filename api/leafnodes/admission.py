"""Subjects that a leaf node may exchange with its hub: permissions of its user, and what of JetStream stays.

The JetStream API of an account is never used over such a connection under its own name, which would be answered at both
ends; under the name of the domain, `$JS.<domain>.API`, it is. This server's own domain does not go out.
"""

from collections.abc import Iterable
from typing import Final

from jetraft.api.auth.granting import entries_of
from jetraft.api.credentials.permissions import Permissions
from jetraft.api.leafnodes.handshake import HubInfo
from jetraft.api.options.leafnodes import RemoteOptions
from jetraft.api.plane._permissions import UserPermissions

JETSTREAM: Final = ("$JS.API.>", "$KV.>", "$OBJ.>")
DOMAIN_APIS: Final = (
    "INFO", "STREAM.>", "CONSUMER.>", "DIRECT.>", "META.>", "SERVER.>", "ACCOUNT.>", "$KV.>", "$OBJ.>",
)  # fmt: skip


def domain_subjects(domain: str) -> tuple[str, ...]:
    """The subjects under which the JetStream API of a domain is known to others."""
    return tuple(f"$JS.{domain}.API.{name}" for name in DOMAIN_APIS) if domain else ()


def own_domain(domain: str, other: str) -> tuple[str, ...]:
    """Subjects that do not leave towards a server of another domain."""
    return (f"$JS.{domain}.API.>",) if domain and domain != other else ()


def granted(
    *,
    enter_allow: Iterable[str],
    enter_deny: Iterable[str],
    leave_allow: Iterable[str],
    leave_deny: Iterable[str],
) -> UserPermissions:
    """The lists as the plane asks them: what is published over a connection enters, what is subscribed to leaves."""
    return UserPermissions(
        publish_allow=entries_of(enter_allow) or None,
        publish_deny=entries_of(enter_deny) or None,
        subscribe_allow=entries_of(leave_allow) or None,
        subscribe_deny=entries_of(leave_deny) or None,
    )


def of_user(permissions: Permissions | None, denied: Iterable[str]) -> UserPermissions:
    """Those of a leaf node that connected as a user. `denied`: what does not leave beside JetStream's API."""
    user = permissions or Permissions()
    return granted(
        enter_allow=user.publish.allow,
        enter_deny=(*user.publish.deny, *JETSTREAM),
        leave_allow=user.subscribe.allow,
        leave_deny=(*user.subscribe.deny, *JETSTREAM, *denied),
    )


def of_remote(remote: RemoteOptions, info: HubInfo, denied: Iterable[str]) -> UserPermissions:
    """Those of a connection to a hub, which tells what it lets in and out."""
    return granted(
        enter_allow=info.may_import.get("allow", ()),
        enter_deny=(*info.may_import.get("deny", ()), *remote.deny_imports, *JETSTREAM),
        leave_allow=info.may_export.get("allow", ()),
        leave_deny=(*info.may_export.get("deny", ()), *remote.deny_exports, *JETSTREAM, *denied),
    )


def as_told(permissions: Permissions | None) -> dict[str, dict[str, list[str]]]:
    """The permissions of a user as INFO tells a leaf node."""
    if permissions is None:
        return {}
    lists = {"import": permissions.subscribe.told(), "export": permissions.publish.told()}
    return {name: given for name, given in lists.items() if given}
