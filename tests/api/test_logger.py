"""The log file: rotated at its limit, opened again, and lines that stay whole."""

import logging
from contextlib import closing
from pathlib import Path

from jetraft.api.config.options import Options
from jetraft.api.logger import LogBridge, open_logger


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
            LogBridge(logger).emit(logging.LogRecord("x", level, "f", 1, "two\nlines", None, None))
    assert [line.partition("] ")[2] for line in path.read_text().splitlines()] == [
        "[INF] two\\nlines",
        "[WRN] two\\nlines",
        "[ERR] two\\nlines",
    ]


def test_what_a_client_names_moves_no_terminal(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    with closing(open_logger(Options(log_file=str(path), logtime=False))) as logger:
        logger.error("SID \x1b[31mFAKE\x9b2J\x7f\ta")
    assert path.read_text().partition("] ")[2] == "[ERR] SID \\x1b[31mFAKE\\x9b2J\\x7f\ta\n"
