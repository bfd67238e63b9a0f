"""What an account may ask for; codes are those of nats-server 2.15.1, asked with the same configuration."""

import attrs
import pytest

from jetraft.cluster.accounts import Accounts
from jetraft.cluster.meta.account_limits import check_room, check_stream_size
from jetraft.store.model.config import StorageType, StreamConfig
from jetraft.store.model.errors import ApiError
from jetraft.store.model.state import AccountLimits
from tests.cluster.meta.makers import assignment, config
from tests.cluster.requests.test_usage import Replica, held

FILE, MEMORY = StorageType.FILE, StorageType.MEMORY
MB = 1 << 20


def wanted(max_bytes: int = -1, storage: StorageType = FILE, replicas: int = 1) -> StreamConfig:
    return attrs.evolve(config("S"), max_bytes=max_bytes, storage=storage, num_replicas=replicas)


@pytest.mark.parametrize(
    ("limits", "stream", "code"),
    [
        (AccountLimits(), wanted(), 0),
        (AccountLimits(max_bytes_required=True), wanted(), 10113),
        (AccountLimits(max_bytes_required=True), wanted(1), 0),
        (AccountLimits(storage_max_stream_bytes=MB), wanted(2 * MB), 10122),
        (AccountLimits(storage_max_stream_bytes=MB), wanted(2 * MB, MEMORY), 0),
        (AccountLimits(memory_max_stream_bytes=MB), wanted(2 * MB, MEMORY), 10122),
        (AccountLimits(max_streams=0), wanted(), 10027),
        (AccountLimits(max_streams=1), wanted(), 10027),
        (AccountLimits(max_streams=2), wanted(), 0),
        (AccountLimits(max_storage=2 * MB), wanted(MB), 0),
        (AccountLimits(max_storage=2 * MB), wanted(MB + 1), 10047),
        (AccountLimits(max_storage=3 * MB), wanted(MB, replicas=3), 10047),
        (AccountLimits(max_memory=MB), wanted(MB, MEMORY), 0),
        (AccountLimits(max_memory=MB), wanted(MB + 1, MEMORY), 10028),
        (AccountLimits(max_memory=0), wanted(1, MEMORY), 10028),
        (AccountLimits(max_memory=0), wanted(1), 0),
    ],
)
def test_a_stream_is_refused_when_its_account_has_no_room(
    limits: AccountLimits, stream: StreamConfig, code: int
) -> None:
    others = [attrs.evolve(assignment("OTHER"), config=config("OTHER", max_bytes=MB))]
    found = 0
    try:
        check_stream_size(limits, stream)
        check_room(limits, stream, others)
    except ApiError as error:
        found = error.err_code
    assert found == code


def test_an_account_is_full_by_what_its_own_streams_hold() -> None:
    replicas = [held("A", Replica(2 * MB, is_leader=True)), held("B", Replica(9 * MB), memory=True)]
    other = attrs.evolve(replicas[0][0], account="OTHER")
    accounts = Accounts({"$G": AccountLimits(max_storage=MB)}, lambda: replicas)
    quota = accounts.quota_of("$G")
    assert quota is not None
    assert quota is accounts.quota_of("$G")
    assert quota.is_full(FILE, 1)
    assert not quota.is_full(MEMORY, 1)
    replicas[0] = other, replicas[0][1]
    assert not quota.is_full(FILE, 10**12)
    assert accounts.quota_of("OTHER") is None
