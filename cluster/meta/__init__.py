"""The meta group: which streams exist, on which nodes their replicas live, and under which identity.

`table` holds, `frontend` validates and proposes, `machine` applies, `backend` makes this node's replicas match the
table, `placement` chooses nodes, `members` founds the group on empty stores, `health` says whether a node is current.
Consumers are not here: they live in their stream's own group.
"""
