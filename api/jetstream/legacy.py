"""The subjects of JetStream's tech preview (2020) in terms of today's API: which request each one is, and its answer.

An answer of then is `+OK`, `-ERR 'reason'`, or indented JSON without a type. Names of fields that have changed since
are those of then, both ways. A stream that is made so answers publishes with `+OK` too (metadata `jetraft.legacy_ack`).
Source: server/jetstream_api.go and server/consumer.go of nats-server, February to April 2020.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs
import orjson

from jetraft.store.model.extensions import LEGACY_ACK

OK: Final = b"+OK"
BAD_REQUEST: Final = b"-ERR 'bad request'"
API: Final = "$JS.API."
LIST_MAX: Final = 100_000  # names in one answer: what then had no pages
DIGITS_MAX: Final = 19  # of a sequence
CONSUMER_TOKENS: Final = 5  # STREAM.<s>.CONSUMER.<c>.<what>
RENAMED: Final = {"deliver_subject": "delivery_subject", "opt_start_seq": "stream_seq", "opt_start_time": "start_time"}

Json = dict[str, Any]
Show = Callable[[Json], bytes]


class BadLegacyRequestError(ValueError):
    """The body is not what the request takes."""


@attrs.frozen(kw_only=True, slots=True)
class OldRequest:
    """A request to today's API, and how its answer is shown; `names` of earlier pages precede those of this one."""

    subject: str
    body: bytes = b""
    show: Show
    listed: str = ""  # the field that has names, in pages
    names: tuple[str, ...] = ()

    def taken(self, answer: bytes) -> bytes | OldRequest:
        """The answer of then, or what is asked next for it."""
        found: Json = orjson.loads(answer)
        error = found.get("error")
        if isinstance(error, dict):
            return refusal(str(error.get("description", "")))
        if not self.listed:
            return self.show(found)
        names = (*self.names, *(found.get(self.listed) or ()))
        if not len(self.names) < len(names) < min(found.get("total", 0), LIST_MAX):
            return indented(list(names) or None)
        return attrs.evolve(self, body=orjson.dumps({"offset": len(names)}), names=names)


def refusal(reason: str) -> bytes:
    """The answer to a request that failed."""
    return b"-ERR '%s'" % reason.encode()


def indented(value: object) -> bytes:
    """JSON as the server of then wrote it."""
    return orjson.dumps(value, option=orjson.OPT_INDENT_2)


def next_of(tokens: list[str]) -> str:
    """The subject of today for a request for messages; empty for any other one."""
    match tokens:
        case ["NEXT", stream, consumer] | ["STREAM", stream, "CONSUMER", consumer, "NEXT"]:
            return f"{API}CONSUMER.MSG.NEXT.{stream}.{consumer}"
    return ""


def asked_of(tokens: list[str], body: bytes) -> OldRequest | None:
    """A request's present form; None for one that never was. `tokens` follow `$JS`. Raises BadLegacyRequestError."""
    names: tuple[str, ...] = ()
    pattern = tuple(tokens)
    if tokens[0] in ("STREAM", "TEMPLATE") and len(tokens) > 1 and tokens[1:] != ["LIST"]:
        names, pattern = (tokens[1],), (tokens[0], "*", *tokens[2:])
    if len(tokens) == CONSUMER_TOKENS and tokens[2] == "CONSUMER":
        names, pattern = (*names, tokens[3]), (*pattern[:3], "*", tokens[4])
    rule = _RULES.get(pattern)
    if rule is None:
        return None
    subject = ".".join((API + rule.today, *names))
    return OldRequest(subject=subject, body=rule.read(body), show=rule.show, listed=rule.listed)


# --- bodies


def _nothing(body: bytes) -> bytes:
    if body:
        raise BadLegacyRequestError
    return b""


def _sequence(body: bytes) -> bytes:
    text = body.strip()
    if not text.isdigit() or len(text) > DIGITS_MAX:
        raise BadLegacyRequestError
    return b'{"seq":%d}' % int(text)


def _object(body: bytes) -> Json:
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise BadLegacyRequestError from error
    if not isinstance(found, dict):
        raise BadLegacyRequestError
    return found


def _dumped(value: Json) -> bytes:
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError as error:  # too deep
        raise BadLegacyRequestError from error


def _stream_body(body: bytes) -> bytes:
    config = _object(body)
    config.pop("template_owner", None)
    metadata = config.get("metadata")
    config["metadata"] = {**(metadata if isinstance(metadata, dict) else {}), LEGACY_ACK: "true"}
    return _dumped(config)


def _template_body(body: bytes) -> bytes:
    template = _object(body)
    return _dumped({**template, "config": orjson.loads(_stream_body(_dumped(template.get("config") or {})))})


METADATA: Final = "metadata"  # of consumers: unknown in 2020, and its keys are judged where they are known


