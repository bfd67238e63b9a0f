"""Documents, comments and docstrings use the words of the field, not private metaphors."""

import re
from typing import Final

from tests.packaging.test_references import read_lines

SAY_INSTEAD: Final = {
    r"anew": "again",
    r"well again": "recovered",
    r"serve like": "whose behaviour is implemented",
    r"have otherwise": "conflicting",
    r"who still waits": "name what waits",
    r"desk": "dispatcher",
    r"seat": "meta replica",
    r"stewards?": "leader duties",
    r"heirs?": "transfer candidates",
    r"burden": "node load",
    r"telling": "gossip",
    r"caretakers?": "supervisor",
    r"yielding": "leader balancing",
    r"mender": "restarter",
    r"roster": "consumer transitions",
    r"complaints?": "name the message",
    r"backlog": "write queue",
    r"had back": "fetched, repaired",
    r"brisk|briskness": "fast, latency",
    r"afresh": "again",
    r"likeness(?:es)?": "copy, candidate",
    r"by halves": "by binary search",
    r"words are there": "has the docstrings",
    r"typed face": "types",
    r"goes its way": "name what happens",
    r"in Go's words": "Go's error text",
}
IN_STORE: Final = {
    r"the own": "its own",
    r"is told": "receives, is called with",
    r"told apart": "distinguished",
    r"what it was told": "name the message",
    r"nobody|somebody|anybody|whoever": "name who",
    r"lets? go": "releases",
    r"its word": "name the message",
    r"mended|mends": "repaired",
    r"for ever": "permanently",
    r"changes? hands": "is reused",
    r"worked off": "corrected",
    r"signs? of life": "heard from",
    r"stands? in for": "replaces",
    r"to be had": "available",
    r"disown(?:s|ed)?": "invalidate",
}
IN_RAFT_AND_CLUSTER: Final = {
    r"the own": "its own, this member's",
    r"nobody|somebody|anybody|everybody|someone|whoever": "name who",
    r"mended|mends": "repaired",
    r"for ever": "permanently, indefinitely",
}
IN_API: Final = {r"nobody|whoever": "name who"}
IN_DOCUMENTS: Final = {
    r"nobody|somebody|anybody|everybody": "name who",
    r"the own": "its own",
    r"mended|mends": "repaired, fixed",
    r"for ever": "permanently, indefinitely",
    r"told apart": "distinguished",
    r"whoever": "name who",
    r"takes leave": "ends, removes",
}
QUOTED: Final = re.compile(r"`[^`]*`|\"[^\"\n]*\"")


CODE: Final = (".py", ".pyx", ".pxd", ".pyi")


def _found(words: dict[str, str], suffixes: tuple[str, ...], *, folder: str = "") -> list[str]:
    pattern = re.compile(rf"\b(?:{'|'.join(words)})\b", re.IGNORECASE)
    return [
        f"{name}:{line}: {match[0]}"
        for name, line, text in read_lines()
        if name.endswith(suffixes) and name.startswith(folder)
        for match in pattern.finditer(QUOTED.sub("", text))
    ]


def test_prose_uses_plain_words() -> None:
    found = _found(SAY_INSTEAD, (".md", ".py"))
    assert not found, "\n".join(found)


def test_documents_do() -> None:
    found = _found(IN_DOCUMENTS, (".md",))
    assert not found, "\n".join(found)


def test_raft_and_cluster_do() -> None:
    found = [*_found(IN_RAFT_AND_CLUSTER, CODE, folder="raft/"), *_found(IN_RAFT_AND_CLUSTER, CODE, folder="cluster/")]
    assert not found, "\n".join(found)


def test_the_api_does() -> None:
    found = _found(IN_API, (".py", ".pyx", ".pyi"), folder="api/")
    assert not found, "\n".join(found)


def test_the_store_does() -> None:
    found = _found(IN_STORE, CODE, folder="store/")
    assert not found, "\n".join(found)
