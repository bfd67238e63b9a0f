"""The `accounts` block: read into frozen values, and refused where something in it is not served or not right."""

from pathlib import Path

import pytest

from jetraft.api.config.build import build_options
from jetraft.api.config.file import load_settings
from jetraft.api.config.settings import OptionsError
from jetraft.api.options.options import AccountOptions, Options
from jetraft.store.model.state import AccountLimits


def options(tmp_path: Path, text: str) -> Options:
    path = tmp_path / "server.conf"
    path.write_text(text)
    return build_options(load_settings(path, {}))


def test_accounts_have_users_and_limits_of_jetstream(tmp_path: Path) -> None:
    found = options(
        tmp_path,
        """
        accounts {
          A { users [{user: a, password: x}, {user: b, password: y}], jetstream: enabled }
          B { users [{user: c, password: z}] }
          C { jetstream { max_mem: 1mb, max_file: 2mb, max_streams: 3, max_consumers: 4, max_ack_pending: 5
                          max_bytes_required: true, mem_max_stream_bytes: 6, disk_max_stream_bytes: 7 } }
          D { jetstream: disabled }
        }
        authorization { users [{user: g, password: w}] }
        """,
    )
    limits = AccountLimits(
        max_memory=1_048_576,
        max_storage=2_097_152,
        max_streams=3,
        max_consumers=4,
        max_ack_pending=5,
        max_bytes_required=True,
        memory_max_stream_bytes=6,
        storage_max_stream_bytes=7,
    )
    assert found.accounts == (
        AccountOptions(name="A", jetstream=AccountLimits()),
        AccountOptions(name="B"),
        AccountOptions(name="C", jetstream=limits),
        AccountOptions(name="D"),
    )
    assert {user.name: user.account for user in found.auth.users} == {"g": "$G", "a": "A", "b": "A", "c": "B"}
    assert found.jetstream_accounts.limits == {
        "$G": None,
        "$SYS": None,
        "A": AccountLimits(),
        "B": None,
        "C": limits,
        "D": None,
    }


@pytest.mark.parametrize(
    ("text", "system", "has_jetstream"),
    [
        ("", "$SYS", True),
        ("accounts { S {} }; system_account: S", "S", True),
        ("accounts { S {}, A {} }; system_account: S", "S", False),
        ("accounts [A, B]", "$SYS", False),
        ("no_system_account: true", "", True),
    ],
)
def test_the_global_account_has_jetstream_while_it_is_alone(
    tmp_path: Path,
    text: str,
    system: str,
    has_jetstream: bool,  # noqa: FBT001  (a parameter of the case)
) -> None:
    found = options(tmp_path, text)
    assert found.system_account == system
    assert (found.jetstream_accounts.limits["$G"] is not None) is has_jetstream
    assert found.jetstream_accounts.limits.get(system) is None
    assert found.jetstream_accounts.operators == {*filter(None, [system]), *(["$G"] if has_jetstream else [])}


def test_users_of_an_account_have_its_permissions_when_they_have_none(tmp_path: Path) -> None:
    text = """
    accounts { A { default_permissions { publish: a }
                   users [ {user: a, password: x}, {user: b, password: x, permissions { publish: b }} ]
                   jetstream { cluster_traffic: owner } },
               B { users [ {user: c, password: x} ] } }
    """
    users = options(tmp_path, text).auth.by_name
    granted = {name: user.permissions and user.permissions.publish.allow for name, user in users.items()}
    assert granted == {"a": ("a",), "b": ("b",), "c": None}
    assert {name: user.account for name, user in users.items()} == {"a": "A", "b": "A", "c": "B"}


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("authorization { user: z, password: z }\naccounts { A { users [{user: a}] } }", "a single user/pass and a"),
        ("accounts { A { users [{user: a}] } }\nauthorization { token: t }", "Can not have a token and a users array"),
        ("accounts { $G { users [] } }", "Reserved Account"),
        ("accounts: 1", "to be a map/struct or array"),
        ("accounts { A: 1 }", "Expected map entries for accounts"),
        ("accounts [A, A]", "Duplicate Account Entry: A"),
        ("accounts { A { nkey: xx } }", 'Not a valid public nkey for an account: "xx"'),
        (
            "jetstream { extension_hint: will_extend }; leafnodes { remotes [ { url: a, account: '$SYS' } ] }",
            "extension_hint: will_extend with a hub of the system account is not served by jetraft yet",
        ),
        ('cluster { name: C, port: 1, compression: "s3" }', 'unsupported compression mode "s3"'),
        ('accounts { "A B" {} }', "cannot contain spaces"),
        ("accounts { A { nonsense: 1 } }", 'unknown field "nonsense" in accounts'),
        ("accounts { A { jetstream: sometimes } }", "Expected 'enabled' or 'disabled'"),
        ("accounts { A { jetstream { cluster_traffic: x } } }", "Expected 'system' or 'owner' string value"),
        ("accounts { A { users [{user: a, password: x}] }, B { users [{user: a, password: x}] } }", "Duplicate user"),
        (
            "accounts { A { users [{user: a, password: x}] } }; authorization { users [{user: a, password: x}] }",
            "Duplicate user",
        ),
        ("system_account: NONE", "is not an account of the configuration"),
        ("accounts [S]; system_account: S; no_system_account: true", "mutually exclusive"),
    ],
)
def test_what_is_wrong_or_not_served_is_refused_by_name(tmp_path: Path, text: str, error: str) -> None:
    with pytest.raises(OptionsError, match=error.replace("$", r"\$")):
        options(tmp_path, text.replace("$G", '"$G"'))