def _consumer_body(body: bytes) -> bytes:
    request = _object(body)
    given = request.get("config")
    if not isinstance(given, dict):
        raise BadLegacyRequestError
    config = {name: value for name, value in given.items() if name.casefold() != METADATA}
    policy = "by_start_time"
    for name, old in RENAMED.items():
        if old in config:
            value = config.pop(old)
            if value not in ("", 0, "0001-01-01T00:00:00Z"):
                config[name] = value
    if config.pop("deliver_all", False):
        policy = "all"
    elif config.pop("deliver_last", False):
        policy = "last"
    elif "opt_start_seq" in config:
        policy = "by_start_sequence"
    elif "opt_start_time" not in config:
        policy = "new"
    config.pop("deliver_last", None)
    config.setdefault("deliver_policy", policy)
    return _dumped({**request, "config": config})


# --- answers


def _ok(_answer: Json) -> bytes:
    return OK


def _ok_and_name(answer: Json) -> bytes:
    return b"%s %s" % (OK, str(answer["name"]).encode())


def _without_type(answer: Json) -> bytes:
    return indented({name: value for name, value in answer.items() if name != "type"})


def _stream_info(answer: Json) -> bytes:
    return indented({"config": _without_metadata(answer["config"]), "state": answer["state"]})


def _message(answer: Json) -> bytes:
    found = answer["message"]
    return indented({name: found.get(name, "") for name in ("subject", "seq", "data", "time")})


def _consumer_info(answer: Json) -> bytes:
    config = _without_metadata(answer["config"])
    policy = config.pop("deliver_policy", "")
    shown = {RENAMED.get(name, name): value for name, value in config.items()}
    if policy in ("all", "last"):
        shown[f"deliver_{policy}"] = True
    delivered, floor = answer["delivered"], answer["ack_floor"]
    state = {
        "delivered": {name: delivered[name] + 1 for name in ("consumer_seq", "stream_seq")},  # then: what comes next
        "ack_floor": {name: floor[name] for name in ("consumer_seq", "stream_seq")},
        "num_ack_pending": answer["num_ack_pending"],
        "num_redelivered": answer["num_redelivered"],
    }
    return indented({"stream_name": answer["stream_name"], "name": answer["name"], "config": shown, "state": state})


def _without_metadata(config: Mapping[str, Any]) -> Json:
    return {name: value for name, value in config.items() if name != "metadata"}


@attrs.frozen(kw_only=True, slots=True)
class _Rule:
    """The request of today, to which the names are added, and how body and answer become each other's."""

    today: str
    read: Callable[[bytes], bytes] = _nothing
    show: Show = _ok
    listed: str = ""


_RULES: Final[Mapping[tuple[str, ...], _Rule]] = {
    ("ENABLED",): _Rule(today="INFO"),
    ("INFO",): _Rule(today="INFO", show=_without_type),
    ("STREAM", "LIST"): _Rule(today="STREAM.NAMES", listed="streams"),
    ("TEMPLATES", "LIST"): _Rule(today="STREAM.TEMPLATE.NAMES", listed="streams"),
    ("TEMPLATE", "*", "CREATE"): _Rule(today="STREAM.TEMPLATE.CREATE", read=_template_body),
    ("TEMPLATE", "*", "INFO"): _Rule(today="STREAM.TEMPLATE.INFO", show=_without_type),
    ("TEMPLATE", "*", "DELETE"): _Rule(today="STREAM.TEMPLATE.DELETE"),
    ("STREAM", "*", "CREATE"): _Rule(today="STREAM.CREATE", read=_stream_body),
    ("STREAM", "*", "UPDATE"): _Rule(today="STREAM.UPDATE", read=_stream_body),
    ("STREAM", "*", "INFO"): _Rule(today="STREAM.INFO", show=_stream_info),
    ("STREAM", "*", "DELETE"): _Rule(today="STREAM.DELETE"),
    ("STREAM", "*", "PURGE"): _Rule(today="STREAM.PURGE"),
    ("STREAM", "*", "MSG", "DELETE"): _Rule(today="STREAM.MSG.DELETE", read=_sequence),
    ("STREAM", "*", "MSG", "BYSEQ"): _Rule(today="STREAM.MSG.GET", read=_sequence, show=_message),
    ("STREAM", "*", "CONSUMERS"): _Rule(today="CONSUMER.NAMES", listed="consumers"),
    ("STREAM", "*", "EPHEMERAL", "CONSUMER", "CREATE"): _Rule(
        today="CONSUMER.CREATE", read=_consumer_body, show=_ok_and_name
    ),
    ("STREAM", "*", "CONSUMER", "*", "CREATE"): _Rule(today="CONSUMER.DURABLE.CREATE", read=_consumer_body),
    ("STREAM", "*", "CONSUMER", "*", "INFO"): _Rule(today="CONSUMER.INFO", show=_consumer_info),
    ("STREAM", "*", "CONSUMER", "*", "DELETE"): _Rule(today="CONSUMER.DELETE"),
}
