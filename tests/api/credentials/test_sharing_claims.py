"""What the token of an account says that it shares, what is refused, and which imports are admitted."""

from typing import Any

import pytest

from jetraft.api.credentials.claim_fields import TokenError
from jetraft.api.credentials.claims import account_claims
from jetraft.api.credentials.tokens import decode_token
from jetraft.api.exchange.admission import Admission
from jetraft.api.exchange.values import Activation, Export, Import, LatencySampling, Sharing, SharingKind
from tests.harness.tokens import Keys, TokenOperator, claims_of

OPERATOR = TokenOperator()
OTHER = OPERATOR.account("E")
IMPORT = {"type": "service", "subject": "s", "account": OTHER.key}
EXPORT = {"type": "service", "subject": "s"}
STREAM = {"type": "stream", "subject": "s"}
LIMITS = {"imports": -1, "exports": -1, "wildcards": True}


def shared(**nats: Any) -> Sharing:
    return account_claims(decode_token(OPERATOR.account("A").token(**nats))).sharing


def activation(importer: str, kind: str = "service", subject: str = "s", by: Keys | None = None, **nats: Any) -> str:
    claims = claims_of("activation", importer, {"subject": subject, "kind": kind, **nats}, {})
    return (by or OTHER.keys).token(claims)


REFUSED: dict[str, dict[str, Any]] = {
    "neither a stream nor a service": {"exports": [{"subject": "s"}]},
    "no valid subject": {"exports": [{"type": "stream", "subject": "a..b"}]},
    "unknown response type": {"exports": [{**EXPORT, "response_type": "Many"}]},
    "no wildcard of its subject": {"exports": [{**EXPORT, "account_token_position": 1}]},
    "between 1-100": {"exports": [{**EXPORT, "service_latency": {"sampling": 101, "results": "l"}}]},
    "only permitted for services": {"exports": [{**STREAM, "service_latency": {"sampling": 1, "results": "l"}}]},
    "results subject": {"exports": [{**EXPORT, "service_latency": {"sampling": 1, "results": "l.*"}}]},
    "two exports": {"exports": [EXPORT, EXPORT]},
    "contains another": {"exports": [EXPORT, {**EXPORT, "subject": "*"}]},
    "more exports": {"exports": [EXPORT, STREAM], "limits": {"exports": 1}},
    "more imports": {"imports": [IMPORT], "limits": {"imports": 0}},
    "wildcard exports": {"exports": [{**EXPORT, "subject": "a.*"}], "limits": {"wildcards": False}},
    "not an account public key": {"imports": [{**IMPORT, "account": "A"}]},
    "both a local subject": {"imports": [{**IMPORT, "to": "a", "local_subject": "b"}]},
    "overlapping subject namespace": {"imports": [IMPORT, {**IMPORT, "subject": "*", "local_subject": ">"}]},
    "expected 3 chunks": {"imports": [{**IMPORT, "token": "x"}]},
    "is no activation": {"imports": [{**IMPORT, "token": OTHER.token()}]},
    "match the account it is being": {"imports": [{**IMPORT, "token": activation(OTHER.key)}]},
    "no valid subject or weight": {"mappings": {"a..b": [{"subject": "b"}]}},
    "a mapping is not valid": {"mappings": {"a.*": [{"subject": "b.$2"}]}},
    "weight": {"mappings": {"a": [{"subject": "b", "weight": 200}]}},
}


@pytest.mark.parametrize("text", REFUSED)
def test_a_token_that_shares_what_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(TokenError, match=text):
        shared(**REFUSED[text])


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        ("match the account of its import", {"by": Keys.new("account")}),
        ("match the account of its import", {"issuer_account": Keys.new("account").public}),
        ("mismatch between the type", {"kind": "stream"}),
        ("match its import", {"subject": "t"}),
    ],
)
def test_an_activation_for_something_else_is_refused(text: str, changes: dict[str, Any]) -> None:
    account = OPERATOR.account("A")
    token = activation(account.key, **changes)
    with pytest.raises(TokenError, match=text) as error:
        account_claims(decode_token(account.token(imports=[{**IMPORT, "token": token}])))
    assert token not in str(error.value)


