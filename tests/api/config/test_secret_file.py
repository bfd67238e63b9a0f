"""The secret of a cluster in a file: any character, one secret in each line, and no error that shows one."""

from pathlib import Path

import pytest

from jetraft.api.config.build import build_options
from jetraft.api.config.file import load_settings
from jetraft.api.config.flags import parse_flags
from jetraft.api.config.settings import OptionsError
from jetraft.api.options.options import ClusterOptions

ODD = "a/#?, b@:%41 $x\"'ü"


def cluster_of(path: Path, *more: str) -> ClusterOptions:
    words = ["--cluster", "nats://127.0.0.1:6222", "--cluster_secret_file", str(path), *more]
    cluster = build_options(parse_flags(words)).cluster
    assert cluster is not None
    return cluster


@pytest.mark.parametrize(
    ("content", "first", "old"),
    [
        ("s", "s", ()),
        (f"{ODD}\n", ODD, ()),
        ("new\r\n\n  old  \n", "new", ("old",)),
    ],
)
def test_the_first_line_is_proven_and_all_are_accepted(
    tmp_path: Path, content: str, first: str, old: tuple[str, ...]
) -> None:
    path = tmp_path / "secret"
    path.write_text(content, encoding="utf-8", newline="")
    cluster = cluster_of(path)
    assert (cluster.secret, cluster.old_secrets) == (first, old)
    assert ODD not in repr(cluster)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "there is no secret in it"),
        (b"\n \n", "there is no secret in it"),
        (b"hidden\xff", "it is not text in UTF-8"),
        (b"hidden\n" * 5, "a secret is a line"),
        (b"hidden" * 1000, "a secret is a line"),
    ],
)
def test_a_file_without_a_secret_is_refused_in_one_line_that_shows_none(
    tmp_path: Path, content: bytes, words: str
) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(OptionsError, match=words) as caught:
        cluster_of(path)
    assert "hidden" not in str(caught.value)


def test_a_missing_file_and_a_second_secret_are_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionsError, match="No such file"):
        cluster_of(tmp_path / "none")
    path = tmp_path / "file"
    path.write_text("s")
    with pytest.raises(OptionsError, match="secret_file beside another secret"):
        cluster_of(path, "--cluster", "nats://u:p@127.0.0.1:6222")


def test_the_key_of_the_configuration_means_the_same(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s\n")
    path = tmp_path / "n.conf"
    path.write_text(f'cluster {{ port: 6222, secret_file: "{tmp_path / "secret"}" }}\n')
    cluster = build_options(load_settings(path)).cluster
    assert cluster is not None
    assert cluster.secret == "s"
