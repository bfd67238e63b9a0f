"""Three servers. One was down while messages were acknowledged; of the two others one is damaged after all have ended.

First the damaged one and the one that is behind are started: a majority that must not take for empty what one of them
has lost. Then the third comes back, which has everything; and at last the damaged one is asked alone, for its replica.
"""

import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from random import Random

from tests.corruption.damages import Case, inflict
from tests.corruption.floors import wait_for_floors
from tests.corruption.judge import Promise, Seen, judge, judge_end, judge_unwell, tracebacks
from tests.corruption.life import Life
from tests.corruption.look import (
    View,
    after,
    has_caught_up,
    held_by,
    is_listening,
    is_up_or_ended,
    look,
    said,
    speaks_of,
    wait,
)
from tests.corruption.places import FileTree, meta_groups
from tests.corruption.verdicts import Finding, Outcome, Verdict, worst
from tests.harness.cluster import Cluster
from tests.harness.patience import PATIENCE_S
from tests.harness.raw import RawClient
from tests.harness.server import Server

ALONE_S = 8.0  # elections take 2 s at most; a stream that waits for the third member says so long before
HELD_S = 20.0  # a replica that says it is well has at most to apply what is committed
DAMAGED, SOUND, BEHIND = range(3)  # which node is which
SIZE = 3


class ThreeServers:
    """`build` once, then `run` any number of cases, each on copies of the three stores."""

    name = "three"

    def __init__(self, directory: Path, *, is_thorough: bool = True) -> None:
        self._is_thorough = is_thorough
        self.directory = directory / self.name
        self.life = Life(replicas=SIZE)
        self._older: list[FileTree] = []  # of the node that is damaged, the newest first

    @property
    def tree(self) -> FileTree:
        """The store that is damaged, before that."""
        return FileTree(self.directory / "life" / _node_name(DAMAGED) / "store")

    def build(self) -> None:
        """Live: clean restarts and a purge; then one node is killed, the others go on, and are killed too."""
        with Cluster("jetraft", SIZE, directory=self.directory / "life") as cluster:
            with RawClient(cluster[DAMAGED].address) as client:
                self.life.begin(client)
                self.life.replace_keys(client)
            for part in range(2 if self._is_thorough else 1):
                with RawClient(cluster[DAMAGED].address) as client:
                    self.life.go_on(client)
                    if part == 0:
                        self.life.purge(client)
                for node in cluster:
                    node.stop()
                self._keep_version()
                for node in cluster:
                    node.start(wait=False)
                for node in cluster:
                    node.wait_listening()
                cluster.wait_healthy()
            with RawClient(cluster[DAMAGED].address) as client:
                self.life.begin_young(client)
                self.life.go_on(client)
            self.life.name_groups(self.tree)
            self._keep_version()
            cluster[BEHIND].kill()
            with RawClient(cluster[DAMAGED].address) as client:
                self.life.go_on(client)
            wait_for_floors(cluster[DAMAGED].store_dir)
            cluster[DAMAGED].kill()
            cluster[SOUND].kill()

    def _keep_version(self) -> None:
        target = self.directory / f"version-{len(self._older)}"
        shutil.copytree(self.tree.root, target)
        self._older.insert(0, FileTree(target))

    def run(self, case: Case) -> Outcome:
        """Damage one of the stores, start the three in turn and judge."""
        place = self.directory / "case"
        shutil.rmtree(place, ignore_errors=True)
        for number in range(SIZE):
            name = _node_name(number)
            shutil.copytree(self.directory / "life" / name / "store", place / name / "store")
        tree = FileTree(place / _node_name(DAMAGED) / "store")
        done = inflict(tree, case, self._older)
        finding = self._play(place, case, done.file) if done.file else Finding(verdict=Verdict.SAME)
        return Outcome(setup=self.name, case=case, file=done.file, what=done.what, finding=finding)

    def _play(self, place: Path, case: Case, file: str) -> Finding:
        cluster = Cluster("jetraft", SIZE, directory=place)
        groups = set().union(*(meta_groups(FileTree(node.store_dir)) for node in cluster))
        try:
            findings = self._phases(cluster, case)
            notices = [text for text in said(cluster.nodes[:1]) if speaks_of(text, file)]
            findings += [Finding(verdict=Verdict.REPAIRED, detail=notices[0])] if notices else []
        finally:
            for node in cluster:
                if node.process is not None:
                    node.kill()
        after = set().union(*(meta_groups(FileTree(node.store_dir)) for node in cluster)) - groups
        if after:
            findings.append(Finding(verdict=Verdict.SPLIT_META, detail=f"founded {sorted(after)}"))
        return worst(findings)

    def _phases(self, cluster: Cluster, case: Case) -> list[Finding]:
        damaged, sound, behind = cluster[DAMAGED], cluster[SOUND], cluster[BEHIND]
        first, second = (damaged, behind) if Random(case.seed).random() < 1 / 2 else (behind, damaged)
        for node in (first, second):
            node.start(wait=False)
        promises = self.life.promises
        for node in (damaged, behind):
            wait(partial(is_up_or_ended, node), PATIENCE_S)
        findings = []
        if damaged.running.running:
            alone = look(behind, [damaged, behind], promises, timeout_s=ALONE_S, settled_s=ALONE_S)
            served = _judge_served(promises, alone, said([damaged, behind]))
            findings += [finding.when("without the sound member") for finding in served]
            promises = [after(promise, alone[promise.stream]) for promise in promises]
        sound.start(wait=False)
        wait(partial(is_listening, sound), PATIENCE_S)
        running = [node for node in cluster if node.running.running]
        view = look(sound, running, promises, timeout_s=PATIENCE_S, settled_s=PATIENCE_S)
        findings += [_judge_back(promise, view, said(running)).when("with all") for promise in promises]
        for node in cluster:
            crash = tracebacks(node.running.lines)
            findings += [crash] if crash else []
        if not damaged.running.running:
            findings.append(judge_end(damaged.running.lines, damaged.running.wait()))
            return findings
        return findings + self._judge_replica(damaged, [sound, behind], promises)

    @staticmethod
    def _judge_replica(damaged: Server, others: Sequence[Server], promises: Sequence[Promise]) -> list[Finding]:
        """What the damaged member holds by itself, once it says that it is well and has caught up."""
        is_well = wait(partial(has_caught_up, damaged, promises), PATIENCE_S)
        notices = said([damaged])
        if not is_well:
            return [judge_unwell(damaged.name, notices)]
        for node in others:
            node.kill()
        findings = []
        with RawClient(damaged.address) as client:
            for promise in promises:
                held: dict[int, bytes] = {}
                wait(partial(_holds, client, promise, held), HELD_S)
                seen = Seen(messages=held, lost=frozenset(), next_seq=promise.last_seq + 1, floor=promise.floor)
                findings.append(judge(promise, seen, notices).when("its own replica, alone"))
        return findings


