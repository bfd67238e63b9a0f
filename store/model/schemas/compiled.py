"""The one door to schemas: a rule becomes something that judges payloads, for each kind by a library that may lack.

A judge is compiled once for each text, whatever number of streams has it, and when it is used first: a server
without schemas imports none of the libraries.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final, Protocol

import attrs

from jetraft.store.model.extras import SCHEMA
from jetraft.store.model.schemas.faults import TEXT_CHARS_MAX, shown
from jetraft.store.model.schemas.rules import AVRO, JSON, BadSchemaError, SchemaRule

if TYPE_CHECKING:
    from collections.abc import Callable

COMPILED_MAX: Final = 256  # schemas in memory; one that is not there is compiled again
PAYLOAD_BYTES_MAX: Final = 64 * 1024  # that a schema judges: the largest takes about 1 ms (decision 117)
PANICS: Final = "pyo3_runtime"  # where the errors come from that are no Exception, of a library in Rust


class PayloadJudge(Protocol):
    """A schema that can be used."""

    def fault(self, payload: bytes) -> str:
        """The place of a misfit, and what was expected; empty without one. `PAYLOAD_BYTES_MAX` of payload at most."""


class UnusableSchemaError(Exception):
    """This server cannot judge by this schema; the text says why."""


@attrs.frozen(slots=True)
class Unusable:
    """In place of a judge: why there is none."""

    why: str


def check_schema(rule: SchemaRule) -> None:
    """Raise BadSchemaError for a schema that cannot be, with its key, or when this server cannot read it."""
    found = _compiled(rule.kind, rule.text, rule.message)
    if isinstance(found, Unusable):
        raise BadSchemaError(f"{rule.key}: {found.why}")


def fault_in(rule: SchemaRule, payload: bytes) -> str:
    """The fault of a payload, with escapes for what is not printable; empty when it fits.

    Raises UnusableSchemaError where this server has no library for it, or where it was never checked.
    """
    judge = _compiled(rule.kind, rule.text, rule.message)
    if isinstance(judge, Unusable):
        raise UnusableSchemaError(f"{rule.key}: {judge.why}")
    if len(payload) > PAYLOAD_BYTES_MAX:
        return f"larger than {PAYLOAD_BYTES_MAX} bytes, which is what a schema can judge"
    fault = _guarded(lambda: judge.fault(payload), "can not be judged")
    return shown(fault, TEXT_CHARS_MAX) if fault else ""


@lru_cache(maxsize=COMPILED_MAX)
def _compiled(kind: str, text: str, message: str) -> PayloadJudge | Unusable:
    try:
        return _judge_of(kind, text, message)
    except BadSchemaError as error:
        return Unusable(shown(str(error), TEXT_CHARS_MAX))
    except ImportError:
        return Unusable(f"this server has no library for {kind} schemas: {SCHEMA.command}")


def _judge_of(kind: str, text: str, message: str) -> PayloadJudge:
    """Compile. The imports are here: a server without schemas does not need the libraries, or wait for them."""
    if kind == JSON:
        from jetraft.store.model.schemas.json_schema import JsonJudge  # noqa: PLC0415

        return JsonJudge.of(text)
    if kind == AVRO:
        from jetraft.store.model.schemas.avro_schema import AvroJudge  # noqa: PLC0415

        return AvroJudge.of(text)
    from jetraft.store.model.schemas.protobuf_schema import ProtobufJudge  # noqa: PLC0415

    return ProtobufJudge.of(text, message)


def _guarded(judge: Callable[[], str], otherwise: str) -> str:
    """The answer of a library about the bytes of a stranger: whatever it raises refuses that message, and ends here."""
    try:
        return judge()
    except BaseException as error:
        if isinstance(error, Exception) or type(error).__module__ == PANICS:
            return f"{otherwise}: {type(error).__name__}"
        raise
