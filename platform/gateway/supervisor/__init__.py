"""Keeps processes running, and ends them in order. It knows nothing of what they do.

- `lifeline`: no child outlives a supervisor that was killed;
- `child`: what a child is (`ChildSpec`) and one running instance of it (`Child`);
- `logs`: the file each child writes to, bounded in size;
- `keeper`: `Supervisor`, which starts, restarts and stops children.
"""

from gateway.supervisor.child import Child, ChildSpec, Identity, StartError
from gateway.supervisor.keeper import RunFailed, Supervisor
from gateway.supervisor.lifeline import Lifeline, make_lifeline

__all__ = [
    "Child",
    "ChildSpec",
    "Identity",
    "Lifeline",
    "RunFailed",
    "StartError",
    "Supervisor",
    "make_lifeline",
]