def _judge_served(promises: Sequence[Promise], view: View, notices: Sequence[str]) -> list[Finding]:
    """Verdicts on what a majority without the sound member gives out; what waits for that member is right to wait."""
    served = [promise for promise in promises if isinstance(view[promise.stream], Seen)]
    return [judge(promise, view[promise.stream], notices) for promise in served]


def _judge_back(promise: Promise, view: View, notices: Sequence[str]) -> Finding:
    """A sound member and one that is behind are a majority: the stream is served, and everything is there."""
    seen = view[promise.stream]
    finding = judge(promise, seen, notices)
    if finding.verdict is Verdict.LOST_LISTED:
        return Finding(verdict=Verdict.LOST_BESIDE_COPY, detail=finding.detail)
    if isinstance(seen, Seen) or finding.verdict is Verdict.EMPTY_STORE:
        return finding
    return Finding(verdict=Verdict.NOT_BACK, detail=finding.detail)


def _holds(client: RawClient, promise: Promise, held: dict[int, bytes]) -> bool:
    """Fill `held` with what the node has of a stream; whether that is everything."""
    held.clear()
    held.update(held_by(client, promise))
    return all(held.get(seq) == there for seq, there in promise.live.items())


def _node_name(number: int) -> str:
    """As the cluster of the harness calls its nodes."""
    return f"n{number + 1}"
