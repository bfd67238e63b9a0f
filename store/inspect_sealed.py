"""What an inspection can say about a group that is encrypted: with its key everything, without it that bytes are whole.

The checksum of a sealed frame covers what is on disk, so damage is found without a key. Whether a body opens, and is
what was sealed for its place, only the key tells.
"""

from collections.abc import Mapping, Sequence

import attrs

from jetraft.store._frame import parse_header
from jetraft.store.cipher import GroupCipher
from jetraft.store.format import FRAME_SEALED, KEY_NAMES, Identity
from jetraft.store.keyring import Secrets, open_copies, sound_copies, unpack
from jetraft.store.port import StoreCorrupt, StoreError


@attrs.define(eq=False)
class SealedParts:
    """The cipher of a group, if it could be had, and what is to be said about that."""

    is_encrypted: bool = False
    cipher: GroupCipher | None = None
    damage: list[str] = attrs.Factory(list)
    notes: list[str] = attrs.Factory(list)

    def check(self, name: str, data: bytes, serial: int, offsets: Sequence[int]) -> list[str]:
        """What is damaged in a block's frames at these offsets, each of which has a right checksum."""
        damage = []
        for offset in offsets:
            header = parse_header(data, offset)
            if header.flags & FRAME_SEALED and self.cipher is not None:
                try:
                    self.cipher.open_frame(serial, offset, data[offset : offset + header.length], what=name)
                except StoreCorrupt as error:
                    damage.append(str(error))
        return damage


def look(files: Mapping[str, bytes], identity: Identity, secrets: Secrets | None) -> SealedParts:
    """Try the key on the copies of the data key, which `files` has by name."""
    found = SealedParts()
    copies = [name for name in KEY_NAMES if name in files]
    if not copies:
        return found
    found.is_encrypted = True
    for name in copies:
        try:
            unpack(files[name], identity, what=name)
        except StoreError as error:
            found.damage.append(str(error))
    if secrets is None:
        found.notes.append("is encrypted: checksums are verified, what is encrypted is not (give --key-env)")
        return found
    try:
        sound = sound_copies(copies, files.__getitem__, identity, what="the data key")
        opened = open_copies(sound.values(), identity, secrets)
    except StoreError:
        return found
    if opened is None:
        found.damage.append("is encrypted with another key than the given one")
    else:
        found.cipher = GroupCipher(opened[0].kind, opened[1], identity)
    return found
