# Typed face of _liveness.pyx; the words are there.

from array import array

from jetraft.store._index import Index

def blocks(index: Index) -> list[tuple[int, int, int]]: ...
def live_frames(index: Index, block: int) -> tuple[array[int], array[int], array[int], int]: ...
