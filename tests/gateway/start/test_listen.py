import socket

import pytest

from gateway.env import EnvError
from gateway.start.listen import host_header, listen, local_address, url_host


def test_it_works():
    with listen("127.0.0.1", 0) as listener:
        host, port = local_address(listener)
        with socket.create_connection((host, port), timeout=5):
            assert host == "127.0.0.1"


def test_a_port_in_use_is_refused_in_one_line():
    with listen("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(EnvError, match=f"^PORT {port} is in use on 127.0.0.1: .*$"):
            listen("127.0.0.1", port)


def test_a_port_that_is_given_back_in_time_is_taken():
    first = listen("127.0.0.1", 0)
    port = first.getsockname()[1]
    with pytest.raises(EnvError):
        listen("127.0.0.1", port, wait_s=0.2)
    first.close()
    listen("127.0.0.1", port, wait_s=0.2).close()


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid"])
def test_an_address_of_another_machine_is_refused(host):
    with pytest.raises(EnvError, match=f"HOST {host} is no address of this machine"):
        listen(host, 0)


def test_every_address_means_loopback_from_here():
    with listen("0.0.0.0", 0) as listener:
        assert local_address(listener)[0] == "127.0.0.1"
    assert host_header("0.0.0.0", 8000) == "127.0.0.1:8000"
    assert host_header("::", 8000) == "[::1]:8000"
    assert host_header("relay.local", 80) == "relay.local:80"
    assert url_host("::1") == "[::1]"


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 here")
def test_the_address_of_all_takes_both_versions():
    with listen("::", 0) as listener:
        port = listener.getsockname()[1]
        assert local_address(listener)[0] == "::1"
        with socket.create_connection(("127.0.0.1", port), timeout=5):
            pass
