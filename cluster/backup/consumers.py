"""A consumer in an archive: nats-server's JSON of configuration and state, and what this server knows beside it. Pure.

nats-server keeps what was delivered, the ack floor, what waits for an ack and how often it was delivered again. The
object `jetraft`, which nats-server passes over, holds the rest, so that a consumer comes back as it was. Everything
that is read is checked as what a stranger sends; the state that is made keeps ConsumerState's invariants whatever the
numbers are.
"""

from __future__ import annotations

from typing import Any, Final

import attrs
import orjson

from jetraft.store.model import errors
from jetraft.store.model.config import ConsumerConfig, StreamConfig
from jetraft.store.model.extensions import DEAD_LETTER, check_consumer_extensions
from jetraft.store.model.validate_consumer import normalise_consumer
from jetraft.store.s2.framing import CorruptArchiveError
from jetraft.store.stream._unacked import UnackedTable
from jetraft.store.stream.consumer_state import ConsumerState
from jetraft.store.stream.dead_letter import MAX_DELIVER, REASON_CHARS_MAX, TERM, DeadLetter

SEQ_MAX: Final = (1 << 62) - 1  # what the store counts to
COUNT_MAX: Final = (1 << 31) - 1
OURS: Final = "jetraft"
_TIMES: Final = ("Timestamp", "created", "delivered", "given_up_ns")


def pack_consumer(state: ConsumerState) -> bytes:
    """The body of the consumer's entry."""
    floor_consumer, floor_stream = state.ack_floor
    rows = state.pending.rows()
    kept: dict[str, Any] = {
        "delivered": {"consumer_seq": state.delivered_consumer, "stream_seq": state.delivered_stream},
        "ack_floor": {"consumer_seq": floor_consumer, "stream_seq": floor_stream},
    }
    if rows:
        kept["pending"] = {str(seq): {"Sequence": number, "Timestamp": at_ns} for seq, number, at_ns, _ in rows}
    again = {str(seq): count - 1 for seq, _, _, count in rows if count > 1}
    if again:
        kept["redelivered"] = again
    ours = {
        "created": state.created_ns,
        "start_seq": state.start_seq,
        "initial": list(state.initial),
        "resume_seq": state.resume_seq,
        "delivered": state.delivered_ns,
        "acked_ahead": sorted(state.acked_ahead),
    }
    if state.dead:
        ours["dead"] = {str(seq): attrs.asdict(letter) for seq, letter in sorted(state.dead.items())}
    return orjson.dumps({"config": state.config.to_json_dict(), "state": kept, OURS: ours})


def unpack_consumer(name: str, body: bytes, stream: StreamConfig, now_unix_ns: int) -> ConsumerState:
    """The consumer of an entry; one from another server counts as created now. Raises CorruptArchiveError.

    Its configuration is checked like that of a new one; `stream` is as the server keeps it.
    """
    try:
        whole = orjson.loads(body)
        config = ConsumerConfig.from_json(orjson.dumps(_object(whole, "config")))
        config = normalise_consumer(config, stream)
        check_consumer_extensions(config, stream)
        if (config.durable_name or config.name or name) != name:
            raise CorruptArchiveError(f"consumer {name!r:.80} has another name")
        state, ours = _object(whole, "state"), _object({OURS: {}, **whole}, OURS)
        return _state(name, config, state, ours, now_unix_ns)
    except errors.ApiError as error:
        raise CorruptArchiveError(f"consumer {name!r:.80}: {error}") from error
    except (ValueError, TypeError, KeyError) as error:
        raise CorruptArchiveError(f"failed to decode consumer {name!r:.80} state: {error!s:.80}") from error


def _state(
    name: str, config: ConsumerConfig, state: dict[str, Any], ours: dict[str, Any], now_unix_ns: int
) -> ConsumerState:
    delivered = _object(state, "delivered")
    delivered_consumer, delivered_stream = _number(delivered, "consumer_seq"), _number(delivered, "stream_seq")
    again = _object({"redelivered": {}, **state}, "redelivered")
    pending = UnackedTable()
    waiting = _object({"pending": {}, **state}, "pending")
    for seq in sorted(map(int, waiting)):
        row = _object(waiting, str(seq))
        # A row above what was delivered would never be found again; one of number 0 has no place in the floor.
        if 0 < seq <= delivered_stream and 0 < _number(row, "Sequence") <= delivered_consumer:
            count = min(1 + _number(again, str(seq)), COUNT_MAX)
            pending.put(seq, row["Sequence"], _number(row, "Timestamp"), count)
    return ConsumerState(
        name=name,
        config=config,
        created_ns=_number(ours, "created") or now_unix_ns,
        start_seq=_number(ours, "start_seq"),
        initial=tuple(_numbers(ours, "initial")),
        resume_seq=_number(ours, "resume_seq"),
        delivered_consumer=delivered_consumer,
        delivered_stream=delivered_stream,
        delivered_ns=_number(ours, "delivered"),
        pending=pending,
        acked_ahead={seq for seq in _numbers(ours, "acked_ahead") if seq > delivered_stream},
        dead=_dead(config, _object({"dead": {}, **ours}, "dead"), pending),
    )


def _dead(config: ConsumerConfig, given: dict[str, Any], pending: UnackedTable) -> dict[int, DeadLetter]:
    """The dead letters that wait to be handed on, no more than the consumer could have."""
    found: dict[int, DeadLetter] = {}
    for seq in sorted(map(int, given))[: max(0, config.max_ack_pending)] if DEAD_LETTER in config.metadata else ():
        row = _object(given, str(seq))
        cause, reason = row["cause"], row["reason"]
        if not 0 < seq <= SEQ_MAX or cause not in (MAX_DELIVER, TERM) or not isinstance(reason, str):
            raise ValueError(f"dead letter {seq} is {row!r:.80}")
        if seq not in pending:
            count = min(_number(row, "deliveries"), COUNT_MAX)
            found[seq] = DeadLetter(count, _number(row, "given_up_ns"), cause, reason[:REASON_CHARS_MAX])
    return found


def _object(value: Any, key: str) -> dict[str, Any]:
    found = value[key]
    if not isinstance(found, dict):
        raise TypeError(f"{key} is missing")
    return found


def _number(value: dict[str, Any], key: str) -> int:
    """A sequence, a count or a time; 0 when it is missing."""
    number = value.get(key, 0)
    if type(number) is not int or not 0 <= number < 1 << 63:
        raise ValueError(f"{key} is {number!r:.40}")
    return min(number, SEQ_MAX) if key not in _TIMES else number


def _numbers(value: dict[str, Any], key: str) -> list[int]:
    found = value.get(key, [])
    if not isinstance(found, list) or any(type(number) is not int or not 0 < number <= SEQ_MAX for number in found):
        raise ValueError(f"{key} is not a list of sequences")
    return sorted(set(found))
