"""Every form of the code has a feature level, and every level has forms of the code (store/model/forms.py)."""

from jetraft.store.model.feature_level import BASE, FIRST, LEVEL, STREAM_KEYS
from jetraft.store.model.forms import FORMS
from tests.releases.probe import forms
from tests.releases.samples import samples

UNGUARDED = (
    "entry",
    "record flag",
    "config",
    "raft",
    "channel",
    "handshake",
    "route",
    "table",
    "snapshot",
    "consumer ",
)
HINT = """
A form that is new gets a line in the newest level of store/model/forms.py, and is used from that level on only; that
module says how each kind is kept below it. A form of a released version never changes: the new one has its own name.
"""


def test_every_form_of_the_code_has_a_level() -> None:
    found = set(forms())
    assert not (without := sorted(found - set(FORMS))), f"no level for {without}{HINT}"
    assert not (gone := sorted(set(FORMS) - found)), f"the code does not have {gone}{HINT}"


def test_levels_are_those_that_there_are() -> None:
    assert set(FORMS.values()) <= set(range(FIRST, LEVEL + 1))
    assert all(FIRST < level <= LEVEL for level in STREAM_KEYS.values())


def test_what_nothing_keeps_below_a_level_is_what_the_oldest_version_knows() -> None:
    """Whoever adds one adds what keeps it first: such a thing ends links, or stops groups, of the version before."""
    newer = [form for form, level in FORMS.items() if level > BASE and form.startswith(UNGUARDED)]
    assert not newer, f"nothing keeps {newer} below its level"


def test_every_command_and_message_is_among_the_samples_for_older_readers() -> None:
    sampled = {name for name, _, _ in samples()}
    kinds = ("stream ", "consumer ", "meta ", "raft ", "message ")
    wanted = {form.split(":")[0] for form in FORMS if form.startswith(kinds) and not form.startswith("consumer state")}
    assert wanted <= sampled, sorted(wanted - sampled)
