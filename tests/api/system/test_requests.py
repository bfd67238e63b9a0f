"""What a request costs at most: waiting requests are bounded by account, and one account does not delay others."""

import pytest

from jetraft.api.system.filters import ServerFilter
from jetraft.api.system.waiting import ACCOUNT_WAITING_MAX, REFUSALS_MAX, WAITING_MAX, RequestLines, SystemRequest


def asked(account: str, number: int = 0) -> SystemRequest:
    return SystemRequest(account=account, subject="$SYS.REQ.SERVER.PING", reply=b"r", payload=b"%d" % number, client=1)


def test_requests_of_an_account_are_bounded() -> None:
    waiting = RequestLines(system="SYS")
    taken = {name: sum(waiting.offer(asked(name)) for _ in range(2 * WAITING_MAX)) for name in ("A", "SYS", "B")}
    assert taken == {"A": ACCOUNT_WAITING_MAX, "SYS": WAITING_MAX, "B": ACCOUNT_WAITING_MAX}
    assert waiting.count == sum(taken.values())


def test_of_a_flood_in_one_turn_some_are_refused_and_the_rest_is_dropped() -> None:
    waiting = RequestLines(system="SYS")
    found = [waits for _, waits in waiting.sorted_out(asked("A") for _ in range(10 * REFUSALS_MAX))]
    assert found == [True] * ACCOUNT_WAITING_MAX + [False] * REFUSALS_MAX


def test_accounts_take_turns_and_each_is_served_in_order() -> None:
    waiting = RequestLines(system="SYS")
    for number in range(3):
        waiting.offer(asked("A", number))
    waiting.offer(asked("SYS", 7))
    found = [waiting.take() for _ in range(5)]
    assert [(one.account, one.payload) for one in found if one is not None] == [
        ("A", b"0"), ("SYS", b"7"), ("A", b"1"), ("A", b"2"),
    ]  # fmt: skip
    assert found[4] is None
    assert waiting.lines == {}


@pytest.mark.parametrize(
    ("wanted", "meant"),
    [
        (ServerFilter(), True),
        (ServerFilter(server_name="east"), True),
        (ServerFilter(server_name="east", exact_match=True), False),
        (ServerFilter(server_name="n1-east", host="0.0.0.0", cluster="C", exact_match=True), True),
        (ServerFilter(cluster="c"), False),
        (ServerFilter(tags=("AZ:1", "ssd")), True),
        (ServerFilter(tags=("az:1", "hdd")), False),
        (ServerFilter(domain="hub"), False),
    ],
)
def test_a_server_answers_if_all_of_the_filter_applies(wanted: ServerFilter, meant: bool) -> None:  # noqa: FBT001
    own = {"name": "n1-east", "cluster": "C", "host": "0.0.0.0", "tags": ("az:1", "SSD")}
    assert wanted.admits(**own) is meant  # type: ignore[arg-type]  # the values of one dict
