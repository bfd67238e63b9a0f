"""jetraft as it is installed: alone, and with each of its extras, where no checkout is."""

import ast
import importlib.metadata
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from jetraft.api.cli.main import COMMANDS
from jetraft.store.model.extras import CLI, EXTRAS, OTEL, PYSYNCOBJ, SCHEMA, TOOLS, Extra, missing_extra
from tests.artefacts.building import FOLDERS, Artefacts
from tests.artefacts.environments import Environment, closure, requirements_in
from tests.harness.raw import RawClient
from tests.harness.server import ROOT, Server

pytestmark = [
    pytest.mark.campaign,
    pytest.mark.timeout(900),  # a compiler beside other tests on two cores
    pytest.mark.slow("the first test of a run that needs the artefacts makes them"),
]
FOR_TOOLS: Final = {"export", "backup", "restore", "chain"}
CLIENTS: Final = {name for name, module in COMMANDS.items() if ".client." in module}
AVRO: Final = json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]})
USES: Final[dict[str, tuple[str, dict[str, str]]]] = {  # configuration of the server, metadata of a stream
    SCHEMA.name: ("max_payload: 1MB", {"jetraft.schema_type": "json", "jetraft.schema": '{"type": "integer"}'}),
    PYSYNCOBJ.name: ("jetstream { raft_engine: pysyncobj }", {}),
    OTEL.name: ("", {}),  # `jetraft traces` needs the extra `cli` too; its module is imported
}


