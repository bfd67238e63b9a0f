from collections.abc import Iterable

from jetraft.store.stream._index import Index

class Search:
    is_over: bool
    spent: int
    def step(self, visits: int) -> bool: ...
    def close(self) -> None: ...

class LastSearch(Search):
    found: int
    def __init__(self, index: Index, filters: Iterable[bytes]) -> None: ...

class LastOfEachSearch(Search):
    def __init__(self, index: Index, filters: Iterable[bytes], up_to_seq: int, count_max: int) -> None: ...
    def found(self) -> list[int]: ...

class NextSearch(Search):
    found: int
    def __init__(self, index: Index, filters: Iterable[bytes], from_seq: int) -> None: ...
