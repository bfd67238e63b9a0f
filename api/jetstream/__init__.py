"""The JetStream API: requests on `$JS.API.>`, one JSON answer each.

`dispatch` lists the operations, `gateway` takes captured requests and publishes the answers, `node` puts the parts of
JetStream together. The handlers have one file per kind of object; they parse a request, call the cluster and format the
answer. They decide nothing.
"""
