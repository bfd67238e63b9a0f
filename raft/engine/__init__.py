"""The consensus of one group as a state machine: messages and time in, messages and entries out.

Pure: nothing here awaits, opens a socket or reads a clock. A message that promises something (a vote, an acceptance)
leaves only after the log says that what it promises is durable. `port` is what the shell sees of a member, `messages`
what members say, `ready` what a member wants done. `member` is what all members have, whatever engine decides;
`decider` is what an engine decides, and `core` the engine of this project. Sources: the Raft dissertation (Ongaro,
2014), etcd-io/raft.
"""
