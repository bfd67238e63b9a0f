"""Parts of the composition root: which plane a server has, how it ends.

Nothing but `server` imports them.
"""
