"""Rules for the payloads of a stream (`jetraft.schema`): schemas are read here, and messages judged by them.

A schema is part of a stream's metadata, so it is replicated, updated and shown with the configuration. `rules.py` reads
the keys, `compiled.py` is the one door to the three kinds. The libraries that know them are optional, and imported when
a schema is used first. Nothing here knows of streams in operation, leaders or logs. Source: decision 117.
"""
