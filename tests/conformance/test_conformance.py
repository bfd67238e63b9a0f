"""The same script against jetraft and nats-server 2.15.1: every answer is compared, field by field."""

import pytest

from tests.conformance.__main__ import Shown, observe_both
from tests.conformance.compare import differences
from tests.conformance.known import KNOWN, meant
from tests.conformance.scenes import SCENES

pytestmark = [pytest.mark.reference, pytest.mark.timeout(900)]  # the first test waits for all scenes of both servers
LEFT_OVER = "(left over)"
CASES = [(scene.name, name) for scene in SCENES for name in [*(step.name for step in scene.steps), LEFT_OVER]]


@pytest.fixture(scope="module")
def observed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Shown, Shown]:
    """What the reference and jetraft show; both run once for all cases."""
    return observe_both(("reference", "jetraft"), "", tmp_path_factory.mktemp("servers"))


@pytest.mark.parametrize(("scene", "step"), CASES, ids=[f"{scene}: {step}" for scene, step in CASES])
def test_answers_as_the_reference_does(observed: tuple[Shown, Shown], scene: str, step: str) -> None:
    expected, actual = observed
    found = differences(expected[scene][step], actual[scene].get(step))
    unknown = [row for row in found if not meant(scene, step, row[0])]
    assert not unknown, "\n".join(f"{path}: expected {a!r}, got {b!r}" for path, a, b in unknown)


def test_every_known_difference_still_exists(observed: tuple[Shown, Shown]) -> None:
    expected, actual = observed
    rows = [
        (scene, step, path)
        for scene, steps in expected.items()
        for step, shown in steps.items()
        for path, _, _ in differences(shown, actual[scene].get(step))
    ]
    lasting = [known for known in KNOWN if known.always]
    assert [known for known in lasting if not any(known.covers(*row) for row in rows)] == []
