"""The answer of `/healthz`, in nats-server's words and codes."""

from typing import Any, Final, Protocol

import attrs
import orjson

from jetraft.api.monitor.page import Page
from jetraft.api.monitor.questions import HealthQuestion
from jetraft.store.model.gosyntax import go_quote

HTTP_OK: Final = 200
HTTP_UNAVAILABLE: Final = 503
NAMES: Final = ("account", "stream", "consumer")


@attrs.frozen(kw_only=True)
class HealthStatus:
    """The answer: HTTP status, the reason if it is not 200, what the reason is about, a `notice` without effect."""

    status: int = HTTP_OK
    error: str = ""
    notice: str = ""
    kind: str = "JETSTREAM"

    def page(self, question: HealthQuestion) -> Page:
        """The answer as nats-server writes it: one error, or with `details` a list of them."""
        return Page(body=orjson.dumps(self.document(question)), status=self.status)

    def document(self, question: HealthQuestion) -> dict[str, Any]:
        """The same as a document."""
        document: dict[str, Any] = {"status": "ok"}
        if self.status != HTTP_OK and question.details:
            depth = DEPTHS.get(self.kind, 0)
            about = {name: getattr(question, name) for name in NAMES[:depth]}
            document = {"status": "error", "errors": [{"type": self.kind, **about, "error": self.error}]}
        elif self.status == HTTP_UNAVAILABLE:
            document = {"status": "unavailable", "status_code": self.status, "error": self.error}
        elif self.status != HTTP_OK:
            document = {"status": "error" if self.kind == BAD_REQUEST else "unavailable", "error": self.error}
        if self.notice:
            document["notice"] = self.notice
        return document


BAD_REQUEST: Final = "BAD_REQUEST"
DEPTHS: Final = {"ACCOUNT": 1, "STREAM": 2, "CONSUMER": 3}  # how many of NAMES an error of this kind has


class Inventory(Protocol):
    """The knowledge here of accounts, streams and consumers. Implemented by api/jetstream/inventory.py."""

    def has_account(self, account: str) -> bool:
        """Whether the account has JetStream."""

    def has_stream(self, account: str, stream: str) -> bool:
        """Whether the stream is assigned to any node."""

    def has_consumer(self, account: str, stream: str, consumer: str) -> bool | None:
        """Whether the consumer is there; None on a node without a replica of its stream, which cannot tell."""


def missing(question: HealthQuestion, inventory: Inventory) -> HealthStatus | None:
    """The answer if what is asked about is not there."""
    account, stream = question.account, question.stream
    if account and not inventory.has_account(account):
        return HealthStatus(status=404, kind="ACCOUNT", error=f"JetStream account {go_quote(account)} not found")
    if stream and not inventory.has_stream(account, stream):
        error = f"JetStream stream {go_quote(stream)} not found on account {go_quote(account)}"
        return HealthStatus(status=404, kind="STREAM", error=error)
    return _missing_consumer(question, inventory) if question.consumer else None


def _missing_consumer(question: HealthQuestion, inventory: Inventory) -> HealthStatus | None:
    account, stream, consumer = question.account, question.stream, question.consumer
    found = inventory.has_consumer(account, stream, consumer)
    if found is None:
        error = "a consumer is checked on the servers that have a replica of its stream"
        return HealthStatus(status=400, kind=BAD_REQUEST, error=error)
    names = f"for stream {go_quote(stream)} on account {go_quote(account)}"
    error = f"JetStream consumer {go_quote(consumer)} not found {names}"
    return None if found else HealthStatus(status=404, kind="CONSUMER", error=error)
