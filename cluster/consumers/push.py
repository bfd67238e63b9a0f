"""stub."""

from jetraft.cluster.consumers.core import ConsumerCore


class PushConsumer(ConsumerCore):
    """stub"""
