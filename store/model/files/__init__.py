"""Facts about files of a store that more than one layer names: modes, sizes, ranges, what a copy consists of.

No file is opened here.
"""
