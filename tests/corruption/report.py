"""The table of a sweep: kinds of files, damages, and how often each verdict was given."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from tests.corruption.damages import Damage
from tests.corruption.verdicts import Outcome, Verdict

SHOWN = 3  # violations of a kind of file, a damage and a verdict that are written out


def table(outcomes: Sequence[Outcome]) -> str:
    """One row for each setup and kind of file, one column for each damage, as Markdown; violations are in capitals."""
    damaged = [outcome for outcome in outcomes if outcome.file]
    columns = ["setup", "file", *(damage.value for damage in Damage)]
    rows = dict.fromkeys((outcome.setup, outcome.case.kind) for outcome in damaged)
    lines = [columns, ["---"] * len(columns)]
    for setup, kind in sorted(rows):
        found = [outcome for outcome in damaged if (outcome.setup, outcome.case.kind) == (setup, kind)]
        cells = [_cell(outcome for outcome in found if outcome.case.damage is damage) for damage in Damage]
        lines.append([setup, f"`{kind}`", *cells])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(outcomes: Iterable[Outcome]) -> str:
    counts = Counter(outcome.verdict for outcome in outcomes)
    worst_first = sorted(counts, key=lambda verdict: -verdict.rank)
    return ", ".join(f"{counts[verdict]} {_word(verdict)}" for verdict in worst_first) or "-"


def _word(verdict: Verdict) -> str:
    return verdict.value.upper() if verdict.is_violation else verdict.value


def violations(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """What must never be: what was done, what followed, and the command that does it again."""
    seen: Counter[tuple[str, str, Damage, Verdict]] = Counter()
    for outcome in sorted(outcomes, key=lambda outcome: -outcome.verdict.rank):
        key = (outcome.setup, outcome.case.kind, outcome.case.damage, outcome.verdict)
        seen[key] += outcome.verdict.is_violation
        if outcome.verdict.is_violation and seen[key] <= SHOWN:
            yield f"{outcome.verdict.value.upper()}: {outcome.setup}, {outcome.file}: {outcome.what}"
            yield f"    {outcome.finding.detail}"
            yield f"    {outcome.command}"


def summary(outcomes: Sequence[Outcome]) -> str:
    """One line with the figures."""
    damaged = [outcome for outcome in outcomes if outcome.file]
    counts = Counter(outcome.verdict for outcome in damaged)
    figures = ", ".join(f"{counts[verdict]} {_word(verdict)}" for verdict in Verdict if counts[verdict])
    kinds = len({(outcome.setup, outcome.case.kind) for outcome in damaged})
    return f"{len(damaged)} damages of {kinds} kinds of files: {figures or 'none'}"
