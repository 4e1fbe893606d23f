"""The connection to the limit store: on a real server, and on a scripted one for what that seldom does."""

import asyncio
import hashlib
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import redis

from relay.admission.scripts import PERMIT_SCRIPTS, Script
from relay.admission.store import Store
from relay.admission.wire import FutureSlot, StoreUnavailable
from tests.relay.admission.certificate import make_certificate
from tests.relay.admission.scripted import ScriptedServer
from tests.relay.admission.valkey_server import ValkeyServer

_TEXT = "#!lua\nreturn ARGV"
ECHO = Script(_TEXT, hashlib.sha1(_TEXT.encode()).hexdigest())


@asynccontextmanager
async def opened(url: str, **options: object) -> AsyncIterator[Store]:
    patient = {"timeout_s": 5.0, "connect_s": 5.0}  # on a busy machine too
    store = Store(url, **(patient | options))
    await store.open()
    yield store
    await store.close()


async def test_it_works(server: ValkeyServer) -> None:
    async with opened(server.url) as store:
        assert store.connected
        assert await store.call("SET", "greeting", b"\xff\r\n") == b"OK"
        assert await store.call("GET", "greeting") == b"\xff\r\n"
        assert await store.call("GET", "nothing") is None
        assert await store.call("INCRBY", "number", 5) == 5


async def test_answers_find_their_callers(store: Store) -> None:
    answers = await asyncio.gather(*(store.call("ECHO", n) for n in range(500)))
    assert answers == [str(n).encode() for n in range(500)]


async def test_a_unix_socket_a_database_and_a_user_are_followed(
    server: ValkeyServer, client: redis.Redis
) -> None:
    client.execute_command("ACL", "SETUSER", "ann", "on", ">p@ss/word", "~*", "+@all")
    async with opened(f"unix://ann:p%40ss%2Fword@{server.socket_path}?db=3") as store:
        await store.call("SET", "where", "third")
        assert await store.call("ACL", "WHOAMI") == b"ann"
    with redis.Redis.from_url(server.url.removesuffix("0") + "3") as third:
        assert third.get("where") == b"third"


async def test_tls_is_spoken_and_the_certificate_checked(server: ValkeyServer, tmp_path: Path) -> None:
    certificate = make_certificate(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate.cert_path, certificate.key_path)

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_unix_connection(server.socket_path)
        async with asyncio.TaskGroup() as group:
            group.create_task(copy(reader, inner_writer))
            group.create_task(copy(inner_reader, writer))

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            writer.write(data)
        writer.close()

    front = await asyncio.start_server(forward, "127.0.0.1", 0, ssl=context)
    url = f"rediss://:{server.password}@127.0.0.1:{front.sockets[0].getsockname()[1]}/0"
    async with front:
        async with opened(f"{url}?ssl_ca_certs={certificate.cert_path}", scripts=PERMIT_SCRIPTS) as store:
            assert await store.call("PING") == b"PONG"
        async with opened(url) as store:
            assert not store.connected
            assert "certificate verify failed" in store.trouble


async def test_a_wrong_password_is_told(server: ValkeyServer) -> None:
    async with opened(server.url.replace(server.password, "wrong")) as store:
        assert not store.connected
        assert "WRONGPASS" in store.trouble
        with pytest.raises(StoreUnavailable, match="WRONGPASS"):
            await store.call("PING")


async def test_an_error_reply_is_unavailability(store: Store) -> None:
    with pytest.raises(StoreUnavailable, match="wrong number of arguments"):
        await store.call("GET")
    assert await store.call("PING") == b"PONG"


async def test_a_script_is_loaded_when_it_is_missing(server: ValkeyServer, client: redis.Redis) -> None:
    async with opened(server.url) as store:
        client.script_flush()
        answers = await asyncio.gather(*(store.run(ECHO, ["k"], [n]) for n in range(20)))
        assert answers == [[str(n).encode()] for n in range(20)]
        assert client.script_exists(ECHO.sha) == [True]


async def test_a_turn_is_one_write() -> None:
    async with ScriptedServer() as scripted, opened(scripted.url) as store:
        scripted.received.clear()
        await asyncio.gather(*(store.call("ECHO", n) for n in range(50)))
        assert [chunk.count(b"ECHO") for chunk in scripted.received] == [50]


