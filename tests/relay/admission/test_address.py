"""Where the limit store is."""

import doctest
import ssl

import pytest

from relay.admission import address
from relay.admission.address import StoreAddress, make_tls_context, parse_store_url


def test_the_examples_hold() -> None:
    assert doctest.testmod(address).failed == 0


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://localhost", StoreAddress(host="localhost")),
        ("redis://", StoreAddress(host="localhost")),
        ("redis://db:6380/2", StoreAddress(host="db", port=6380, database=2)),
        ("redis://db?db=4", StoreAddress(host="db", database=4)),
        ("redis://:p%2Fw@db", StoreAddress(host="db", password="p/w")),
        ("redis://ann:pw@[::1]:7/0", StoreAddress(host="::1", port=7, username="ann", password="pw")),
        ("rediss://db", StoreAddress(host="db", tls={})),
        ("rediss://db/?ssl_cert_reqs=none", StoreAddress(host="db", tls={"ssl_cert_reqs": "none"})),
        ("unix:///run/v.sock", StoreAddress(path="/run/v.sock")),
        ("unix://ann:pw@/a%20b?db=3", StoreAddress(path="/a b", username="ann", password="pw", database=3)),
    ],
)
def test_a_url_is_read(url: str, expected: StoreAddress) -> None:
    assert parse_store_url(url) == expected


@pytest.mark.parametrize(
    "url",
    [
        "http://db",
        "redis://db/x",
        "redis://db:port",
        "redis://db?timeout=3",
        "redis://db?ssl_cert_reqs=none",
        "unix://host/path",
        "unix://",
    ],
)
def test_a_url_that_cannot_be_followed_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"the store.s URL|unix:"):
        parse_store_url(url)


def test_a_password_is_never_quoted() -> None:
    with pytest.raises(ValueError, match="percent escapes") as caught:
        parse_store_url("redis://:geheim/x@db:6379")
    assert "geheim" not in str(caught.value)
    assert "geheim" not in repr(parse_store_url("redis://:geheim@db"))


def test_tls_verifies_unless_told_otherwise() -> None:
    strict = make_tls_context({})
    assert (strict.verify_mode, strict.check_hostname) == (ssl.CERT_REQUIRED, True)
    anyone = make_tls_context({"ssl_cert_reqs": "none"})
    assert (anyone.verify_mode, anyone.check_hostname) == (ssl.CERT_NONE, False)
    other_name = make_tls_context({"ssl_check_hostname": "false"})
    assert (other_name.verify_mode, other_name.check_hostname) == (ssl.CERT_REQUIRED, False)


def test_a_tls_option_with_an_unknown_value_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown value"):
        make_tls_context({"ssl_cert_reqs": "optional"})


def test_a_missing_certificate_file_is_an_error() -> None:
    with pytest.raises(OSError, match="No such file"):
        make_tls_context({"ssl_certfile": "/nonexistent/cert.pem"})
