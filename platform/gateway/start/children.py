"""The processes of a running installation, as specs for the supervisor.

stage 0   relay (one for each core) and console      drain: they have until DRAIN_S
stage 1   worker and beat                            finish the task at hand
stage 2   practice                                   only while a practice model exists
stage 3   PostgreSQL and Valkey                      everybody above needs them until the end
"""

import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from gateway.start.probe import ask
from gateway.supervisor import ChildSpec

__all__ = ["SERVER_STAGE", "House", "child_environment", "manage"]

_WEB_STAGE, _WORK_STAGE, _PRACTICE_STAGE, SERVER_STAGE = range(4)

# On top of DRAIN_S: `gateway.serve` takes up to 15 s to close books and connections after the last call.
_DRAIN_MARGIN_S = 20.0
_WORK_STOP_S = 30.0
# A call that waits for its first token must not wait for an export.
_WORK_NICE = 5
_WORKER_THREADS = 4


def child_environment(
    environ: Mapping[str, str], given: Mapping[str, str], root: Path | None
) -> dict[str, str]:
    """Pure. What a child finds in its environment: ours, with what was decided at the start.

    ``given`` wins; a NAME_FILE beside a NAME in it is dropped, because both at once are an error.
    """
    env = {**environ, **given}
    for name in given:
        env.pop(f"{name}_FILE", None)
    if root is not None:
        paths = [str(root), str(root / "platform"), *filter(None, [environ.get("PYTHONPATH")])]
        env["PYTHONPATH"] = os.pathsep.join(paths)
    env["PYTHONUNBUFFERED"] = "1"
    env.setdefault("DJANGO_SETTINGS_MODULE", "gateway.settings")
    return env


def manage(name: str, *arguments: str, env: Mapping[str, str], root: Path | None) -> ChildSpec:
    """A management command that runs once."""
    program = [str(root / "manage.py")] if root else ["-m", "django"]
    return ChildSpec(name=name, argv=(sys.executable, *program, name, *arguments), env=env, cwd=root)


@dataclass(frozen=True, slots=True)
class House:
    """What all children share. `gate`: the descriptor at which servers wait until the database is prepared."""

    env: Mapping[str, str]
    root: Path | None
    run_dir: Path
    drain_s: float
    gate: int

    def relay(self, number: int, listener: int, ready: Callable[[], Awaitable[bool]]) -> ChildSpec:
        """One relay process; all of them accept from the same inherited socket."""
        return ChildSpec(
            name=f"relay-{number}",
            argv=self._serve("relay", "--fd", str(listener)),
            env=self.env,
            cwd=self.root,
            pass_fds=(listener, self.gate),
            stage=_WEB_STAGE,
            stop_s=self.drain_s + _DRAIN_MARGIN_S,
            ready=ready,
        )

    def console(self, uds: Path, ready: Callable[[], Awaitable[bool]]) -> ChildSpec:
        """The process of pages and control API."""
        return ChildSpec(
            name="console",
            argv=self._serve("console", "--uds", str(uds)),
            env=self.env,
            cwd=self.root,
            pass_fds=(self.gate,),
            stage=_WEB_STAGE,
            stop_s=self.drain_s + _DRAIN_MARGIN_S,
            ready=ready,
        )

    def worker(self) -> ChildSpec:
        """Celery's worker: threads, because its tasks wait for networks and the database."""
        options = ("-P", "threads", "-c", str(_WORKER_THREADS), "--without-gossip", "--without-mingle")
        return self._celery("worker", *options)

    def beat(self) -> ChildSpec:
        """Celery's clock; its file would lie in the working directory otherwise."""
        return self._celery("beat", "--schedule", str(self.run_dir / "celerybeat-schedule"))

    def practice(self, port: int) -> ChildSpec:
        """The practice provider."""

        async def ready() -> bool:
            return await ask(("127.0.0.1", port), "/v1/models", "127.0.0.1") is not None

        return ChildSpec(
            name="practice",
            argv=(sys.executable, "-m", "practice", "--port", str(port)),
            env=self.env,
            cwd=self.root,
            stage=_PRACTICE_STAGE,
            stop_s=5.0,
            ready=ready,
        )

    def _serve(self, *words: str) -> tuple[str, ...]:
        return (sys.executable, "-m", "gateway.serve", *words, "--gate", str(self.gate))

    def _celery(self, name: str, *options: str) -> ChildSpec:
        return ChildSpec(
            name=name,
            argv=(sys.executable, "-m", "celery", "-A", "gateway", name, "--loglevel", "WARNING", *options),
            env=self.env,
            cwd=self.root,
            nice=_WORK_NICE,
            stage=_WORK_STAGE,
            stop_s=_WORK_STOP_S,
        )
