"""The JetStream API: requests on `$JS.API.>`, one JSON answer each.

`dispatch` is the list of what is served, `gateway` takes captured requests and publishes answers, and there is one file
per noun with the handlers. Handlers parse, ask the cluster and shape the answer; they decide nothing.
"""
