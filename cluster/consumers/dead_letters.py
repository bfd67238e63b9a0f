"""Hands what a consumer has given up on to the stream for dead letters: a publish, until that stream confirms it.

The consumer's replicated state says what was given up (store/stream/dead_letter.py) and keeps it until an entry says
that another stream has it. So a change of the leader loses nothing: the next one finds the letter and publishes it.
It doubles nothing either: `Nats-Msg-Id` is made of replicated values alone, so a repeated publish is a duplicate to a
stream that has it (within its `duplicate_window`, which is what bounds the promise).

One object per consumer that has given something up, in one term. A publish that finds no stream, is refused or not
answered is repeated, at growing intervals: the message waits in its stream meanwhile.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final

import orjson

from jetraft.cluster.capture._capture import captures
from jetraft.cluster.capture.reach import MessageOrigin, SinkKind
from jetraft.cluster.consumers.letter_form import letter_hdr
from jetraft.cluster.state.commands import HandedOn
from jetraft.cluster.state.headers import parse_seq
from jetraft.store.model.clock import NS_PER_S
from jetraft.store.model.extensions import consumer_extensions, dead_letter_subject
from jetraft.store.model.ids import ALPHABET
from jetraft.store.port import StoreCorrupt
from jetraft.store.stream._runs import Runs

if TYPE_CHECKING:
    from collections.abc import Callable

    from jetraft.cluster.consumers.runner_port import RunnerPort
    from jetraft.cluster.ports import TimerHandle
    from jetraft.store.stream.consumer_state import ConsumerState
    from jetraft.store.stream.dead_letter import DeadLetter

log = logging.getLogger(__name__)

IN_FLIGHT_MAX: Final = 64  # publishes of one consumer that wait for an answer
ANSWER_WAIT_NS: Final = 5 * NS_PER_S
REST_NS: Final = NS_PER_S  # after a publish that found no stream; doubled by each that follows
REST_NS_MAX: Final = 30 * NS_PER_S
DOUBLED_MAX: Final = 5
TOKEN_CHARS: Final = 12
ANSWER_BYTES_MAX: Final = 4096


class DeadLetters:
    """See the module. `kept` is called when an entry has settled letters."""

    def __init__(self, dispatcher: RunnerPort, state: ConsumerState, kept: Callable[[Runs], None]) -> None:
        self._dispatcher = dispatcher
        self._site = dispatcher.site
        self._state = state
        self._kept = kept
        self._in_flight: dict[int, DeadLetter] = {}  # published, not answered
        self._settled: dict[int, DeadLetter] = {}  # another stream has them; the entry that says so is on its way
        self._failures = 0  # since the last confirmation
        self._is_resting = False
        self._timer: TimerHandle | None = None
        token = "".join(self._site.rng.choice(ALPHABET) for _ in range(TOKEN_CHARS))
        self._reply = f"$JSC.R.{token}.".encode()
        self._sink = self._site.outbox.add_sink(self._reply + b"*.*", self._on_answers, kind=SinkKind.REPLY)

    def look(self) -> None:
        """Publish what was given up since."""
        if self._is_resting:
            return  # the timer looks
        gone = []
        for seq, letter in self._state.dead.items():
            if len(self._in_flight) >= IN_FLIGHT_MAX:
                break
            if self._in_flight.get(seq) is letter or self._settled.get(seq) is letter:
                continue
            try:
                is_there = self._publish(seq, letter)
            except StoreCorrupt as error:
                self._dispatcher.damaged(error)
                return
            if not is_there:
                gone.append((seq, letter))
            if self._is_resting:
                break
        self._settle(gone)
        if self._in_flight and self._timer is None:
            self._arm(ANSWER_WAIT_NS)

    def end(self) -> None:
        """The term is over, or the consumer is gone."""
        self._site.outbox.remove_sink(self._sink)
        if self._timer is not None:
            self._timer.cancel()
        self._is_resting = True  # nothing is published from here on

    def _publish(self, seq: int, letter: DeadLetter) -> bool:
        """Publish one letter; False when its stream has removed the message. Raises StoreCorrupt."""
        message = self._dispatcher.messages.load(seq)
        prefix = consumer_extensions(self._state.config).dead_letter
        if message is None or not prefix:
            return False
        stream = self._dispatcher.stream
        hdr = letter_hdr(stream, self._state, seq, letter, message)
        to = dead_letter_subject(prefix, stream, self._state.name).encode()
        reply = self._reply + b"%d.%d" % (seq, letter.given_up_ns)
        self._in_flight[seq] = letter
        if not self._site.outbox.send(
            to, reply=reply, hdr=hdr, payload=message.payload, origin=MessageOrigin.EXTENSION
        ):
            self._failed(f"no stream takes {to.decode()}")
        return True

    def _on_answers(self, batch: bytes) -> None:
        confirmed: dict[int, DeadLetter] = {}  # an answer may come twice in a turn
        for answer in captures(batch):
            seq_text, _, time_text = answer.subject.removeprefix(self._reply).partition(b".")
            seq = parse_seq(seq_text)
            letter = self._state.dead.get(seq)
            if letter is None or letter.given_up_ns != parse_seq(time_text):
                continue
            if seq in confirmed or self._settled.get(seq) is letter:
                continue
            kept = _read(answer.payload)
            if isinstance(kept, str):
                if not self._is_resting:
                    self._failed(kept)
                continue
            self._failures = 0
            confirmed[seq] = letter
            stream, name = self._dispatcher.stream, self._state.name
            self._site.advisories.dead_lettered(stream, name, seq, letter, to_stream=kept[0], to_seq=kept[1])
        self._settle(list(confirmed.items()))
        self.look()

    def _settle(self, letters: list[tuple[int, DeadLetter]]) -> None:
        """Write down that these need not be handed on any more."""
        if not letters:
            return
        self._settled.update(letters)
        for seq, _ in letters:
            self._in_flight.pop(seq, None)
        pairs = tuple((seq, letter.given_up_ns) for seq, letter in letters)
        self._dispatcher.propose([HandedOn(self._state.name, pairs)], partial(self._committed, letters))

    def _committed(self, letters: list[tuple[int, DeadLetter]]) -> None:
        for seq, letter in letters:
            if self._settled.get(seq) is letter:
                del self._settled[seq]
        self._kept(Runs(sorted(seq for seq, _ in letters if seq not in self._state.dead)))

    def _failed(self, why: str) -> None:
        """Rest, and publish all that is not confirmed again."""
        self._in_flight.clear()
        if not self._failures:
            log.warning("dead letters of %s > %s wait: %s", self._dispatcher.stream, self._state.name, why)
        self._is_resting = True
        self._arm(min(REST_NS_MAX, REST_NS << min(self._failures, DOUBLED_MAX)))
        self._failures += 1

    def _arm(self, wait_ns: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._site.timers.call_at(self._site.clock.mono_ns() + wait_ns, self._woken)

    def _woken(self) -> None:
        self._timer = None
        if self._is_resting:
            self._is_resting = False
            self.look()
        elif self._in_flight:
            self._failed("no answer")


def _read(payload: bytes) -> tuple[str, int] | str:
    """The stream and the sequence of a publish acknowledgement; a text when it is none."""
    try:
        body = orjson.loads(payload[:ANSWER_BYTES_MAX])
        if error := body.get("error"):
            return str(error["description"])[:80]
        stream, seq = body["stream"], body["seq"]
    except (ValueError, KeyError, TypeError, AttributeError):
        return "an answer that is no acknowledgement"
    return (stream, seq) if isinstance(stream, str) and type(seq) is int and seq > 0 else "an odd answer"
