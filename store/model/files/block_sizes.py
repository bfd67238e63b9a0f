"""Sizes of the blocks of a log in bytes; the reserve of free space depends on them too."""

from typing import Final

BLOCK_BYTES_MIN: Final = 64 << 10  # when the disk has little space
BLOCK_BYTES_FIRST: Final = (
    24 << 10
)  # a thousand small streams reserve 24 MB; a large one rolls once more than with 64 KiB
BLOCK_BYTES_MAX: Final = 32 << 20  # a trim frees space in these steps; a new block costs three fsyncs
