from tests.harness.scheduling import FIRST, SESSION, FilesAndSessions, place, turned
from tests.harness.server import ROOT


def test_files_stay_together_and_the_session_has_one_worker() -> None:
    split = FilesAndSessions._split_scope
    scheduling = FilesAndSessions.__new__(FilesAndSessions)  # the question needs nothing of a run

    assert {split(scheduling, f"{file}::test_a[x::y]") for file in SESSION} == {SESSION[0]}
    assert split(scheduling, "tests/a/test_b.py::TestC::test_d") == "tests/a/test_b.py"


def test_long_files_come_first_and_the_session_before_all() -> None:
    tests = ["tests/api/test_a.py::a", "tests/faults/test_b.py::b", "tests/spark/test_c.py::c", f"{SESSION[2]}::d"]
    assert sorted(tests, key=place) == [tests[3], tests[2], tests[1], tests[0]]
    assert all((ROOT / "tests" / folder).is_dir() for folder in FIRST)


def test_each_worker_begins_elsewhere_and_takes_every_folder() -> None:
    folders = ["a", "b", "c", "d"]
    orders = [turned(folders, worker, 3) for worker in range(3)]
    assert [order[0] for order in orders] == ["a", "b", "c"]
    assert all(sorted(order) == folders for order in orders)


def test_tests_connect_with_patience() -> None:
    """nats-py gives up after seconds; tests/clients/nats_py.py waits as long as a busy machine needs."""
    call = "nats." + "connect("
    tests = (ROOT / "tests").rglob("test_*.py")
    assert [str(path) for path in tests if call in path.read_text(encoding="utf-8")] == []


def test_every_test_of_the_session_is_in_these_files() -> None:
    using = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "tests" / "spark").rglob("test_*.py")
        if 'spark: "SparkSession"' in path.read_text(encoding="utf-8")
    }
    assert using == set(SESSION)
