"""What may be said of a store that was damaged: a few things that are right, and the violations."""

import enum
from collections.abc import Iterable

import attrs

from tests.corruption.damages import Case


class Verdict(enum.Enum):
    """From best to worst; everything from `NO_ADVICE` on is a violation."""

    SAME = "same"
    REPAIRED = "repaired, and said so"
    LOST_LISTED = "lost and listed"
    UNAVAILABLE = "unavailable, with reason and advice"
    NO_ADVICE = "unavailable, no word what to do"
    NO_REASON = "unavailable, no reason"
    CONSUMER_WENT_BACK = "consumer went back silently"
    VOTE_FORGOTTEN = "term or vote went back silently"
    CAME_BACK = "removed messages came back silently"
    TRACEBACK = "traceback"
    SPLIT_META = "another meta group"
    NOT_BACK = "not available with a sound majority"
    LOST_BESIDE_COPY = "listed as lost, although a member has it"
    SILENT_LOSS = "silent loss"
    EMPTY_STORE = "ready with an empty store"
    SEQUENCE_REUSED = "sequence given out twice"
    WRONG_BYTES = "wrong bytes"

    @property
    def rank(self) -> int:
        """How bad it is."""
        return list(Verdict).index(self)

    @property
    def is_violation(self) -> bool:
        """Whether this must never be."""
        return self.rank >= Verdict.NO_ADVICE.rank


@attrs.frozen(kw_only=True)
class Finding:
    """A verdict and what it rests on."""

    verdict: Verdict
    detail: str = ""

    def when(self, moment: str) -> "Finding":
        """The same, with the moment at which it was found."""
        return attrs.evolve(self, detail=f"{moment}: {self.detail}" if self.detail else "")


@attrs.frozen(kw_only=True)
class Outcome:
    """What became of one case."""

    setup: str
    case: Case
    file: str
    what: str
    finding: Finding

    @property
    def verdict(self) -> Verdict:
        """The verdict alone."""
        return self.finding.verdict

    @property
    def command(self) -> str:
        """The command line that does it again."""
        words = f"--setup {self.setup} --only '{self.case.kind}' --damage {self.case.damage.value}"
        return f"python -m tests.corruption {words} --seed {self.case.seed} --once"


def worst(findings: Iterable[Finding]) -> Finding:
    """The worst of some; SAME when there are none."""
    return max(findings, key=lambda finding: finding.verdict.rank, default=Finding(verdict=Verdict.SAME))
