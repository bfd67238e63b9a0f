"""`msg_trace` of an account: what is taken, and what is refused in nats-server's words."""

from pathlib import Path

import pytest

from jetraft.api.config.build import build_options
from jetraft.api.config.file import load_settings
from jetraft.api.config.settings import OptionsError
from jetraft.api.options.options import AccountOptions


def account(tmp_path: Path, text: str) -> AccountOptions:
    path = tmp_path / "server.conf"
    path.write_text(f"accounts {{ A {{ {text} }} }}")
    return build_options(load_settings(path)).accounts[0]


@pytest.mark.parametrize(
    ("text", "dest", "sampling"),
    [
        ('msg_trace: "a.b"', "a.b", 100),
        ('trace_dest: "a.b"', "a.b", 100),
        ('msg_trace { dest: "a", sampling: 20 }', "a", 20),
        ('msg_trace { dest: "a", sampling: "20%" }', "a", 20),
        ("msg_trace { }", "", 100),
    ],
)
def test_a_destination_is_read(tmp_path: Path, text: str, dest: str, sampling: int) -> None:
    found = account(tmp_path, text)
    assert (found.trace_dest, found.trace_sampling) == (dest, sampling)


@pytest.mark.parametrize(
    ("text", "column", "error"),
    [
        ("msg_trace: 5", 16, 'Expected account message trace "msg_trace" to be a string or a map/struct, got int64'),
        ('msg_trace: "a.*"', 16, 'Trace destination "a.*" is not valid'),
        ("msg_trace { dest: 7 }", 28, 'Field "dest" should be a string, got int64'),
        ('msg_trace { dest: "a", sampling: 0 }', 39, "Ttrace destination sampling value 0 is invalid, needs to be"),
        ('msg_trace { dest: "a", sampling: "x%" }', 39, 'Invalid trace destination sampling value "x%"'),
        ('msg_trace { dest: "a", sampling: true }', 39, 'Trace destination sampling field "sampling" should be an'),
        ('msg_trace { dest: "a", b: 1 }', 39, 'Unknown field "b" parsing account message trace map/struct "msg_trace"'),
        ("msg_trace { sampling: 20 }", 16, "Trace destination sampling ignored since no destination was set"),
    ],
)
def test_what_is_wrong_is_refused(tmp_path: Path, text: str, column: int, error: str) -> None:
    with pytest.raises(OptionsError) as refused:
        account(tmp_path, text)
    assert str(refused.value).startswith(f"{tmp_path}/server.conf:1:{column}: {error}")
