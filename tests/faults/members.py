"""Faults of membership: replicas that are added and removed, nodes that are lost for ever or have lost their memory."""

import shutil

from tests.faults.netns import both_ways
from tests.faults.stage import Stage


def scale(stage: Stage) -> None:
    """The stream's replicas go from 5 to 3, 1, 3 and back to 5."""
    for replicas in (3, 1, 3, 5):
        stage.begin()
        stage.update(replicas)
        stage.hold()
        stage.end()


def amnesia(stage: Stage) -> None:
    """A member comes back without what it had acknowledged, and only it and one that was cut off can elect.

    While B is cut off, L and A commit. A loses its memory (in a file stream, its disk) and returns; then L is cut off
    and B is heard again. A vote of A for B would undo what L and A have acknowledged (rule 30).
    """
    leader = stage.leader()
    forgetful, behind = stage.random.sample([node for node in stage.nodes if node is not leader], 2)
    network = stage.nodes.network
    stage.begin()
    network.cut(both_ways([behind.place], stage.nodes.places))
    stage.hold()
    forgetful.running.kill()
    if stage.storage == "file":
        shutil.rmtree(forgetful.directory / "store")
    forgetful.start()
    forgetful.running.wait_for_line("Server is ready")
    network.cut(both_ways([leader.place], stage.nodes.places))
    network.heal(both_ways([behind.place], [forgetful.place]))
    stage.hold()
    network.heal()


def peer_remove(stage: Stage) -> None:
    """Any member, also the leader, has to give its replica up; the node without one gets it."""
    victim = stage.random.choice(stage.members())
    stage.begin(victim, leader=stage.leader())
    stage.watch()
    stage.remove_member(victim)
    stage.await_members(without=victim)


def replace(stage: Stage) -> None:
    """A member, also the leader, is lost for ever; the spare node takes its place, and its name comes back empty."""
    victim = stage.random.choice(stage.members())
    stage.begin(victim, leader=stage.leader())
    victim.running.kill()
    shutil.rmtree(victim.directory / "store")
    stage.hold()
    stage.remove_member(victim)
    stage.await_members(without=victim)
    victim.start()
    victim.running.wait_for_line("Server is ready")
