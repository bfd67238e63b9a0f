"""One module for each family of requests of the JetStream API: it reads the body, calls the cluster, answers.

A handler does not know from which node or connection a request came.
"""