async def test_composers_share_the_write_of_their_turn() -> None:
    async with ScriptedServer() as scripted, opened(scripted.url) as store:
        scripted.received.clear()
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        store.compose_later(lambda: store.send(("ECHO", "composed"), FutureSlot(future)))
        await asyncio.gather(store.call("ECHO", "direct"), future)
        assert [chunk.count(b"ECHO") for chunk in scripted.received] == [2]


async def test_silence_ends_at_the_deadline_and_a_late_answer_goes_to_nobody() -> None:
    async with ScriptedServer() as scripted, opened(scripted.url, timeout_s=0.2) as store:
        scripted.is_silent = True
        loop = asyncio.get_running_loop()
        began = loop.time()
        with pytest.raises(StoreUnavailable, match="within"):
            await store.call("ECHO", "late")
        assert 0.19 < loop.time() - began < 3
        scripted.speak()
        assert await store.call("ECHO", "next") == b"next"


async def test_later_commands_keep_their_own_deadline() -> None:
    async with ScriptedServer() as scripted, opened(scripted.url, timeout_s=0.06) as store:
        scripted.is_silent = True
        loop = asyncio.get_running_loop()
        first = asyncio.ensure_future(store.call("ECHO", 1))
        await asyncio.sleep(0.03)
        began = loop.time()
        with pytest.raises(StoreUnavailable):
            await store.call("ECHO", 2)
        assert 0.055 < loop.time() - began < 3
        with pytest.raises(StoreUnavailable):
            await first


async def test_a_command_after_a_silence_has_its_own_deadline_too() -> None:
    async with ScriptedServer() as scripted, opened(scripted.url, timeout_s=0.03, stall_s=60.0) as store:
        scripted.is_silent = True
        for _ in range(3):
            async with asyncio.timeout(5):
                with pytest.raises(StoreUnavailable, match="within"):
                    await store.call("ECHO", 1)


async def test_a_connection_that_stays_silent_is_given_up() -> None:
    async with ScriptedServer() as scripted, opened(scripted.url, timeout_s=0.2, stall_s=0.05) as store:
        scripted.is_silent = True
        with pytest.raises(StoreUnavailable):
            await store.call("ECHO", 1)
        await scripted.wait_for_connection(2)
        scripted.speak()
        async with asyncio.timeout(5):
            await store.wait_connected()
        assert scripted.commands.count([b"ECHO", b"1"]) == 1  # never sent again
        assert await store.call("ECHO", 2) == b"2"


async def test_a_broken_connection_fails_what_was_sent_and_sends_it_never_again() -> None:
    async with ScriptedServer() as scripted, opened(scripted.url, timeout_s=5.0) as store:
        scripted.is_silent = True
        call = asyncio.ensure_future(store.call("ECHO", "lost"))
        await scripted.wait_for_command([b"ECHO", b"lost"])
        scripted.is_silent = False
        scripted.hang_up()
        with pytest.raises(StoreUnavailable, match="lost"):
            await call
        # Waits for the new connection, since it was not sent yet.
        assert await store.call("ECHO", "kept") == b"kept"
        assert scripted.commands.count([b"ECHO", b"lost"]) == 1
        assert scripted.commands.count([b"ECHO", b"kept"]) == 1


async def test_a_command_that_waited_too_long_for_a_connection_is_never_sent() -> None:
    async with ScriptedServer() as scripted, opened(scripted.url, timeout_s=0.2, connect_s=5.0) as store:
        scripted.is_silent = True  # takes the next connection, but does not let it in yet
        scripted.hang_up()
        await scripted.wait_for_connection(2)
        with pytest.raises(StoreUnavailable, match="within"):
            await store.call("ECHO", "too late")
        scripted.speak()
        async with asyncio.timeout(5):
            await store.wait_connected()
        assert await store.call("ECHO", "in time") == b"in time"
        assert [b"ECHO", b"too late"] not in scripted.commands


async def test_nobody_there_is_told_at_once_and_found_out_when_it_comes() -> None:
    async with ScriptedServer() as scripted:
        url = scripted.url
    async with opened(url, timeout_s=5.0) as store:
        assert not store.connected
        with pytest.raises(StoreUnavailable, match="not reachable"):
            await store.call("PING")
        async with ScriptedServer(scripted.port), asyncio.timeout(5):
            await store.wait_connected()
            assert await store.call("ECHO", 1) == b"1"


