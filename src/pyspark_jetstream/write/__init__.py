"""Writing: rows of a DataFrame become messages of a stream, at least once or exactly once (decision 90).

`layout.py`, `options.py` and `target.py` check columns, options and stream on the driver. `rows.py` and `frames.py`
make protocol bytes from Arrow columns; `window.py` publishes at least once. `fence.py`, pure, is the protocol of
exactly once, and `atomic.py` carries it out. `sinks.py` has the classes that Spark calls.
"""
