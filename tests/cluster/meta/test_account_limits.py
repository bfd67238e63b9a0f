"""What an account may ask for; codes are those of nats-server 2.15.1, asked with the same configuration."""

import attrs
import pytest

from jetraft.cluster.accounts import Accounts
from jetraft.cluster.meta.account_limits import check_count, check_room, check_stream_size
from jetraft.store.model.config import StorageType, StreamConfig
from jetraft.store.model.errors import ApiError
from jetraft.store.model.state import AccountLimits
from jetraft.store.model.tiers import Allowance, TieredLimits
from tests.cluster.meta.makers import assignment, config
from tests.cluster.requests.test_usage import Replica, held

FILE, MEMORY = StorageType.FILE, StorageType.MEMORY
MB = 1 << 20
TIERS = TieredLimits({"R1": AccountLimits(max_storage=2 * MB), "R3": AccountLimits(max_storage=4 * MB)})


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
        (AccountLimits(max_storage=MB + 1), wanted(), 0),
        (AccountLimits(max_storage=MB), wanted(), 10047),
        (TIERS, wanted(MB), 0),
        (TIERS, wanted(MB + 1), 10047),
        (TIERS, wanted(4 * MB, replicas=3), 0),
        (TIERS, wanted(4 * MB + 1, replicas=3), 10047),
        (TIERS, wanted(replicas=3), 0),
        (TIERS, wanted(replicas=2), 10120),
        (TieredLimits({"R1": AccountLimits(max_streams=1)}), wanted(), 10027),
        (TieredLimits({"R3": AccountLimits(max_streams=1)}), wanted(replicas=3), 0),
        (TieredLimits({"R1": AccountLimits(storage_max_stream_bytes=5)}), wanted(6), 10122),
    ],
)
def test_a_stream_is_refused_when_its_account_has_no_room(limits: Allowance, stream: StreamConfig, code: int) -> None:
    others = [attrs.evolve(assignment("OTHER"), config=config("OTHER", max_bytes=MB))]
    found = 0
    try:
        check_stream_size(limits, stream)
        check_count(limits, stream, others)
        check_room(limits, stream, others, is_new=True)
    except ApiError as error:
        found = error.err_code
    assert found == code


def test_a_stream_that_is_there_stays_where_nothing_else_may_be_made() -> None:
    others = [attrs.evolve(assignment("OTHER"), config=config("OTHER", max_bytes=MB))]
    check_room(AccountLimits(max_storage=MB), wanted(), others, is_new=False)
    with pytest.raises(ApiError, match="insufficient storage"):
        check_room(AccountLimits(max_storage=MB), wanted(1), others, is_new=False)


def test_an_account_is_full_by_what_its_own_streams_hold() -> None:
    replicas = [held("A", Replica(2 * MB, is_leader=True)), held("B", Replica(9 * MB), memory=True)]
    other = attrs.evolve(replicas[0][0], account="OTHER")
    accounts = Accounts({"$G": AccountLimits(max_storage=MB)}, lambda: replicas)
    quota = accounts.quota_of("$G")
    assert quota is not None
    assert quota is accounts.quota_of("$G")
    assert code(quota.refusal(wanted(), 1)) == 10002
    assert code(quota.refusal(wanted(storage=MEMORY), 1)) == 0
    replicas[0] = other, replicas[0][1]
    assert code(quota.refusal(wanted(), 10**12)) == 0
    assert accounts.quota_of("OTHER") is None


def test_each_tier_is_full_by_what_is_in_it_and_all_replicas_count() -> None:
    (row, small), large = held("A", Replica(MB, is_leader=True)), Replica(2 * MB + 1, is_leader=True)
    three = attrs.evolve(row, config=wanted(replicas=3))
    tiers = TieredLimits({"R1": AccountLimits(max_storage=MB), "R3": AccountLimits(max_storage=2 * MB)})
    limits: dict[str, Allowance | None] = {"$G": tiers}
    replicas = [(row, small), (three, held("B", large)[1])]
    accounts = Accounts(limits, lambda: replicas, may_change=True)
    quota = accounts.quota_of("$G")
    assert quota is not None
    assert code(quota.refusal(wanted(), 1)) == 0
    assert code(quota.refusal(wanted(replicas=3), 1)) == 10002
    assert code(quota.refusal(wanted(replicas=2), 1)) == 10120
    assert accounts.room_for("$G", wanted()) == 0
    replicas[1] = (three, small)
    assert code(quota.refusal(wanted(replicas=3), 10**12)) == 0
    assert accounts.room_for("$G", wanted(replicas=3)) == MB
    limits["$G"] = None
    assert code(quota.refusal(wanted(), 10**13)) == 10039


def code(refused: ApiError | None) -> int:
    return 0 if refused is None else refused.err_code