@pytest.fixture(scope="module")
def installed(artefacts: Artefacts, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment with jetraft alone."""
    environment = Environment(tmp_path_factory.mktemp("installed") / "venv")
    environment.link(closure(requirements_in(artefacts.server_wheel)).values())
    environment.install(artefacts.server_wheel)
    return environment


@contextmanager
def with_extra(environment: Environment, artefacts: Artefacts, extra: str) -> Iterator[None]:
    """An extra of jetraft besides, for a while."""
    alone = closure(requirements_in(artefacts.server_wheel))
    wanted = requirements_in(artefacts.server_wheel, extra)
    own = [needed for needed in wanted if needed.name == "pyspark-jetstream"]
    for needed in own:  # the wheel that was built here, instead of the checkout's
        wanted.remove(needed)
        wanted += [one for each in {"", *needed.extras} for one in requirements_in(artefacts.spark_wheel, each)]
    more = closure(wanted)
    with environment.linked(package for name, package in more.items() if name not in alone):
        if own:
            environment.install(artefacts.spark_wheel)
        try:
            yield
        finally:
            if own:
                environment.pip("uninstall", "--quiet", "--yes", "pyspark-jetstream", check=True)


@contextmanager
def server(environment: Environment, directory: Path, config: str | None = None) -> Iterator[Server]:
    """A server of that environment; -I: nothing of the checkout is found."""
    directory.mkdir()
    made = Server("jetraft", directory=directory, config=config)
    made.starter = [str(environment.python), "-I", "-m", "jetraft"]
    with made:
        place = Path(f"/proc/{made.running.pid}/exe").resolve()
        assert place == environment.python.resolve()
        yield made


def check_commands(environment: Environment, directory: Path, *extras: Extra) -> None:
    """`--help` of each, or one line that names the extra."""
    script = environment.directory / "bin" / "jetraft"
    shown = environment.run(str(script), "--help", cwd=directory)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "-js" in shown.stdout
    for name in COMMANDS:
        shown = environment.run("-m", "jetraft", name, "--help", cwd=directory)
        needed = TOOLS if name in FOR_TOOLS else CLI if name in CLIENTS else None
        if needed is not None and needed not in extras:
            said = f"jetraft {name}: the extra {needed.name} is not installed: pip install 'jetraft[{needed.name}]'\n"
            assert (shown.returncode, shown.stdout, shown.stderr) == (1, "", said)
        else:
            assert (shown.returncode, shown.stderr) == (0, ""), name
            assert f"jetraft {name}" in shown.stdout


def prepared(environment: Environment, directory: Path) -> set[str]:
    """The extras that `prepare` says are missing."""
    done = environment.run("-m", "jetraft.api.cli.prepare", cwd=directory)
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    assert all(line.startswith("jetraft: not prepared: jetraft.") for line in lines), done.stderr
    return {line.split("the extra ")[1].split()[0] for line in lines}


def used(address: tuple[str, int], **config: Any) -> dict[str, Any]:
    """A stream is created, and takes and gives back a message; returns its configuration."""
    with RawClient(address) as client:
        created = client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s"], **config})
        assert "error" not in created, created
        assert client.acknowledged("s", b"1")["seq"] == 1
        assert client.api("STREAM.MSG.GET.S", {"seq": 1})["message"]["seq"] == 1
    configured = created["config"]
    assert isinstance(configured, dict)
    return configured


def test_alone_it_serves_and_says_what_its_commands_lack(installed: Environment, tmp_path: Path) -> None:
    assert installed.pip("check").stdout == "No broken requirements found.\n"
    assert prepared(installed, tmp_path) == {extra.name for extra in EXTRAS}
    check_commands(installed, tmp_path)
    with server(installed, tmp_path / "alone") as alone:
        used(alone.address)
        with RawClient(alone.address) as client:
            refused = client.api(
                "STREAM.CREATE.T", {"name": "T", "metadata": {"jetraft.schema_type": "avro", "jetraft.schema": AVRO}}
            )
            assert SCHEMA.command in refused["error"]["description"]
    config = tmp_path / "engine.conf"
    config.write_text(f'jetstream {{ store_dir: "{tmp_path / "engine"}", raft_engine: pysyncobj }}\n')
    ended = installed.run("-I", "-m", "jetraft", "-p", "-1", "-c", str(config), cwd=tmp_path)
    assert ended.returncode == 1
    assert PYSYNCOBJ.advice in ended.stderr.splitlines()[-1]


def test_with_the_tools_a_stream_is_backed_up_and_exported(
    installed: Environment, artefacts: Artefacts, tmp_path: Path
) -> None:
    with with_extra(installed, artefacts, TOOLS.name):
        assert installed.pip("check").stdout == "No broken requirements found.\n"
        check_commands(installed, tmp_path, TOOLS)
        with server(installed, tmp_path / "tools") as serving:
            used(serving.address)
            url = f"nats://{serving.address[0]}:{serving.address[1]}"
            words = ("--servers", url, "--stream", "S")
            for command in (["backup", *words, "kept"], ["export", *words, "s.parquet"]):
                done = installed.run("-m", "jetraft", *command, cwd=tmp_path)
                assert done.returncode == 0, done.stderr
            assert (tmp_path / "s.parquet").stat().st_size > 0


def test_with_the_command_line_a_stream_is_created(
    installed: Environment, artefacts: Artefacts, tmp_path: Path
) -> None:
    with with_extra(installed, artefacts, CLI.name):
        assert installed.pip("check").stdout == "No broken requirements found.\n"
        check_commands(installed, tmp_path, CLI)
        with server(installed, tmp_path / "cli") as serving:
            words = ("stream", "add", "S", "--subjects", "s", "--server", f"{serving.address[0]}:{serving.address[1]}")
            done = installed.run("-m", "jetraft", *words, cwd=tmp_path)
            assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("extra", [SCHEMA.name, OTEL.name, PYSYNCOBJ.name])
def test_with_an_extra_the_server_does_what_it_is_for(
    installed: Environment, artefacts: Artefacts, tmp_path: Path, extra: str
) -> None:
    config, metadata = USES[extra]
    with with_extra(installed, artefacts, extra):
        assert installed.pip("check").stdout == "No broken requirements found.\n"
        assert prepared(installed, tmp_path) == {each.name for each in EXTRAS} - {extra}
        with server(installed, tmp_path / extra, config) as serving:
            assert used(serving.address, metadata=metadata)["name"] == "S"


def imported_by(path: Path) -> set[str]:
    """The top-level names that a module imports, wherever in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return found


def test_all_that_is_imported_is_a_dependency_or_of_an_extra_in_the_table(artefacts: Artefacts) -> None:
    paths = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    names = set().union(*map(imported_by, paths)) - sys.stdlib_module_names - {"jetraft", "_signal"}
    of_extras = {name for extra in EXTRAS for name in extra.modules}
    by_name = importlib.metadata.packages_distributions()
    dependencies = closure(requirements_in(artefacts.server_wheel)).keys()
    required = {needed.name.lower() for needed in requirements_in(artefacts.server_wheel)}
    needed_by_others = {"pyarrow", "nkeys"}  # by pyspark_jetstream.export, and by nats-py for files of credentials
    assert of_extras - needed_by_others <= names
    for name in names - of_extras:
        sources = {each.lower() for each in by_name.get(name, [])}
        assert sources & set(dependencies), f"{name} is neither a dependency nor in store/model/extras.py"
        assert sources & required, f"{name} is imported, and comes only because something else needs it"
    for extra in EXTRAS:
        assert requirements_in(artefacts.server_wheel, extra.name), "pyproject.toml has it"


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (ModuleNotFoundError(name="pyspark_jetstream.errors"), "tools"),
        (ModuleNotFoundError(name="google.protobuf"), "schema"),
        (ModuleNotFoundError(name="typer"), "cli"),
        (ModuleNotFoundError(name="trio"), ""),
        (ModuleNotFoundError(name="jetraft.api.absent"), ""),
        (ModuleNotFoundError(), ""),
        (ImportError(name="pyarrow"), ""),  # it is there, and is broken
    ],
)
def test_only_a_module_that_is_not_there_is_a_missing_extra(error: ImportError, name: str) -> None:
    found = missing_extra(error)
    assert ("" if found is None else found.name) == name
