"""Pure. Who pays in which ending: the one table, used by the finish station and shown in the documentation.

| ending | pays for |
|---|---|
| ok | everything that was used |
| client gone after the first content | what was counted until then |
| client gone before it | the input, and only if the upstream reported it |
| upstream error after the first content | what was delivered |
| upstream error before it | nothing |
| refused after the first content (the answer outgrew its hold and a limit) | what was delivered |
| interrupted, refused, client error | nothing |
"""

from collections.abc import Callable

from msgspec.structs import replace

from relay.protocols.usage import Usage

__all__ = ["charged_usage"]

_NOTHING = Usage(source="")
_PAYS_FOR_DELIVERED = frozenset({"client_gone", "upstream_error", "refused"})


def charged_usage(
    status: str, *, committed: bool, counted: Usage | None, estimate: Callable[[], Usage]
) -> tuple[Usage, bool]:
    """The usage that the record keeps, and whether it is charged.

    `counted` is what the upstream reported (None: nothing), `estimate` makes what we count ourselves for what was sent
    and delivered. `committed`: the first content has gone to the client.
    """
    if status == "ok":
        return counted or estimate(), True
    if committed and status in _PAYS_FOR_DELIVERED:
        return (replace(counted, source="partial") if counted else estimate()), True
    if status == "client_gone" and counted is not None:
        return replace(counted, output=0, reasoning=0, source="partial"), True
    return counted or _NOTHING, False
