"""Permissions made into what the data plane asks: once for each that is in use, shared by its connections."""

from collections.abc import Iterable
from typing import Final
from weakref import WeakValueDictionary

import attrs

from jetraft.api.credentials.permissions import Permissions
from jetraft.api.plane._permissions import UserPermissions

QUEUE_WORDS: Final = 2  # "subject queue"
Entries = list[tuple[bytes, bytes]]


def entries_of(listed: Iterable[str]) -> Entries:
    """Subjects and the queues behind them."""
    words = (entry.encode().split() for entry in listed)
    return [(found[0], found[1] if len(found) == QUEUE_WORDS else b"") for found in words]


def build(permissions: Permissions) -> UserPermissions:
    """Permissions in the plane's form. An empty list to publish to allows nothing where answers are allowed."""
    publish, subscribe, answers = permissions.publish, permissions.subscribe, permissions.responses
    return UserPermissions(
        publish_allow=entries_of(publish.allow) if publish.allow or answers is not None else None,
        publish_deny=entries_of(publish.deny) if publish.deny else None,
        subscribe_allow=entries_of(subscribe.allow) if subscribe.allow else None,
        subscribe_deny=entries_of(subscribe.deny) if subscribe.deny else None,
        answers=None if answers is None else (answers.max_msgs, answers.expires_ns),
    )


@attrs.frozen(eq=False)
class Grants:
    """The permissions that are in use."""

    _built: "WeakValueDictionary[Permissions, UserPermissions]" = attrs.field(factory=WeakValueDictionary)

    def of(self, permissions: Permissions | None) -> UserPermissions | None:
        """The plane's form for a user with these permissions; None for one that may do everything."""
        if permissions is None:
            return None
        known = self._built.get(permissions)
        if known is None:
            known = self._built[permissions] = build(permissions)
        return known
