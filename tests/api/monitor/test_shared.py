"""/accountz tells what accounts share, in nats-server's fields; its values were observed on 2.15.1."""

from jetraft.api.exchange.values import (
    Destination,
    Export,
    Import,
    LatencySampling,
    Mapping,
    ServiceResponseType,
    Sharing,
    SharingKind,
)
from jetraft.api.monitor.shared import shared_fields

SERVICE, STREAM = SharingKind.SERVICE, SharingKind.STREAM


def test_an_account_that_shares_nothing_has_no_fields() -> None:
    assert shared_fields("A", {}) == shared_fields("A", {"A": Sharing()}) == {}


def test_exports_name_their_answers_and_who_may_import_them() -> None:
    exports = (
        Export(kind=SERVICE, subject="q", response_type=ServiceResponseType.STREAM),
        Export(kind=SERVICE, subject="pr", accounts=("B",)),
        Export(kind=STREAM, subject="s.>", needs_activation=True),
    )
    assert shared_fields("A", {"A": Sharing(exports=exports)})["exports"] == [
        {"subject": "q", "type": "service", "response_type": "Streamed"},
        {"subject": "pr", "type": "service", "response_type": "Singleton", "approved_accounts": ["B"]},
        {"subject": "s.>", "type": "stream", "token_req": True},
    ]


def test_imports_name_what_they_are_called_here_streams_first() -> None:
    service = Import(kind=SERVICE, account="A", subject="q", local="qq", share=True)
    stream = Import(kind=STREAM, account="A", subject="s.>", prefix="p")
    rest = {"invalid": False, "tracking": False}
    assert shared_fields("A", {"A": Sharing(imports=(service, stream))})["imports"] == [
        {"subject": "s.>", "account": "A", "local_subject": "p.s.>", "type": "stream", "share": False, **rest},
        {"subject": "q", "account": "A", "to": "qq", "local_subject": "qq", "type": "service", "share": True, **rest},
    ]


def test_latencies_are_named_on_both_sides() -> None:
    half, asked = LatencySampling(subject="l", percent=50), LatencySampling(subject="h", percent=0)
    exports = (Export(kind=SERVICE, subject="q.*", latency=half), Export(kind=SERVICE, subject="z", latency=asked))
    imports = tuple(Import(kind=SERVICE, account="A", subject=subject) for subject in ("q.x", "z"))
    accounts = {"A": Sharing(exports=exports), "B": Sharing(imports=imports)}
    told = [{"sampling": 50, "results": "l"}, {"sampling": "headers", "results": "h"}]
    assert [row["service_latency"] for row in shared_fields("A", accounts)["exports"]] == told
    assert [row["latency"] for row in shared_fields("B", accounts)["imports"]] == told


def test_weights_of_mappings_add_up_to_the_whole() -> None:
    whole = Mapping(source="x", destinations=(Destination(subject="y"),))
    half = Mapping(source="z", destinations=(Destination(subject="w", weight=50),))
    assert shared_fields("A", {"A": Sharing(mappings=(whole, half))})["mappings"] == {
        "x": [{"subject": "y", "weight": 100}],
        "z": [{"subject": "w", "weight": 50}, {"subject": "z", "weight": 100}],
    }
