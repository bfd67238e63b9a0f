from jetraft.cluster.consumers.effects import ConsumerEffects, Now
from jetraft.cluster.consumers.pull import PullConsumer

def plain_step(core: PullConsumer, now: Now) -> ConsumerEffects | None: ...
