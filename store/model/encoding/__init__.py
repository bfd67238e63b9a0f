"""JSON as Go writes and reads it: fields of records, and how bodies become these.

No field of a particular record is here; each record names its own (`fields.wire`).
"""
