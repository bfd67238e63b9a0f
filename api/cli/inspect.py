"""`jetraft inspect DIR [--json]` and `jetraft verify DIR`: print the findings of store/inspection/inspect.py.

`--key-env NAME` names the environment variable with the key of an encrypted store. The key itself is no argument,
because other users can see those.

Exit status: 0 when the store was read (`verify`: and is sound), 1 when `verify` found damage, 2 when DIR is no store.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from jetraft.api.cli.progress_line import progress_line, shown_bytes
from jetraft.store.inspection.inspect import BlockView, GroupView, NotAStoreError, StoreView, block_bytes, inspect

COMMANDS = ("inspect", "verify")
USAGE = "usage: jetraft inspect DIR [--json] [--key-env NAME]\n       jetraft verify DIR [--key-env NAME]\n"
HELP = f"""{USAGE}
Read a store directory, or the directory of one group in it. Nothing is changed.

    inspect          print the groups with their terms, checkpoints, blocks and damage
    verify           read every byte and print the damage only
    --json           print everything that is known, as JSON
    --key-env NAME   the environment variable with the key of an encrypted store, to read its entries too

Exit status: 0 when the store was read (verify: and is sound), 1 when verify found damage, 2 when DIR is not a store.
"""
KEY_ENV = "--key-env"
NO_STORE = 2


def main(command: str, arguments: Sequence[str]) -> int:
    """Run one of COMMANDS; returns the exit status."""
    try:
        arguments, key = _take_key(arguments)
    except LookupError as error:
        sys.stderr.write(f"jetraft: {error}\n{USAGE}")
        return NO_STORE
    places = [argument for argument in arguments if not argument.startswith("-")]
    flags = set(arguments) - set(places)
    if flags & {"-h", "--help"}:
        sys.stdout.write(HELP)
        return 0
    if len(places) != 1 or flags - ({"--json"} if command == "inspect" else set()):
        sys.stderr.write(USAGE)
        return NO_STORE
    try:
        with progress_line(f"reading {places[0]}", block_bytes(Path(places[0])), shown_bytes) as seen:
            view = inspect(Path(places[0]), key, seen)
    except (NotAStoreError, OSError) as error:
        sys.stderr.write(f"jetraft: {error}\n")
        return NO_STORE
    if command == "verify":
        return _verify(view)
    if flags:
        sys.stdout.write(view.to_json().decode() + "\n")
    else:
        sys.stdout.write("\n".join(_lines(view)) + "\n")
    return 0


def _take_key(arguments: Sequence[str]) -> tuple[list[str], bytes | None]:
    """Return the arguments without `--key-env NAME`, and the key. Raises LookupError when NAME is not set."""
    rest = list(arguments)
    if KEY_ENV not in rest:
        return rest, None
    at = rest.index(KEY_ENV)
    name = next(iter(rest[at + 1 : at + 2]), "")
    key = os.environ.get(name, "")
    if not key:
        raise LookupError(
            f"{KEY_ENV}: the environment variable {name} is not set or empty"
            if name
            else f"{KEY_ENV}: the name of an environment variable is missing"
        )
    return rest[:at] + rest[at + 2 :], key.encode()


def _verify(view: StoreView) -> int:
    for line in view.all_damage:
        sys.stdout.write(f"damaged: {line}\n")
    blocks = [block for group in view.groups for block in group.blocks]
    frames = sum(sum(block.frames.values()) for block in blocks)
    verdict = f"{len(view.all_damage)} damaged" if view.all_damage else "sound"
    sys.stdout.write(f"{view.path}: {len(view.groups)} groups, {len(blocks)} blocks, {frames} frames: {verdict}\n")
    return 1 if view.all_damage else 0


def _lines(view: StoreView) -> list[str]:
    lines = [view.path]
    if view.identity:
        lines.append("  " + ", ".join(f"{key} {value}" for key, value in view.identity.items()))
    lines += [f"  damaged: {what}" for what in view.damage]
    for group in view.groups:
        lines += _group_lines(group)
    return lines


def _group_lines(group: GroupView) -> list[str]:
    lines = [
        "",
        f"group {group.group_id}  incarnation {group.incarnation}  node {group.node_id}  {group.generation}",
        (
            f"  entries {group.first_index}..{group.last_index}  term {group.last_term}  last sequence {group.last_seq}"
            f"  floor {group.floor_index}"
        ),
    ]
    if group.hard_state is not None:
        lines.append(f"  term {group.hard_state.term}, vote {group.hard_state.vote or '-'}")
    lines += [
        f"  checkpoint {item.name}: " + (item.damage or f"term {item.term}, {item.state_bytes} bytes of state")
        for item in group.checkpoints
    ]
    if group.dropped:
        lines.append("  dropped: " + ", ".join(f"{first}..{last}" for first, last in group.dropped))
    lines += [_block_line(block) for block in group.blocks]
    lines += [f"  damaged: {what}" for what in group.damage]
    lines += [f"  note: {what}" for what in group.notes]
    return lines


def _block_line(block: BlockView) -> str:
    kinds = ", ".join(f"{count} {kind}" for kind, count in block.frames.items()) or "empty"
    return (
        f"  {block.name}: entries {block.first_index}..{block.last_index}, "
        f"terms {block.first_term}..{block.last_term}, last sequence {block.last_seq}, "
        f"{block.used_bytes} of {block.file_bytes} bytes, {kinds}"
    )