async def test_a_store_that_was_not_opened_or_is_closed_is_unavailable(server: ValkeyServer) -> None:
    store = Store(server.url)
    with pytest.raises(StoreUnavailable, match="not opened"):
        await store.call("PING")
    await store.open()
    await store.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        await store.call("PING")


async def test_closing_waits_for_what_was_sent(server: ValkeyServer) -> None:
    store = Store(server.url)
    await store.open()
    calls = [asyncio.ensure_future(store.call("ECHO", n)) for n in range(10)]
    await asyncio.sleep(0)
    await store.close()
    assert [call.result() for call in calls] == [str(n).encode() for n in range(10)]


async def test_too_many_open_commands_are_refused() -> None:
    async with ScriptedServer() as scripted, opened(scripted.url, timeout_s=0.05, max_open=3) as store:
        scripted.is_silent = True
        outcomes = await asyncio.gather(*(store.call("ECHO", n) for n in range(5)), return_exceptions=True)
        assert ["too many" in str(outcome) for outcome in outcomes] == [False, False, False, True, True]


@pytest.mark.parametrize(
    ("answer", "trouble"),
    [
        (b"-LOADING the dataset\r\n", "LOADING"),
        (b"-ERR unknown command 'SCRIPT'\r\n", "unknown command"),
        (b"$2\r\nhi\r\n", "does not load scripts"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "not its protocol"),
    ],
)
async def test_a_server_that_cannot_run_our_scripts_is_no_store(answer: bytes, trouble: str) -> None:
    async with ScriptedServer() as scripted:
        scripted.answers[b"SCRIPT"] = answer
        async with opened(scripted.url, scripts=PERMIT_SCRIPTS) as store:
            assert not store.connected
            assert trouble in store.trouble


async def test_a_cache_that_may_drop_holds_is_no_store(own_server: ValkeyServer) -> None:
    with redis.Redis.from_url(own_server.url) as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
    async with opened(own_server.url, scripts=PERMIT_SCRIPTS) as store:
        assert not store.connected
        assert "noeviction" in store.trouble


async def test_a_site_that_hides_its_memory_settings_is_served() -> None:
    async with ScriptedServer() as scripted:
        scripted.answers[b"INFO"] = b"-NOPERM no permission\r\n"
        async with opened(scripted.url) as store:
            assert store.connected


async def test_a_server_that_takes_no_greeting_is_given_up_in_time() -> None:
    async with ScriptedServer() as scripted:
        scripted.is_silent = True
        async with opened(scripted.url, connect_s=0.05) as store:
            assert not store.connected
            assert store.trouble == "TimeoutError"


@pytest.mark.parametrize("answer", [b"-READONLY replica\r\n", b"+ok\r\n+unasked\r\n", b"nonsense\r\n"])
async def test_a_server_that_lost_its_mind_gets_a_new_connection(answer: bytes) -> None:
    async with ScriptedServer() as scripted, opened(scripted.url) as store:
        scripted.answers[b"GET"] = answer
        await asyncio.wait([asyncio.ensure_future(store.call("GET", "x"))])
        await scripted.wait_for_connection(2)
        async with asyncio.timeout(5):
            await store.wait_connected()
        assert await store.call("ECHO", 1) == b"1"


async def test_answers_are_read_at_every_split() -> None:
    async with ScriptedServer() as scripted, opened(scripted.url) as store:
        whole = b"*3\r\n:1\r\n$4\r\na\r\nb\r\n*-1\r\n"
        for at in range(1, len(whole)):
            scripted.split_at = at
            scripted.answers[b"GET"] = whole
            assert await store.call("GET", "x") == [1, b"a\r\nb", None]


async def test_a_caller_that_leaves_leaves_nothing_behind(server: ValkeyServer) -> None:
    troubles: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: troubles.append(context))
    async with opened(server.url) as store:
        calls = [asyncio.ensure_future(store.call("ECHO", n)) for n in range(100)]
        await asyncio.sleep(0)
        for call in calls[::2]:
            call.cancel()
        await asyncio.wait(calls)
        assert [call.result() for call in calls[1::2]] == [str(n).encode() for n in range(1, 100, 2)]
    assert troubles == []