def test_a_token_without_any_of_it_shares_nothing() -> None:
    found = shared()
    assert (found.exports, found.imports, found.mappings) == ((), (), ())


GIVER, TAKER = "E", "I"
STREAMS = Export(kind=SharingKind.STREAM, subject="s")
CLOSED = Export(kind=SharingKind.STREAM, subject="s", needs_activation=True)
WANTED = Import(kind=SharingKind.STREAM, account=GIVER, subject="s")
ACTIVE = Import(
    kind=SharingKind.STREAM,
    account=GIVER,
    subject="s",
    activation=Activation(signer=GIVER, importer=TAKER, issued_at_s=5, not_before_s=10, expires_s=20),
)


def test_an_import_is_admitted_when_its_exporter_comes_and_ends_with_it() -> None:
    admission = Admission()
    (refused,) = admission.put(TAKER, Sharing(imports=(WANTED,)), 0)
    assert "account not defined" in refused.why
    assert admission.admitted == {}
    assert admission.put(GIVER, Sharing(exports=(STREAMS,)), 0) == []
    assert admission.admitted[TAKER].imports == (WANTED,)
    admission.put(GIVER, Sharing(exports=(CLOSED,)), 0)
    assert TAKER not in admission.admitted
    admission.put(GIVER, Sharing(exports=(STREAMS,)), 0)
    admission.remove(GIVER, 0)
    assert admission.admitted == {}


@pytest.mark.parametrize(
    ("sampling", "more", "percent"), [(7, {}, 7), ("headers", {}, 0), (7, {"response_type": "Stream"}, None)]
)
def test_latencies_are_sampled(sampling: object, more: dict[str, str], percent: int | None) -> None:
    (found,) = shared(exports=[{**EXPORT, **more, "service_latency": {"sampling": sampling, "results": "l"}}]).exports
    assert found.latency == (None if percent is None else LatencySampling(subject="l", percent=percent))


def test_an_activation_counts_in_its_time_alone() -> None:
    admission = Admission()
    admission.put(GIVER, Sharing(exports=(CLOSED,)), 0)
    admission.put(TAKER, Sharing(imports=(ACTIVE,)), 0)
    for now_s, following in ((0, 10), (9, 10), (10, 20), (19.9, 20), (20, None)):
        admission.check_activations(now_s)
        assert (TAKER in admission.admitted) == (10 <= now_s < 20)
        assert admission.next_change_s(now_s) == following


@pytest.mark.parametrize(
    ("key", "until_s", "counts"), [(TAKER, 4, True), (TAKER, 5, False), ("*", 5, False), ("X", 9, True)]
)
def test_an_activation_that_is_revoked_does_not_count(key: str, until_s: int, *, counts: bool) -> None:
    admission = Admission()
    export = Export(kind=SharingKind.STREAM, subject="s", needs_activation=True, revoked=((key, until_s),))
    admission.put(GIVER, Sharing(exports=(export,)), 15)
    admission.put(TAKER, Sharing(imports=(ACTIVE,)), 15)
    assert (TAKER in admission.admitted) == counts


def test_imports_that_would_form_a_cycle_are_not_admitted() -> None:
    """Whichever of two accounts comes last is refused."""
    admission, sharing = Admission(), {}
    for here, there in ((GIVER, TAKER), (TAKER, GIVER)):
        one = Import(kind=SharingKind.SERVICE, account=there, subject="s")
        sharing[here] = Sharing(exports=(Export(kind=SharingKind.SERVICE, subject="s"),), imports=(one,))
    assert admission.put(GIVER, sharing[GIVER], 0) != []
    refused = admission.put(TAKER, sharing[TAKER], 0)
    imported = [name for name in (GIVER, TAKER) if name in admission.admitted and admission.admitted[name].imports]
    assert len(imported) == 1
    assert [one.why for one in refused] in ([], ['Error adding service import "s": import forms a cycle'])
