"""Messages that are due later: when a schedule or a delayed message is due, and what it produces then (ADR-51).

`cron` says when, `scheduling` and `delaying` what; `scheduler` is the leader's timer. A message that is produced takes
the way of any publish, and moves its schedule on when it is applied: each time that is due is made up for once.
"""
