"""The system account: requests about servers, accounts and users, and events of connections and servers.

Each node answers for itself, with the documents of api/monitor. Nothing here is made without a request for it.
"""
