"""What of a CONNECT is in the log."""

import pytest

from jetraft.api.credentials.verdicts import REDACTED
from jetraft.api.sessions.protocol_log import received, told


@pytest.mark.parametrize(
    "options",
    [
        b'{"pass":"geheim"}',
        b'{"PASS":"geheim","auth_token":"geheim"}',
        b'{"p\\u0061ss":"geheim"}',
        b'{"sig":"geheim","jwt":"geheim","nkey":"geheim"}',
        b'{"pass":["geheim"]}',
        b'{"pass":"geheim"',
        b'["geheim"]',
        b'"geheim"',
    ],
)
def test_no_form_of_a_connect_shows_a_secret(options: bytes) -> None:
    line = received(b"connect  " + options + b"\r")
    assert line.startswith("CONNECT ")
    assert "geheim" not in line
    assert REDACTED in line


def test_what_is_no_secret_is_shown() -> None:
    assert received(b'CONNECT {"user":"u","name":"x"}\r') == 'CONNECT {"user":"u","name":"x"}'


def test_info_is_not_logged() -> None:
    assert told(b"INFO {}\r\n") == ""
    assert told(b"-ERR 'Invalid Subject'\r\n") == "-ERR Invalid Subject"
