"""Messages that are due later: when a schedule or a delayed message is due, and what it produces then (ADR-51).

`cron` and `scheduling` are pure; `scheduler` is the leader's timer. A schedule is state of the stream like any message:
what it produced is proposed with its removal in one entry.
"""
