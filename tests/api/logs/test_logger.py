"""The log file: rotated at its limit, opened again, and lines that stay whole."""

import json
import logging
from contextlib import closing
from os import getpid
from pathlib import Path

from jetraft.api.logs.logger import LogBridge, open_logger
from jetraft.api.options.options import Options
from jetraft.store.model.clock import ManualClock
from jetraft.store.model.events import BURST, DISK_SLOW, MEMBERS_CHANGED, REPLICA_BEHIND, STREAM_DELETED, Event


def line_of(number: int) -> str:
    """A line of known length."""
    return f"line {number:03d} {'x' * 40}"


def test_a_file_at_its_limit_is_set_aside_and_only_so_many_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    with closing(open_logger(Options(log_file=str(path), log_size_limit=100, log_max_num=3))) as logger:
        for number in range(20):
            logger.info(line_of(number))
    files = sorted(tmp_path.iterdir())
    assert len(files) == 3
    lines = "".join(file.read_text() for file in [*files[1:], files[0]])
    assert "line 019" in lines  # the newest line is in the newest file that has any
    assert "line 000" not in lines
    assert all(file.stat().st_size < 300 for file in files)


def test_a_file_that_was_moved_away_is_begun_anew_when_asked(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    with closing(open_logger(Options(log_file=str(path)))) as logger:
        logger.info("before")
        path.rename(tmp_path / "old.log")
        logger.reopen()
        logger.info("after")
    assert "before" in (tmp_path / "old.log").read_text()
    assert path.read_text().endswith("[INF] after\n")


def test_debug_lines_are_written_only_when_asked_for(tmp_path: Path) -> None:
    for debug in (False, True):
        path = tmp_path / f"{debug}.log"
        with closing(open_logger(Options(log_file=str(path), debug=debug))) as logger:
            logger.debug("detail")
        assert ("detail" in path.read_text()) is debug


def test_what_the_lower_layers_log_arrives_at_its_level_on_one_line(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    with closing(open_logger(Options(log_file=str(path), logtime=False))) as logger:
        for level in (logging.INFO, logging.WARNING, logging.ERROR):
            LogBridge(logger, ManualClock()).emit(logging.LogRecord("x", level, "f", 1, "two\nlines", None, None))
    assert [line.partition("] ")[2] for line in path.read_text().splitlines()] == [
        "[INF] two\\nlines",
        "[WRN] two\\nlines",
        "[ERR] two\\nlines",
    ]


class Names:
    """One group, of one stream, and one server."""

    def stream_of_group(self, group_id: str) -> tuple[str, str] | None:
        """See ClusterNames."""
        return ("A", "ORDERS") if group_id == "S-1" else None

    def name_of_node(self, node_id: str) -> str:
        """See ClusterNames."""
        return "n2" if node_id == "EEt9ufJN" else node_id


def events(path: Path, form: str) -> list[str]:
    """What the log has of two events and of another line."""
    with closing(open_logger(Options(log_file=str(path), logtime=False, log_format=form))) as logger:
        bridge = LogBridge(logger, ManualClock())
        bridge.follow(Names())
        for message in (
            Event(REPLICA_BEHIND, {"group": "S-1", "entries": 402, "node": "EEt9ufJN"}),
            Event(STREAM_DELETED, {"account": "A", "stream": "S", "user": 'x" by\nfoo', "host": "::1"}),
            "two\nlines",
        ):
            record = logging.LogRecord("x", logging.INFO, "f", 1, message, None, None)
            bridge.emit(record)
    assert bridge.events["replica_behind"] == 1
    return path.read_text().splitlines()


BEHIND = "stream A > ORDERS: this replica is 402 entries behind n2; requesting a snapshot"


def test_an_event_is_one_line_of_text(tmp_path: Path) -> None:
    assert [line.partition("] [INF] ")[2] for line in events(tmp_path / "log", "text")] == [
        BEHIND,
        "stream A > S: deleted by user 'x\" by\\nfoo' from ::1",
        "two\\nlines",
    ]


def test_servers_are_named_in_lists_too(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with closing(open_logger(Options(log_file=str(path), logtime=False))) as logger:
        bridge = LogBridge(logger, ManualClock())
        bridge.follow(Names())
        event = Event(MEMBERS_CHANGED, {"group": "meta", "voters": "EEt9ufJN, Lhcm1iJs", "learners": "none"})
        bridge.emit(logging.LogRecord("x", logging.INFO, "f", 1, event, None, None))
    assert path.read_text().endswith("[INF] meta: voters are now n2, Lhcm1iJs, learners none\n")


def test_an_event_is_one_document_of_json(tmp_path: Path) -> None:
    found = [json.loads(line) for line in events(tmp_path / "log", "json")]
    assert [(row.pop("level"), bool(row.pop("time")), row.pop("pid")) for row in found] == [
        ("info", True, getpid())
    ] * 3
    assert found == [
        {"event": "replica_behind", "msg": BEHIND, "group": "S-1", "entries": 402, "node": "n2", "account": "A",
         "stream": "ORDERS"},
        {"event": "stream_deleted", "msg": "stream A > S: deleted by user 'x\" by\\nfoo' from ::1", "account": "A",
         "stream": "S", "user": 'x" by\nfoo', "host": "::1"},
        {"msg": "two\nlines"},
    ]  # fmt: skip


def test_an_event_is_one_line_of_logfmt(tmp_path: Path) -> None:
    found = [line.partition(" level=")[2] for line in events(tmp_path / "log", "logfmt")]
    head = f"info pid={getpid()}"
    assert found == [
        f'{head} event=replica_behind msg="{BEHIND}" group=S-1 entries=402 node=n2 account=A stream=ORDERS',
        (
            f'{head} event=stream_deleted msg="stream A > S: deleted by user \'x\\" by\\\\nfoo\' from ::1"'
            ' account=A stream=S user="x\\" by\\nfoo" host=::1'
        ),
        f'{head} msg="two\\nlines"',
    ]


def test_lines_beyond_the_limit_of_their_kind_are_counted_and_told(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    with closing(open_logger(Options(log_file=str(path), logtime=False, debug=True))) as logger:
        bridge = LogBridge(logger, ManualClock())
        logging.basicConfig(handlers=[bridge], level=logging.DEBUG, force=True)
        for number in range(DISK_SLOW.burst + 7):
            DISK_SLOW.log(seconds=number, expected_s=1)
            logging.getLogger("x").debug("debug lines have no limit")
        for number in range(BURST + 3):
            logging.getLogger("x").warning("other lines have one: %d", number)
        bridge.tell_left_out()
        logging.basicConfig(handlers=[], force=True)
    lines = [line.partition("] [")[2] for line in path.read_text().splitlines()]
    assert sum("slow disk" in line for line in lines) == DISK_SLOW.burst
    assert sum("debug lines" in line for line in lines) == DISK_SLOW.burst + 7
    assert sum("other lines" in line for line in lines) == BURST + 1, "with the line that tells of them"
    assert lines[-2:] == [
        f"WRN] {count} lines were left out of the log since the last one of their kind: {kind}"
        for count, kind in ((7, "disk_slow"), (3, "x: other lines have one: %d"))
    ]
    assert bridge.events["disk_slow"] == DISK_SLOW.burst + 7


def test_what_a_client_names_moves_no_terminal(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    with closing(open_logger(Options(log_file=str(path), logtime=False))) as logger:
        logger.error("SID \x1b[31mFAKE\x9b2J\x7f\ta")
    assert path.read_text().partition("] ")[2] == "[ERR] SID \\x1b[31mFAKE\\x9b2J\\x7f\ta\n"
