"""Seeds and files of credentials: what they sign, what they are not, and that nobody sees them."""

from pathlib import Path

import pytest

from jetraft.api.credentials.nkeys import signed
from jetraft.api.credentials.seeds import SeedError, UserCredentials, UserKey
from tests.harness.tokens import Keys, TokenOperator


def test_a_seed_signs_as_its_user() -> None:
    keys = Keys.new("user")
    key = UserKey.read(keys.seed)
    assert key.public == keys.public
    assert signed(key.public, key.sign(b"nonce"), b"nonce")
    assert not signed(key.public, key.sign(b"nonce"), b"other")


@pytest.mark.parametrize("kind", ["account", "operator", "server"])
def test_the_seed_of_something_else_is_refused(kind: str) -> None:
    with pytest.raises(SeedError):
        UserKey.read(Keys.new(kind).seed)


def test_what_is_no_seed_is_refused_without_being_shown() -> None:
    seed = Keys.new("user").seed
    changed = seed[:20] + ("A" if seed[20] != "A" else "B") + seed[21:]  # the last letter has bits that say nothing
    for text in ("", "S", seed[:-1], changed, seed.lower(), seed + "A", "é" * 58):
        with pytest.raises(SeedError) as caught:
            UserKey.read(text)
        assert not text or text not in str(caught.value)


def test_a_file_has_a_token_and_a_seed(tmp_path: Path) -> None:
    user = TokenOperator().account("A").user()
    path = tmp_path / "user.creds"
    for text in (user.creds, user.creds.replace("\n", "\r\n"), f"# a comment\n\n{user.creds}\n\n*** end ***\n"):
        path.write_bytes(text.encode())
        found = UserCredentials.read(str(path))
        assert (found.jwt, found.key.public) == (user.token, user.keys.public)
        assert user.token not in repr(found)
        assert user.keys.seed not in repr(found)


def test_a_file_without_one_of_them_is_refused(tmp_path: Path) -> None:
    user = TokenOperator().account("A").user()
    path = tmp_path / "user.creds"
    for text in ("", user.token, user.creds.split("-----BEGIN USER")[0], user.creds.replace(user.keys.seed, "SUBAD")):
        path.write_text(text)
        with pytest.raises(SeedError):
            UserCredentials.read(str(path))
    with pytest.raises(OSError, match="No such file"):
        UserCredentials.read(str(tmp_path / "none"))
