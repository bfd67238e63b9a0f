"""Work beside the traffic: scrubbing, comparing replicas, compaction, reopening logs, balancing leaders.

Each task is slow on purpose, has a bound on what it reads a second, and can be interrupted at any point.
"""
