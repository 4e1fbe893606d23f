"""The Lua scripts of the limit store, and the keys they work on.

Everything that decides about money or limits runs inside Valkey, in one script call that takes all or
nothing. The scripts lie in the folder `lua`; each is put together from parts, because the sandbox has no
`require`:

    money.lua       exact amounts beyond 2^53
    holds.lua       what is read and written, and the layout of the keys
    window.lua      calls in any 60 seconds
    limits.lua      what refuses a call
    book.lua        permit and settle; the form of the arguments
    upkeep.lua      extend, renew, announce
    run.lua         many of these operations in one call
    sweep.lua       expired holds
    initialise.lua  what was spent, told to a store that has lost its counters

All keys of an organization share the hash tag `{org:<id>}`, so a script stays on one node of a cluster. The
script text starts with `#!lua`: the server then refuses up front to run it on a replica or out of memory, not
in the middle. The texts are read once, at import.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha1
from pathlib import Path

__all__ = [
    "BOOK",
    "INITIALISE",
    "PERMIT_SCRIPTS",
    "REMEMBER_MS",
    "SWEEP",
    "Script",
    "hold_keys",
    "initialise_arguments",
    "parse_use",
    "use_key",
    "window_key",
]

_FOLDER = Path(__file__).parent / "lua"
# How long the store remembers a hold that counts no more, for a settling that comes late. A journal that was left
# behind is taken over within minutes; two days bridge a machine that is away over a weekend's nights, and bound what
# is remembered.
REMEMBER_MS = 2 * 24 * 3600 * 1000


@dataclass(frozen=True, slots=True)
class Script:
    """A script's text, and the name the server knows it by: the SHA-1 of the text."""

    text: str = field(repr=False)
    sha: str


def _put_together(*parts: str) -> Script:
    text = "#!lua\n" + "\n".join((_FOLDER / f"{part}.lua").read_text(encoding="utf-8") for part in parts)
    return Script(text, sha1(text.encode(), usedforsecurity=False).hexdigest())


BOOK = _put_together("money", "holds", "window", "limits", "book", "upkeep", "run")
SWEEP = _put_together("money", "holds", "sweep")
INITIALISE = _put_together("money", "holds", "initialise")
# What the connection of a relay process loads when it opens.
PERMIT_SCRIPTS = (BOOK, INITIALISE)


def use_key(organization_id: int) -> str:
    """Pure. The hash with spent, held and open calls of every level.

    >>> use_key(7)
    '{org:7}:use'
    """
    return f"{{org:{organization_id}}}:use"


def hold_keys(organization_id: int) -> tuple[str, str, str]:
    """Pure. The keys that every script on holds takes first: use, holds, due.

    >>> hold_keys(7)
    ('{org:7}:use', '{org:7}:holds', '{org:7}:due')
    """
    tag = f"{{org:{organization_id}}}"
    return f"{tag}:use", f"{tag}:holds", f"{tag}:due"


def window_key(organization_id: int, level: str) -> str:
    """Pure. The call window of a level.

    >>> window_key(7, "k12")
    '{org:7}:rpm:k12'
    """
    return f"{{org:{organization_id}}}:rpm:{level}"


def initialise_arguments(totals: Mapping[str, int], counted: Collection[str] = ()) -> list[str | int]:
    """Pure. What lua/initialise.lua is given: what each level has spent, and the calls that are part of it.

    >>> initialise_arguments({"o": 7}, ["a"])[2:]
    [1, 'a', 'o', 7]
    """
    arguments: list[str | int] = ["", REMEMBER_MS, len(counted), *counted]
    for level, spent_nano in totals.items():
        arguments += (level, spent_nano)
    return arguments


def parse_use(values: Sequence[bytes | None]) -> list[tuple[int, int, int]] | None:
    """Pure. Spent and held (nano-units) and open calls of each level; None if the counters are unknown.

    Takes the values of the field "epoch" and of one field per level. Raises ValueError for any other.

    >>> parse_use([b"1", b"5 2 1", None])
    [(5, 2, 1), (0, 0, 0)]
    >>> parse_use([None, None]) is None
    True
    """
    if values[0] is None:
        return None
    uses: list[tuple[int, int, int]] = []
    for value in values[1:]:
        spent, held, opened = (value or b"0 0 0").split()
        uses.append((int(spent), int(held), int(opened)))
    return uses
