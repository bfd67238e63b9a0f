"""/subsz: subscriptions of clients and of this server itself, of all accounts or of one.

Every message that is published here is matched once, so `num_matches` is the number of these; the cache of answers is
shared by the accounts, and so is its rate of hits.
"""

from collections.abc import Callable
from typing import Any, Final

import attrs

from jetraft.api.monitor.questions import PageError, SubszQuestion
from jetraft.api.monitor.steps import Rows
from jetraft.api.monitor.subjects import Row, detail, is_literal
from jetraft.api.monitor.values import page_limit
from jetraft.api.plane._plane import Plane

LIMIT: Final = 1024
NOTHING: Final = (
    "num_subscriptions", "num_cache", "num_inserts", "num_removes", "num_matches", "cache_hit_rate", "max_fanout",
    "avg_fanout",
)  # fmt: skip


def sublist_stats(plane: Plane, account: str = "") -> dict[str, Any]:
    """Figures of the subject trees: all of them, or that of an account."""
    known = plane.account_names()
    names = [account] if account else known
    if account and account not in known:
        return dict.fromkeys(NOTHING, 0)
    figures = [plane.account(name).statistics() for name in names]
    held = sum(of["subscriptions"] + of["peer_subscriptions"] for of in figures)
    inserts = sum(of["inserts"] for of in figures)
    whole = plane.statistics()
    answers, receivers, most = plane.cached_answers(plane.account(account) if account else None)
    hits = 1 - whole["cache_misses"] / whole["in_msgs"] if whole["in_msgs"] else 0
    return {
        "num_subscriptions": held,
        "num_cache": answers,
        "num_inserts": inserts,
        "num_removes": inserts - held,
        "num_matches": sum(of["in_msgs"] for of in figures),
        "cache_hit_rate": max(hits, 0),
        "max_fanout": most,
        "avg_fanout": receivers / answers if answers else 0,
    }


@attrs.frozen(eq=False)
class Subsz:
    """Makes the page."""

    plane: Plane
    name_of: Callable[[str], str]  # of an account, for people

    def page(self, question: SubszQuestion) -> dict[str, Any]:
        """The page without its head. Raises PageError."""
        offset, limit = max(question.offset, 0), page_limit(question.limit, LIMIT)
        if question.test and not is_literal(question.test):
            raise PageError(f"invalid test subject, must be valid publish subject: {question.test}")
        document = sublist_stats(self.plane, question.account)
        total, rows = self._rows(question, offset, limit) if question.subscriptions else (0, [])
        document |= {"total": total, "offset": offset, "limit": limit}
        shown = {"subscriptions_list": Rows(detail(row, name_of=self.name_of) for row in rows)} if rows else {}
        return document | shown

    def _rows(self, question: SubszQuestion, offset: int, limit: int) -> tuple[int, list[Row]]:
        plane = self.plane
        names = plane.account_names()
        if question.account and question.account not in names:
            return 0, []
        if not question.test:
            account = plane.account(question.account) if question.account else None
            return plane.subscription_rows(offset, limit, account=account)
        total, found = 0, list[Row]()
        for name in [question.account] if question.account else names:
            count, rows = plane.receivers(
                plane.account(name), question.test.encode(), max(offset - total, 0), limit - len(found)
            )
            total += count
            found += rows
        return total, found
