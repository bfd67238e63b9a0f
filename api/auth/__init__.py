"""Who a client is and what it may do; accounts, users and permissions come here.

Nothing here decides what a request does: it answers "may this one?" from values that it was given when it was made.
"""
