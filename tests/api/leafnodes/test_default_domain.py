"""An account without JetStream uses that of a domain under the usual names, with jetraft at either end or at both."""

import json
from pathlib import Path

import pytest

from jetraft.api.config.build import build_options
from jetraft.api.config.file import load_settings
from jetraft.api.config.settings import OptionsError
from tests.harness.leafs import PAIR_IDS, PAIRS, joined, remote
from tests.harness.server import Kind

ACCOUNT = "accounts { A { users: [ {user: a, password: a} ] } }\n"


@pytest.mark.reference
@pytest.mark.parametrize(("hub", "leaf"), PAIRS, ids=PAIR_IDS)
def test_an_account_uses_the_streams_of_its_domain(hub: Kind, leaf: Kind, tmp_path: Path) -> None:
    account = f"{ACCOUNT}no_auth_user: a\ndefault_js_domain {{ A: hub }}\n"
    far = remote(0, "account: A").replace(":0", ":LEAFPORT")
    with joined(hub, leaf, tmp_path, leaf_more=account + far) as pair, pair.clients() as (_, edge):
        edge.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.*"]})
        assert edge.acknowledged("s.a", b"1")["domain"] == "hub"
        (answer,) = edge.request("$JS.API.STREAM.INFO.S", b"")
        assert json.loads(answer.payload)["state"]["messages"] == 1
        (direct,) = edge.request("$JS.API.STREAM.MSG.GET.S", b'{"seq":1}')
        assert json.loads(direct.payload)["message"]["subject"] == "s.a"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f'{ACCOUNT}default_js_domain {{ A: "a.b" }}', 'contains account "A" with invalid domain name "a.b"'),
        (
            f"{ACCOUNT.replace('users', 'jetstream: enabled, users')}jetstream: enabled\ndefault_js_domain {{ A: b }}",
            'default_js_domain contains account name "A" with enabled JetStream',
        ),
        ("default_js_domain: 1", "error default_js_domain config: unsupported type int64"),
        ("max_sub_tokens: 0", "max_sub_tokens value can not be negative"),
        ("max_sub_tokens: 256", "max_sub_tokens value is too big"),
        ("cluster { write_timeout: x }", "write_timeout must be 'default', 'close' or 'retry'"),
    ],
)
def test_what_is_wrong_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "c.conf"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(OptionsError) as refused:
        build_options(load_settings(path, {}))
    assert message in str(refused.value)
