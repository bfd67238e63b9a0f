"""/accountz tells what accounts share, in nats-server's fields; its values were observed on 2.15.1."""

from jetraft.api.exchange.values import (
    Destination,
    Export,
    Import,
    Mapping,
    ServiceResponseType,
    Sharing,
    SharingKind,
)
from jetraft.api.monitor.shared import shared_fields

SERVICE, STREAM = SharingKind.SERVICE, SharingKind.STREAM


def test_an_account_that_shares_nothing_has_no_fields() -> None:
    assert shared_fields(None) == shared_fields(Sharing()) == {}


def test_exports_name_their_answers_and_who_may_import_them() -> None:
    exports = (
        Export(kind=SERVICE, subject="q", response_type=ServiceResponseType.STREAM),
        Export(kind=SERVICE, subject="pr", accounts=("B",)),
        Export(kind=STREAM, subject="s.>", needs_activation=True),
    )
    assert shared_fields(Sharing(exports=exports))["exports"] == [
        {"subject": "q", "type": "service", "response_type": "Streamed"},
        {"subject": "pr", "type": "service", "response_type": "Singleton", "approved_accounts": ["B"]},
        {"subject": "s.>", "type": "stream", "token_required": True},
    ]


def test_imports_name_what_they_are_called_here_streams_first() -> None:
    service = Import(kind=SERVICE, account="A", subject="q", local="qq", share=True)
    stream = Import(kind=STREAM, account="A", subject="s.>", prefix="p")
    rest = {"invalid": False, "tracking": False}
    assert shared_fields(Sharing(imports=(service, stream)))["imports"] == [
        {"subject": "s.>", "account": "A", "local_subject": "p.s.>", "type": "stream", "share": False, **rest},
        {"subject": "q", "account": "A", "to": "qq", "local_subject": "qq", "type": "service", "share": True, **rest},
    ]


def test_weights_of_mappings_add_up_to_the_whole() -> None:
    whole = Mapping(source="x", destinations=(Destination(subject="y"),))
    half = Mapping(source="z", destinations=(Destination(subject="w", weight=50),))
    assert shared_fields(Sharing(mappings=(whole, half)))["mappings"] == {
        "x": [{"subject": "y", "weight": 100}],
        "z": [{"subject": "w", "weight": 50}, {"subject": "z", "weight": 100}],
    }
