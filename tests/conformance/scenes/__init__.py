"""All scenes, in the order in which they run."""

from tests.conformance.scenes import (
    advisories,
    backup,
    bad_input,
    clients,
    consumers,
    core,
    direct,
    kv,
    publish,
    pull,
    push,
    streams,
    ttl,
)
from tests.conformance.steps import Scene

SCENES: tuple[Scene, ...] = (
    *core.SCENES,
    *streams.SCENES,
    *publish.SCENES,
    *consumers.SCENES,
    *pull.SCENES,
    *push.SCENES,
    *direct.SCENES,
    *kv.SCENES,
    *ttl.SCENES,
    *backup.SCENES,
    *advisories.SCENES,
    *clients.SCENES,
    *bad_input.SCENES,
)
