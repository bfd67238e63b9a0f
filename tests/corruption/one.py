"""One server whose store is damaged while it is down."""

import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from tests.corruption.damages import Case, Done, inflict
from tests.corruption.floors import wait_for_floors
from tests.corruption.judge import judge, judge_end, tracebacks
from tests.corruption.life import Life
from tests.corruption.look import is_up_or_ended, look, said, speaks_of, wait
from tests.corruption.places import FileTree, meta_groups
from tests.corruption.verdicts import Finding, Outcome, Verdict, worst
from tests.harness.patience import PATIENCE_S
from tests.harness.raw import RawClient
from tests.harness.server import Server

COMPACTED_S = 90.0  # blocks are compacted when a stream has rested for a while; this bounds a hang
ENCRYPTED = 'jetstream { cipher: aes, key: "a key of the corruption sweep" }'
NAME = "n1"


class OneServer:
    """`build` once, then `run` any number of cases, each on a copy of the store."""

    def __init__(self, directory: Path, *, is_encrypted: bool = False, is_thorough: bool = True) -> None:
        self.name = "one-encrypted" if is_encrypted else "one"
        self.directory = directory / self.name
        self.life = Life(replicas=1)
        self._config = ENCRYPTED if is_encrypted else None
        self._is_thorough = is_thorough
        self._older: list[FileTree] = []  # the newest first

    @property
    def tree(self) -> FileTree:
        """The store before any damage."""
        return FileTree(self.directory / "life" / "store")

    def build(self) -> None:
        """Live: three clean restarts, a purge, blocks that are compacted and dropped, and at last SIGKILL."""
        server = self._server(self.directory / "life")
        server.start()
        try:
            with RawClient(server.address) as client:
                self.life.begin(client)
                self.life.replace_keys(client)
            for part in range(3):
                with RawClient(server.address) as client:
                    self.life.go_on(client)
                    if part == 1:
                        self.life.purge(client)
                if part == 2 and self._is_thorough:
                    self._wait_for_compaction()
                server.stop()
                self._keep_version()
                server.start()
            with RawClient(server.address) as client:
                self.life.begin_young(client)
            for _ in range(2):
                with RawClient(server.address) as client:
                    self.life.go_on(client)
                self._keep_version()
            self.life.name_groups(self.tree)  # a stream without a message has no file
            self._older.pop(0)
            wait_for_floors(server.store_dir)
        finally:
            server.kill()

    @property
    def older(self) -> Sequence[FileTree]:
        """The store as it was at earlier times, the newest first."""
        return self._older

    def run(self, case: Case) -> Outcome:
        """Damage a copy of the store, start a server on it and judge; where anything differs, also after a restart."""
        done = Done()

        def damage(tree: FileTree) -> str:
            nonlocal done
            done = inflict(tree, case, self._older)
            return done.file

        finding = self.run_changed(damage)
        return Outcome(setup=self.name, case=case, file=done.file, what=done.what, finding=finding)

    def run_changed(self, change: Callable[[FileTree], str]) -> Finding:
        """The same of any change; it says which file it has changed, "" for none."""
        place = self.directory / "case"
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(self.tree.root, place / "store")
        tree = FileTree(place / "store")
        file = change(tree)
        if not file:
            return Finding(verdict=Verdict.SAME)
        groups = meta_groups(tree)
        finding = self._start_and_judge(place, file)
        if finding.verdict is not Verdict.SAME and not finding.verdict.is_violation:
            finding = worst([finding, self._start_and_judge(place, file)])
        if len(after := meta_groups(tree) - groups):
            finding = worst([finding, Finding(verdict=Verdict.SPLIT_META, detail=f"founded {sorted(after)}")])
        return finding

    def _start_and_judge(self, place: Path, file: str) -> Finding:
        server = self._server(place)
        server.start(wait=False)
        try:
            process = server.running
            wait(partial(is_up_or_ended, server), PATIENCE_S)
            if not process.running:
                return judge_end(process.lines, process.wait())
            view = look(server, [server], self.life.promises, timeout_s=PATIENCE_S)
            notices = said([server])
            if not process.running:
                return judge_end(process.lines, process.wait())
            findings = [judge(promise, view[promise.stream], notices) for promise in self.life.promises]
            crash = tracebacks(process.lines)
            repairs = [text for text in notices if speaks_of(text, file)]
            findings += [Finding(verdict=Verdict.REPAIRED, detail=repairs[0])] if repairs else []
            return worst([*findings, *([crash] if crash else [])])
        finally:
            server.kill()

    def _server(self, directory: Path) -> Server:
        return Server("jetraft", directory=directory, name=NAME, config=self._config)

    def _keep_version(self) -> None:
        """Keep a copy of the store as it is now: nobody writes to it."""
        target = self.directory / f"version-{len(self._older)}"
        shutil.copytree(self.tree.root, target)
        self._older.insert(0, FileTree(target))

    def _wait_for_compaction(self) -> None:
        blocks = {path: path.stat().st_size for path in self.tree.root.rglob("*.blk")}
        assert wait(partial(_is_compacted, blocks), COMPACTED_S), "no block was compacted or none was dropped"


def _is_compacted(blocks: dict[Path, int]) -> bool:
    """Whether one of them has gone, and one is less than half of what it was."""
    sizes = {path: path.stat().st_size if path.exists() else 0 for path in blocks}
    return any(not size for size in sizes.values()) and any(0 < sizes[path] < blocks[path] // 2 for path in sizes)
