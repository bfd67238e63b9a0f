"""The second engine: unmodified PySyncObj behind a guard that keeps the rules which the library does not.

`engine.py` is the only module of the project that imports the library. Selected with `raft_engine: pysyncobj`.
"""
