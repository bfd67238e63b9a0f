# Types of _liveness.pyx, which has the docstrings.

from array import array

from jetraft.store.stream._index import Index

def blocks(index: Index) -> list[tuple[int, int, int]]: ...
def live_frames(index: Index, block: int) -> tuple[array[int], array[int], array[int], int]: ...
