"""Every test of this folder that has an event loop runs on uvloop and on asyncio's own."""

import asyncio
import datetime
import ipaddress
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import uvloop
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from relay.upstreams.endpoint import Endpoint
from relay.upstreams.exchange import Body, Buffer, Exchange, Timeouts
from relay.upstreams.head import HeaderPairs, build_head
from relay.upstreams.pool import Pool
from relay.upstreams.tls import ClientTls
from tests.fakes.http_server import HttpServer

Ask = Callable[..., Awaitable[Exchange]]

# Long enough for a machine under load, short enough that a hanging test is a failing one.
SHORT = Timeouts(connect_s=5, first_token_s=5, idle_s=5, total_s=20)


def pytest_asyncio_loop_factories(config, item):
    return {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.new_event_loop}


@pytest.fixture
async def pool() -> AsyncIterator[Pool]:
    pool = Pool()
    yield pool
    await pool.close()
    assert pool.open_connections == 0


@pytest.fixture
def ask(pool: Pool) -> Ask:
    """Send one request to a scripted server and return the exchange: `await ask(server, body=b"x")`."""

    async def ask(
        server: HttpServer,
        *,
        method: str = "POST",
        path: str = "/x",
        headers: HeaderPairs = (),
        body: Buffer = b"",
        segments: Body = (),
        timeouts: Timeouts = SHORT,
        decode: bool = True,
        max_body_bytes: int | None = None,
    ) -> Exchange:
        endpoint = Endpoint.parse(server.url, allow_private=True)
        head = build_head(method, endpoint, path, headers)
        whole = segments or ([body] if body else ())
        return await pool.open(
            endpoint, head, whole, timeouts=timeouts, decode=decode, max_body_bytes=max_body_bytes
        )

    return ask


@pytest.fixture
def read_all() -> Callable[[Exchange], Awaitable[bytes]]:
    async def read_all(exchange: Exchange) -> bytes:
        body = b""
        while data := await exchange.read():
            body += data
        return body

    return read_all


@pytest.fixture
def eventually() -> Callable[[Callable[[], bool]], Awaitable[None]]:
    """Wait for something that other turns of the event loop bring about."""

    async def eventually(is_so: Callable[[], bool], *, within_s: float = 2.0) -> None:
        async with asyncio.timeout(within_s):
            while not is_so():  # noqa: ASYNC110  # what is waited for has no event to set
                await asyncio.sleep(0.001)

    return eventually


class Authority:
    """A certificate authority of the tests' own: `client` trusts it, it vouches for what `server` makes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tests")])
        self._certificate = self._sign(self._name, self._key, is_authority=True)
        self.client = ClientTls(_pem(self._certificate).decode())

    def server(
        self, *names: str, age_days: int = 0, is_self_signed: bool = False, alpn: tuple[str, ...] = ()
    ) -> ssl.SSLContext:
        """Return a server's TLS settings; its certificate is valid from `age_days` ago for ten days."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "server")])
        certificate = self._sign(subject, key, names=names, age_days=age_days, is_self_signed=is_self_signed)
        path = self._folder / f"{certificate.serial_number}.pem"
        secret = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        path.write_bytes(secret + _pem(certificate))
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(path)
        if alpn:
            context.set_alpn_protocols(list(alpn))
        return context

    def _sign(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        *,
        names: tuple[str, ...] = (),
        age_days: int = 0,
        is_authority: bool = False,
        is_self_signed: bool = False,
    ) -> x509.Certificate:
        start = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=age_days, hours=1)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(subject if is_self_signed else self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(start)
            .not_valid_after(start + datetime.timedelta(days=10))
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        )
        if names:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_san(n) for n in names]), critical=False
            )
        return builder.sign(key if is_self_signed else self._key, hashes.SHA256())


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _san(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))
