"""A stream in files against a dictionary: removals, compaction, encryption, restarts, crashes, in any order."""

from importlib.util import find_spec
from random import Random
from typing import Any

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from jetraft.store.frames.keyring import Secrets
from jetraft.store.log.start import LogOptions
from tests.doubles.lossy_disk import LossyDisk
from tests.store.replica import GROUP, Message, Replica

HAS_CODEC = find_spec("cramjam") is not None  # without it only compression is not tried
SUBJECTS = st.sampled_from([b"a", b"b", b"c.d", b"c.e"])
MESSAGES = st.lists(
    st.tuples(
        SUBJECTS, st.sampled_from([b"", b"NATS/1.0\r\nA: b\r\n\r\n"]), st.binary(max_size=120) | st.just(b"text " * 60)
    ),
    min_size=1,
    max_size=6,
)


class StoreModel(RuleBasedStateMachine):
    """`expected` is what must be there: sequence -> message."""

    secrets: Secrets | None = None

    @initialize()
    def start(self) -> None:
        self.disk = LossyDisk()
        self.disk.make_directory(GROUP.parent)
        self.disk.sync_names()
        options = LogOptions(block_bytes_first=600, block_bytes_max=600, secrets=self.secrets)
        self.replica = Replica(self.disk, options)
        self.expected: dict[int, Message] = {}
        self.last_seq = 0

    @rule(messages=MESSAGES)
    def publish(self, messages: list[Message]) -> None:
        self.replica.publish(messages)
        for message in messages:
            self.last_seq += 1
            self.expected[self.last_seq] = message

    @precondition(lambda self: self.expected)
    @rule(data=st.data(), erase=st.booleans())
    def remove(self, data: Any, erase: bool) -> None:  # noqa: FBT001  (drawn by name)
        seqs = data.draw(st.lists(st.sampled_from(sorted(self.expected)), min_size=1, max_size=8, unique=True))
        self.replica.command("remove", seqs, erase)
        for seq in seqs:
            del self.expected[seq]

    @rule(subject=SUBJECTS)
    def purge(self, subject: bytes) -> None:
        self.replica.command("purge", subject)
        self.expected = {seq: message for seq, message in self.expected.items() if message[0] != subject}

    @precondition(lambda self: self.expected)
    @rule(data=st.data())
    def remove_below(self, data: Any) -> None:
        low = data.draw(st.sampled_from(sorted(self.expected)))
        self.replica.command("remove_below", low)
        self.expected = {seq: message for seq, message in self.expected.items() if seq >= low}

    @rule()
    def checkpoint(self) -> None:
        self.replica.checkpoint()

    @rule()
    def plan(self) -> None:
        self.replica.plan()

    @rule()
    def carry_out(self) -> None:
        self.replica.carry_out()

    @rule(messages=MESSAGES)
    def upkeep(self, messages: list[Message]) -> None:
        """Everything that has to come together for a block to be compacted."""
        self.plan()
        for _ in range(2):
            self.publish(messages)
            self.checkpoint()
        self.carry_out()

    @rule(compressed=st.booleans())
    def change_compression(self, *, compressed: bool) -> None:
        self.replica.compressed = compressed and HAS_CODEC

    @rule()
    def restart(self) -> None:
        self.replica.restart()

    @rule(seed=st.integers(0, 1 << 32))
    def lose_power(self, seed: int) -> None:
        self.disk.crash(Random(seed))
        self.replica.start()

    @rule(seed=st.integers(0, 1 << 32), operations=st.integers(0, 8))
    def lose_power_in_a_checkpoint(self, seed: int, operations: int) -> None:
        if self.replica.applied > self.replica.saved[-1][0]:
            self.replica.log.save_checkpoint(self.replica.applied, 1, b"", self.replica.store.snapshot())
            self.replica.log.submit()
            for _ in range(operations):
                self.disk.step()
        self.lose_power(seed)

    @invariant()
    def same_messages(self) -> None:
        if not hasattr(self, "replica"):
            return
        store = self.replica.store
        assert self.replica.found() == self.expected
        assert store.messages == len(self.expected)
        assert store.last_seq == self.last_seq
        assert store.first_seq == min(self.expected, default=self.last_seq + 1)
        assert store.message_bytes_total == sum(
            store.message_bytes(len(subject), len(hdr), len(payload))
            for subject, hdr, payload in self.expected.values()
        )
        for subject in (b"a", b"c.d"):
            assert store.count_for(subject) == sum(message[0] == subject for message in self.expected.values())


class EncryptedStoreModel(StoreModel):
    secrets = Secrets(key=b"k")


TestStore = StoreModel.TestCase
TestStore.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestEncryptedStore = EncryptedStoreModel.TestCase
TestEncryptedStore.settings = settings(max_examples=50, stateful_step_count=40, deadline=None)
