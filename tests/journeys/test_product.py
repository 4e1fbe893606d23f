"""The running product as a whole: what a call leaves behind, who sees it, its memory, what a restart keeps."""

import json
import signal
import time
import urllib.request
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest

from tests.fakes.product import Product
from tests.journeys.conftest import FOREIGN_KEY, OPERATOR_KEY, PRACTICE_KEY

RELAY_MIB = 120
CONSOLE_MIB = 200


def call(product: Product, content: str = "hi", **fields: Any) -> tuple[str, dict[str, Any]]:
    """One plain call; its id and its answer."""
    body = {"model": "practice-fast", "messages": [{"role": "user", "content": content}], **fields}
    request = urllib.request.Request(product.url + "/v1/chat/completions", json.dumps(body).encode())
    request.add_header("authorization", f"Bearer {PRACTICE_KEY}")
    request.add_header("content-type", "application/json")
    with urllib.request.urlopen(request, timeout=30) as answer:
        return answer.headers["x-call-id"], json.load(answer)


def test_the_record_of_a_call_is_there_within_a_second(product: Product) -> None:
    call_id, answer = call(product, task_id="journey-1")
    record = product.record(call_id, key=OPERATOR_KEY, within_s=1)
    assert record["id"] == call_id
    assert record["task_id"] == "journey-1"
    assert record["organization"] == "acme"
    assert record["status"] == "ok"
    assert record["input_tokens"] == answer["usage"]["prompt_tokens"]
    assert record["currency"] == "CNY"
    assert record["amount"] == "0"
    assert record["timing"]["ttft_ms"] > 0


def test_a_second_organization_sees_nothing_of_it(product: Product) -> None:
    call_id, _ = call(product)
    product.record(call_id, key=OPERATOR_KEY)
    assert product.ask(f"/api/v1/calls/{call_id}/", key=FOREIGN_KEY)[0] == 404
    status, found = product.ask("/api/v1/calls/", key=FOREIGN_KEY)
    assert status == 200
    assert found["results"] == []
    status, keys = product.ask("/v1/apikeys", key=FOREIGN_KEY)
    assert status == 200
    assert PRACTICE_KEY[:14] not in json.dumps(keys)


def test_a_second_organization_sees_nothing_in_sql_without_a_filter(product: Product) -> None:
    call_id, _ = call(product)
    product.record(call_id, key=OPERATOR_KEY)
    login = json.loads((product.var_dir / "run" / "servers.json").read_text())["database_url"]
    with psycopg.connect(login, options="-c role=relay_app") as connection:
        connection.execute("SELECT set_config('app.site', 'test', true)")
        row = connection.execute("SELECT id FROM accounts_organization WHERE name = 'stranger'").fetchone()
        assert row is not None
        connection.execute(
            "SELECT set_config('app.site', '', true), set_config('app.org', %s, true)", [str(row[0])]
        )
        for table in ("billing_usagerecord", "accounts_member"):
            assert connection.execute(f"SELECT count(*) FROM {table}".encode()).fetchone() == (0,)
        assert connection.execute("SELECT count(*) FROM accounts_key").fetchone() == (1,)
        assert connection.execute("SELECT DISTINCT name FROM accounts_organization").fetchall() == [
            ("stranger",)
        ]


def test_a_revoked_key_is_refused_within_a_second(product: Product) -> None:
    status, made = product.ask(
        "/v1/apikeys", key=FOREIGN_KEY, method="POST", body={"name": f"short-lived-{time.monotonic_ns()}"}
    )
    assert status in (200, 201), made
    secret = made.get("key") or made.get("value")
    assert product.ask("/v1/models", key=secret)[0] == 200
    assert product.ask(f"/v1/apikeys/{made['id']}", key=FOREIGN_KEY, method="DELETE")[0] == 204
    deadline = time.monotonic() + 1
    while product.ask("/v1/models", key=secret)[0] == 200:
        assert time.monotonic() < deadline
    status, refused = product.ask("/v1/models", key=secret)
    assert status == 401
    assert refused["error"]["code"] == "invalid_api_key"


def test_the_processes_stay_small(product: Product) -> None:
    call(product)
    assert product.process is not None
    sizes: dict[str, float] = {}
    for child in psutil.Process(product.process.pid).children(recursive=True):
        line = " ".join(child.cmdline())
        for kind in ("relay", "console"):
            if f"gateway.serve {kind}" in line:
                sizes[kind] = max(sizes.get(kind, 0), child.memory_info().rss / 2**20)
    assert 0 < sizes["relay"] < RELAY_MIB
    assert 0 < sizes["console"] < CONSOLE_MIB


@pytest.fixture
def own(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A product for one test, which may stop and kill it."""
    folder: Path = tmp_path_factory.mktemp("own")
    folder.chmod(0o711)
    product = Product(folder)
    yield product
    product.close()


def test_a_restart_keeps_everything_and_says_no_secret_again(own: Product) -> None:
    own.start()
    key, url = own.key, own.url
    assert key.startswith("sk-yz-")
    assert own.login
    assert own.password
    status, _ = own.ask("/v1/models")
    assert status == 200
    assert own.stop(signal.SIGTERM) == 0
    own.close()
    again = Product(own.folder)
    try:
        again.start()
        assert again.key == ""
        assert again.password == ""
        assert again.ask("/v1/models", key=key)[0] == 200
        assert url
    finally:
        again.close()
    for secret in (key, own.password):
        for log in (own.var_dir / "log").glob("*.log"):
            assert secret not in log.read_text(errors="replace")
