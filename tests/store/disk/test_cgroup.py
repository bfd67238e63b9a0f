"""The limit of a process is the smallest of its control group and of those around it, in either version."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from jetraft.store.disk.cgroup import memory_groups, memory_limit_bytes

MIB = 1 << 20
PHYSICAL = 1024 * MIB
V2 = "30 23 0:28 / /sys/fs/cgroup rw shared:1 - cgroup2 cgroup2 rw\n"
V1 = (
    "30 23 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
    "31 23 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
)
IN_CONTAINER_V1 = "31 23 0:29 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
NO_LIMIT_V1 = str(2**63 - 4096)


def tree(root: Path, groups: str, mounts: str, files: Mapping[str, object]) -> Path:
    """A file system with these groups of the process, mounts, and files below sys/fs/cgroup."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(groups)
    (root / "proc/self/mountinfo").write_text(mounts)
    for name, content in files.items():
        path = root / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{content}\n")
    return root


@pytest.mark.parametrize(
    ("groups", "mounts", "files", "expected_mib"),
    [
        ("0::/\n", V2, {"memory.max": 256 * MIB}, 256),
        ("0::/\n", V2, {"memory.max": "max"}, None),
        ("0::/a/b\n", V2, {"a/b/memory.max": 300 * MIB, "a/memory.max": 200 * MIB}, 200),
        ("0::/a/b\n", V2, {"a/b/memory.max": 100 * MIB, "a/memory.max": "max"}, 100),
        ("0::/gone\n", V2, {"memory.max": 64 * MIB}, 64),
        ("4:memory:/docker/abc\n", IN_CONTAINER_V1, {"memory/memory.limit_in_bytes": 256 * MIB}, 256),
        ("4:memory:/elsewhere\n", IN_CONTAINER_V1, {"memory/memory.limit_in_bytes": 256 * MIB}, 256),
        (
            "1:cpu:/\n4:memory,hugetlb:/a/b\n0::/\n",
            V1,
            {"memory/a/memory.limit_in_bytes": 128 * MIB, "memory/a/b/memory.limit_in_bytes": NO_LIMIT_V1},
            128,
        ),
        ("4:memory:/\n", V1, {"memory/memory.limit_in_bytes": NO_LIMIT_V1}, None),
        ("0::/\n", V2, {"memory.max": 2 * PHYSICAL}, None),
        ("", "", {}, None),
        ("nonsense\n", "nonsense - x\n", {}, None),
    ],
)
def test_the_smallest_limit_counts(
    tmp_path: Path, groups: str, mounts: str, files: Mapping[str, object], expected_mib: int | None
) -> None:
    expected = None if expected_mib is None else expected_mib * MIB
    root = tree(tmp_path, groups, mounts, files)
    assert memory_limit_bytes(PHYSICAL, root) == expected


def test_pages_of_files_are_not_in_use(tmp_path: Path) -> None:
    files = {
        "a/memory.max": 160 * MIB,
        "a/memory.current": 150 * MIB,
        "a/memory.stat": f"anon 1\ninactive_file {90 * MIB}\nactive_file {10 * MIB}",
        "memory.max": 320 * MIB,
        "memory.current": 10 * MIB,
    }
    groups = memory_groups(tree(tmp_path, "0::/a\n", V2, files))
    assert [(group.limit_bytes // MIB, group.free_bytes() // MIB) for group in groups] == [(160, 110), (320, 310)]
