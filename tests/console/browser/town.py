"""The console with people and calls in it, on a database of its own: `python tests/console/browser/town.py PORT`.

The environment names an empty database and a store. It migrates, fills and serves until it is ended.
"""

import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT), str(ROOT / "platform")]
os.environ["DJANGO_SETTINGS_MODULE"] = "gateway.settings"

import django  # noqa: E402 - the path and the settings must be named first
import uvicorn  # noqa: E402

django.setup()

from django.core.asgi import get_asgi_application  # noqa: E402
from django.core.management import call_command  # noqa: E402

from tests.console.cast import PASSWORD, RNG, Cast, make_cast  # noqa: E402

LONG = "an-organization-with-its-own-fine-tuned-model-of-a-name-that-does-not-fit-anywhere-" * 2
HOSTILE = '<b onmouseover="alert(1)">&amp;</b>'


def fill(cast: Cast) -> None:
    """A day of calls: usual ones, every status, and texts that test a page's patience."""
    now = datetime.now(UTC)
    statuses = ["ok"] * 12 + ["upstream_error", "refused", "client_gone", "client_error", "interrupted"]
    each = []
    for n in range(130):
        status = statuses[n % len(statuses)]
        ok = status in ("ok", "client_gone")
        each.append(
            {
                "created_at": now - timedelta(seconds=30 + 600 * n),
                "key": ("ci", "laptop", "manager")[n % 3],
                "model": ("kimi-k2", "deepseek-v4", "qwen3-max")[n % 3 if n % 5 else 0],
                "status": status,
                "error_kind": "" if ok else "upstream_timeout",
                "http_status": 200 if ok else 504,
                "amount_nano": 8_670_000 if ok else 0,
                "ttft_ms": 300.0 + RNG.random() * 1500 if ok else None,
                "ttfb_ms": 250.0 if ok else None,
                "total_ms": 1800.0 + RNG.random() * 4000,
            }
        )
    each.append({"created_at": now, "model": LONG[:200], "task_id": LONG[:200], "client": HOSTILE})
    cast.calls(each)


def main(port: int) -> None:
    call_command("migrate", verbosity=0)
    fill(make_cast(PASSWORD))
    uvicorn.run(get_asgi_application(), host="127.0.0.1", port=port, log_level="warning")


if __name__ == "__main__":
    main(int(sys.argv[1]))
