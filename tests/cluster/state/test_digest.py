"""Digests are of what readers see: however a replica keeps it on its disk, equal messages have equal digests."""

import attrs
import pytest

from jetraft.cluster.state import commands
from jetraft.cluster.state.digest import UNKNOWN, Digests, digests_of
from jetraft.cluster.state.machine import StreamMachine
from jetraft.store.frames.cipher import CipherKind
from jetraft.store.frames.keyring import Secrets
from jetraft.store.log.start import LogOptions
from tests.cluster.state.test_machine import Deaf
from tests.doubles.lossy_disk import LossyDisk
from tests.store.replica import GROUP, Message, Replica

COUNT = 60
OPTIONS = LogOptions(block_bytes_first=2048, block_bytes_max=2048)
SECRETS = {
    "open": None,
    "sealed": Secrets(key=b"one"),
    "sealed otherwise": Secrets(key=b"another", cipher=CipherKind.AES),
}
WAYS = [(secrets, codec) for secrets in SECRETS for codec in ("as written", "compacted", "compressed")]


def message(number: int) -> Message:
    return b"s.%d" % (number % 3), b"NATS/1.0\r\nA: b\r\n\r\n", b'{"number": %d, "more": "%s"}' % (number, b"m" * 50)


def kept(secrets: Secrets | None, codec: str) -> Replica:
    """A replica that has applied what all have applied, and then done its own upkeep."""
    disk = LossyDisk()
    disk.make_directory(GROUP.parent.parent)
    disk.sync_names()
    replica = Replica(disk, attrs.evolve(OPTIONS, secrets=secrets))
    replica.compressed = codec == "compressed"
    for number in range(0, COUNT, 2):
        replica.publish([message(number), message(number + 1)])
    replica.command("remove", list(range(5, COUNT, 7)), False)  # noqa: FBT003  (the fields of an entry)
    replica.command("remove", [10], True)  # noqa: FBT003  (the same)
    if codec != "as written":
        replica.checkpoint()
        replica.plan()
        for _ in range(2):
            replica.publish([message(COUNT)])
            replica.checkpoint()
        assert replica.carry_out() > 1
    else:
        for _ in range(2):
            replica.publish([message(COUNT)])
    return replica


def digest(replica: Replica) -> Digests:
    machine = StreamMachine(replica.store, Deaf())
    return digests_of(machine, commands.Digest(1, replica.store.last_seq, "", 10))


def test_equal_messages_compare_equal_under_any_key_and_codec() -> None:
    replicas = [kept(SECRETS[secrets], codec) for secrets, codec in WAYS]
    for replica in replicas:
        replica.restart()  # what the disk has, not what memory still remembers
    files = {frozenset(replica.block_files().values()) for replica in replicas}
    assert len(files) == len(WAYS), "they do look different on disk"
    digests = {digest(replica) for replica in replicas}
    assert len(digests) == 1
    assert digests.pop().messages != UNKNOWN


@pytest.mark.parametrize(("secrets", "codec"), WAYS)
def test_one_message_less_is_another_digest(secrets: str, codec: str) -> None:
    replica = kept(SECRETS[secrets], codec)
    before = digest(replica)
    replica.command("remove", [20], False)  # noqa: FBT003  (the fields of an entry)
    assert digest(replica) != before
