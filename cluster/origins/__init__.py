"""Origins: what the leader of a mirror, or of a stream with sources, does to copy messages of other streams.

It reads each origin through a push consumer, over the API, like any client of the account: so an origin may be on this
node, on another, or behind an import or a leaf node, on a server of another make. Messages that arrive are proposed
into the stream's own group. Nothing here decides where messages are stored or keeps a position for longer than a term.

The position of an origin is replicated state, changed by the very entries that store its messages (a mirror's is its
last sequence). A term begins to read behind the position of its complete state, and proposes in the order in which the
origin's consumer delivers, without a gap. So whatever of the last term's proposals is in the log, each message of the
origin is stored once: a change of leader or a crash makes neither a copy nor a gap.
"""
