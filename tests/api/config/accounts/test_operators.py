"""Operators in a configuration: their tokens stand in the file, or in files of their own as tools write them."""

from pathlib import Path

import pytest

from jetraft.api.config.accounts.operators import token_of
from tests.harness.tokens import TokenOperator

LINE = "-" * 6


@pytest.mark.parametrize("end", ["", "\n", "\n\n"])
@pytest.mark.parametrize("begin", ["", "\n"])
def test_a_token_is_read_from_a_file_whether_or_not_its_last_line_ends(begin: str, end: str, tmp_path: Path) -> None:
    token, file = TokenOperator().token(), tmp_path / "operator.jwt"
    file.write_text(f"{begin}-----BEGIN NATS OPERATOR JWT-----\n{token}\n{LINE}END NATS OPERATOR JWT{LINE}{end}")
    assert token_of(str(file)) == token
    file.write_text(f"{begin}{token}{end}")
    assert token_of(str(file)) == token
    assert token_of(token) == token
