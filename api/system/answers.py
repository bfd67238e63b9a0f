"""Answers to the requests of the system account: documents, before they become bytes."""

from collections.abc import Awaitable, Callable, Generator, Mapping
from typing import Any, Final

import attrs

from jetraft.api.credentials.permissions import Permissions, SubjectRules
from jetraft.api.monitor.pages import NO_PROFILES, Pages
from jetraft.api.monitor.questions import (
    AccountzQuestion,
    ConnzQuestion,
    JszQuestion,
    LeafzQuestion,
    PageError,
    StatzQuestion,
    SubszQuestion,
    from_pairs,
)
from jetraft.api.monitor.steps import Steps
from jetraft.api.sessions.session import Sessions
from jetraft.api.system.events import SystemEvents
from jetraft.store.model.encoding.gojson import Object
from jetraft.store.model.gosyntax import go_quote

SERVER_PAGES: Final = (
    "VARZ", "CONNZ", "SUBSZ", "ROUTEZ", "GATEWAYZ", "LEAFZ", "ACCOUNTZ", "JSZ", "HEALTHZ", "EXPVARZ", "RAFTZ",
    "IPQUEUESZ",
)  # fmt: skip
ACCOUNT_PAGES: Final = ("CONNZ", "SUBSZ", "LEAFZ", "JSZ", "INFO", "STATZ", "CONNS")
OWN_PAGES: Final = (
    "$SYS.REQ.SERVER.PING.CONNZ", "$SYS.REQ.ACCOUNT.PING.CONNZ", "$SYS.REQ.ACCOUNT.PING.STATZ",
)  # fmt: skip

HTTP_NOT_FOUND: Final = 404

Document = dict[str, Any]
Made = Document | Awaitable[Document] | Steps[Document]


class NoAnswerError(Exception):
    """This server has nothing to say to a request; others may."""


@attrs.frozen(kw_only=True, eq=False)
class Answers:
    """Makes the documents."""

    pages: Pages
    sessions: Sessions
    events: SystemEvents

    def of_server(self, page: str, pairs: Object) -> Made:
        """A page about this server. Raises ArgumentError, PageError, NoAnswerError."""
        if page == "PROFILEZ":
            return {"profile": None, "error": NO_PROFILES}
        kind = self.pages.kinds[page]
        question: Any = from_pairs(kind.question, pairs, kind.go_name)
        if isinstance(question, JszQuestion) and question.leader_only and self.pages.jetstream is None:
            raise NoAnswerError
        made = kind.make(question)
        return gathered(made, question) if isinstance(made, Generator) else made

    def of_account(self, page: str, account: str, pairs: Object) -> Made:
        """A page about one account. Raises ArgumentError, PageError, NoAnswerError."""
        made: Mapping[str, Callable[[], Made]] = {
            "CONNZ": lambda: self.connz(account, pairs),
            "SUBSZ": lambda: self._subsz(account, pairs),
            "LEAFZ": lambda: self._leafz(account, pairs),
            "JSZ": lambda: self._jsz(account, pairs),
            "INFO": lambda: self.pages.accounts.info(account),
            "STATZ": lambda: self._statz(None if account == "PING" else account, pairs),
        }
        return made[page]()

    def connz(self, account: str, pairs: Object) -> Made:
        """The connections of an account."""
        kind = self.pages.kinds["CONNZ"]
        asked = from_pairs(ConnzQuestion, pairs, kind.go_name)
        return kind.make(attrs.evolve(asked, acc=account))

    def own_statz(self, account: str, pairs: Object) -> Steps[Document]:
        """Counts of what goes in and out of the account that asks."""
        return self._statz(account, pairs)

    def _statz(self, account: str | None, pairs: Object) -> Steps[Document]:
        asked = from_pairs(StatzQuestion, pairs, "AccountStatzEventOptions")
        if account is not None:
            asked = attrs.evolve(asked, accounts=(account,))
        made = self.pages.kinds["STATZ"].make(asked)
        assert isinstance(made, Generator)
        document = yield from made
        if not document["account_statz"]:
            raise NoAnswerError
        return document

    def _subsz(self, account: str, pairs: Object) -> Made:
        asked = from_pairs(SubszQuestion, pairs, "SubszEventOptions")
        return self.pages.kinds["SUBSZ"].make(attrs.evolve(asked, account=account, subscriptions=True))

    def _leafz(self, account: str, pairs: Object) -> Steps[Document]:
        asked = from_pairs(LeafzQuestion, pairs, "LeafzEventOptions")
        return self.pages.leafz(attrs.evolve(asked, account=account))

    def _jsz(self, account: str, pairs: Object) -> Made:
        asked = from_pairs(JszQuestion, pairs, "JszEventOptions")
        if self.pages.jetstream is None:
            raise NoAnswerError
        accounts = self.pages.accounts
        if account in accounts.known_accounts() and account not in accounts.with_jetstream():
            raise PageError(f"account {go_quote(account)} not jetstream enabled")
        return self.pages.jetstream.jsz_account(account, asked)

    def conns(self, account: str, pairs: Object) -> Document:
        """How many clients an account has here; nothing without one, or when the body names another account."""
        named = from_pairs(AccountzQuestion, Object(("account", value) for key, value in pairs if key == "acc"), "X")
        if named.account not in ("", account) or account not in self.pages.accounts.known_accounts():
            raise NoAnswerError
        return self.events.account_connections(account)

    def user_info(self, cid: int, account: str) -> Document:
        """The client that asks."""
        session = self.sessions.by_cid.get(cid)
        if session is None or session.verdict is None or session.account != account:
            raise NoAnswerError
        verdict, name_of = session.verdict, self.pages.accounts.name_of
        document: Document = {"user": verdict.user, "account": account, "account_name": name_of(account)}
        if verdict.claims is not None and verdict.claims.name:
            document["user_name"] = verdict.claims.name
        if verdict.permissions is not None:
            document["permissions"] = shown(verdict.permissions, is_signed=verdict.claims is not None)
        return document


def gathered(made: Steps[Document], question: object) -> Steps[Document]:
    """A page as it is in an answer. Raises PageError, NoAnswerError."""
    try:
        return (yield from made)
    except PageError as error:
        if isinstance(question, JszQuestion) and question.leader_only:
            raise NoAnswerError from error  # the leader of the meta group alone answers: one of all nodes
        if error.status == HTTP_NOT_FOUND:  # over HTTP that is an error, here it is nothing
            return {}
        raise


def shown(permissions: Permissions, *, is_signed: bool) -> Document:
    """The permissions of a user, as nats-server tells it: of one with a token both kinds, be they empty."""
    lists = {"publish": rules(permissions.publish), "subscribe": rules(permissions.subscribe)}
    answers = permissions.responses
    responses = {"responses": {"max": answers.max_msgs, "ttl": answers.expires_ns}} if answers is not None else {}
    return {name: listed for name, listed in lists.items() if listed or is_signed} | responses


def rules(listed: SubjectRules) -> Document:
    """Two lists, without empty ones."""
    both = {"allow": list(listed.allow), "deny": list(listed.deny)}
    return {name: subjects for name, subjects in both.items() if subjects}
