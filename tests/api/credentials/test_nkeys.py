import base64

import nkeys
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetraft.api.credentials.nkeys import decode_signature, public_user_key, signed

SEED = b"SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY"
PAIR = nkeys.from_seed(bytearray(SEED))
KEY = PAIR.public_key.decode()


def test_a_key_and_its_signature_are_those_of_the_nkeys_package() -> None:
    signature = PAIR.sign(b"nonce")
    for text in (base64.urlsafe_b64encode(signature).rstrip(b"=").decode(), base64.b64encode(signature).decode()):
        assert signed(KEY, text, b"nonce")
        assert not signed(KEY, text, b"other")
    assert not signed(KEY, "", b"nonce")
    assert not signed(KEY, "!!!", b"nonce")
    assert not signed("junk", base64.b64encode(signature).decode(), b"nonce")


@pytest.mark.parametrize("text", ["", "U", KEY[:-1], KEY + "A", KEY.lower(), "A" + KEY[1:], KEY[:-1] + "A", "é" * 56])
def test_a_text_that_is_no_user_key_is_none(text: str) -> None:
    assert public_user_key(text) is None


@given(st.integers(0, 55), st.sampled_from("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"))
def test_a_changed_character_is_noticed(position: int, char: str) -> None:
    changed = KEY[:position] + char + KEY[position + 1 :]
    # The last of 56 characters has five bits of the CRC: every change matters.
    assert (public_user_key(changed) is not None) == (changed == KEY)


@given(st.binary(max_size=80))
def test_both_alphabets_are_read(raw: bytes) -> None:
    assert decode_signature(base64.urlsafe_b64encode(raw).rstrip(b"=").decode()) == raw
    assert decode_signature(base64.b64encode(raw).decode()) == raw
