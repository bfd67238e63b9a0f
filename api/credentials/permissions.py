"""Permissions to publish and subscribe, as the configuration says it. Pure.

The lists are subjects with wildcards; those of subscriptions may name a queue behind a blank. Their meaning is decided
in the data plane.
"""

import attrs

from jetraft.store.model.clock import NS_PER_S

NO_LIMIT = -1
RESPONSES_MAX = 1  # of one request, when `allow_responses` does not say; nats-server's default
RESPONSES_EXPIRE_NS = 120 * NS_PER_S  # nats-server's default


@attrs.frozen(kw_only=True, slots=True)
class SubjectRules:
    """Two lists of subjects. An empty `allow` allows everything; what `deny` matches is refused."""

    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()

    def told(self) -> dict[str, list[str]]:
        """As other servers are told, and pages show it: only what is not empty."""
        return {key: list(given) for key, given in (("allow", self.allow), ("deny", self.deny)) if given}


@attrs.frozen(kw_only=True, slots=True)
class ResponseRules:
    """`allow_responses`: a user may publish to the reply subjects of messages that it received. -1: no limit."""

    max_msgs: int = RESPONSES_MAX
    expires_ns: int = RESPONSES_EXPIRE_NS


@attrs.frozen(kw_only=True, slots=True, cache_hash=True, weakref_slot=True)
class Permissions:
    """The permissions of one user. With `responses` an empty list of subjects to publish to allows none."""

    publish: SubjectRules = SubjectRules()
    subscribe: SubjectRules = SubjectRules()
    responses: ResponseRules | None = None


def least(first: int, second: int) -> int:
    """The smaller of two limits of tokens. -1 is no limit; any other negative one allows nothing."""
    return min((max(limit, 0) for limit in (first, second) if limit != NO_LIMIT), default=NO_LIMIT)
