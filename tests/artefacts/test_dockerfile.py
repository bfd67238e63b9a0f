"""The steps of deploy/Dockerfile, carried out in directories: one that breaks is seen without an engine."""

from pathlib import Path

import attrs
import pytest

from tests.artefacts.building import DOCKERFILE, OF_THE_SERVER, Artefacts, construct, stages
from tests.artefacts.dockerfile import OF_THE_BASE, Stage, StepFailedError, stages_of

pytestmark = [
    pytest.mark.campaign,
    pytest.mark.timeout(900),  # a compiler beside other tests on two cores
    pytest.mark.slow("the first test of a run that needs the artefacts makes them"),
]

OTHER = """\
ARG BASE=debian
FROM ${BASE} AS first
ARG WORD=none
ENV NAMED=/opt/${WORD} OTHER="two words"
RUN mkdir -p /opt/it && printf %s "$NAMED $OTHER" \\
 && printf %s "$NAMED" > /opt/it/name && test ! -e /usr/opt/it
FROM first AS second
WORKDIR /source
COPY given taken
COPY --from=first /opt/it /data
RUN test "$(cat /data/name)" = "$NAMED" && cat taken > /source/same
"""


def steps(found: list[Stage]) -> list[tuple[str, int]]:
    return [(stage.name, step.line) for stage in found for step in stage.instructions if step.word == "RUN"]


def test_every_step_of_the_server_is_carried_out_but_those_that_change_the_base(artefacts: Artefacts) -> None:
    of_the_server = [stage for stage in stages() if stage.name in OF_THE_SERVER]
    assert [stage.name for stage in of_the_server] == list(OF_THE_SERVER)
    lines = [line for _, line in steps(of_the_server)]
    assert sorted(artefacts.steps_done + artefacts.steps_passed_over) == lines
    texts = {step.line: step.rest for stage in of_the_server for step in stage.instructions}
    for line in artefacts.steps_passed_over:
        assert any(program in texts[line] for program in OF_THE_BASE)
        assert "/opt/" not in texts[line], "what is ours is in a step of its own"
    assert len(artefacts.steps_done) >= 6


def test_the_image_of_the_server_has_its_own_packages_and_no_installer(artefacts: Artefacts) -> None:
    (site,) = (artefacts.stage("server") / "opt" / "jetraft" / "lib").glob("python3*/site-packages")
    packages = {path.name for path in site.iterdir()}
    assert {"jetraft", "pyspark_jetstream", "trio", "nats", "rich", "typer"} <= packages, "the command line works in it"
    assert not packages & {"pip", "setuptools", "Cython", "pyarrow"}
    assert list(site.glob("jetraft/**/*.classes")), "the step that prepares the first start has run"
    assert (artefacts.stage("server") / "etc" / "jetraft" / "node.conf").is_file()


@pytest.mark.parametrize(
    ("good", "broken"),
    [
        ("-m jetraft.api.cli.prepare", "-m jetraft.api.cli.prepared"),
        ("COPY --from=build /opt/jetraft /opt/jetraft", "COPY deploy/node.conf /opt/nothing"),
    ],
)
def test_a_step_that_is_broken_is_named_with_its_line(
    artefacts: Artefacts, tmp_path: Path, good: str, broken: str
) -> None:
    text = DOCKERFILE.read_text(encoding="utf-8")
    assert good in text
    server = next(stage for stage in stages_of(text.replace(good, broken)) if stage.name == "server")
    (tmp_path / "stages").mkdir()
    (tmp_path / "stages" / "build").symlink_to(artefacts.stage("build"))
    with pytest.raises(StepFailedError, match=r"deploy/Dockerfile:\d+: RUN /opt/jetraft/bin/python -m jetraft"):
        construct(tmp_path, artefacts.root / "context", [attrs.evolve(server, base="an image")])


def test_a_stage_is_carried_out_in_a_directory_of_its_own(tmp_path: Path) -> None:
    context = tmp_path / "context"
    context.mkdir()
    (context / "given").write_text("given")
    construct(tmp_path, context, stages_of(OTHER))
    first, second = tmp_path / "stages" / "first", tmp_path / "stages" / "second"
    assert (first / "opt" / "it" / "name").read_text() == f"{first}/opt/none"
    assert (second / "source" / "same").read_text() == "given"
    assert not Path("/opt/it").exists()
