import asyncio
import ipaddress
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.upstreams.address import Address, Resolver, is_local_name, is_public, look_up
from relay.upstreams.faults import FaultKind, UpstreamFault

PUBLIC = [
    "1.1.1.1",
    "8.8.8.8",
    "9.255.255.255",
    "11.0.0.0",
    "100.63.255.255",
    "100.128.0.0",
    "126.255.255.255",
    "128.0.0.0",
    "168.63.129.15",
    "169.253.255.255",
    "172.15.255.255",
    "172.32.0.0",
    "192.167.255.255",
    "192.169.0.0",
    "198.17.255.255",
    "198.20.0.0",
    "223.255.255.255",
    "2606:4700:4700::1111",
    "2400:3200::1",
    "2001:4860:4860::8888",
    "::ffff:8.8.8.8",
    "64:ff9b::8.8.8.8",
]
REFUSED = [
    "0.0.0.0",
    "0.1.2.3",
    "10.0.0.1",
    "10.255.255.255",
    "100.64.0.1",
    "100.100.100.200",
    "127.0.0.1",
    "127.1.2.3",
    "168.63.129.16",
    "169.254.0.1",
    "169.254.169.254",
    "169.254.170.2",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.192",
    "192.0.2.1",
    "192.88.99.1",
    "192.168.0.1",
    "198.18.0.1",
    "198.19.255.255",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "239.255.255.255",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "::ffff:0:127.0.0.1",
    "::127.0.0.1",
    "64:ff9b::127.0.0.1",
    "64:ff9b::169.254.169.254",
    "64:ff9b:1::8.8.8.8",
    "100::1",
    "2001::1",
    "2001:10::1",
    "2001:db8::1",
    "2002:7f00:1::",
    "2002:808:808::",
    "3fff::1",
    "4000::1",
    "5f00::1",
    "fc00::1",
    "fd00:ec2::254",
    "fe80::1",
    "fe80::1%eth0",
    "fec0::1",
    "ff02::1",
    "localhost",
    "2130706433",
    "0x7f000001",
    "127.1",
    "",
]


@pytest.mark.parametrize("ip", PUBLIC)
def test_public_addresses_may_be_called(ip):
    assert is_public(ip)


@pytest.mark.parametrize("ip", REFUSED)
def test_private_and_special_addresses_may_not(ip):
    assert not is_public(ip)


@given(st.ip_addresses(v=4))
def test_an_address_inside_another_is_judged_by_itself(ip):
    verdict = is_public(str(ip))
    assert is_public(f"::ffff:{ip}") is verdict
    assert is_public(f"64:ff9b::{ip}") is verdict
    assert not is_public(f"::{ip}")


@given(st.ip_addresses())
def test_whatever_python_calls_private_is_refused(ip: ipaddress.IPv4Address | ipaddress.IPv6Address):
    if ip.is_private or ip.is_loopback or ip.is_link_local or ip.is_multicast or ip.is_unspecified:
        assert not is_public(str(ip))


@pytest.mark.parametrize(
    "host", ["localhost", "a.localhost", "x.local", "db.internal", "redis", "nas.home.arpa"]
)
def test_names_that_mean_something_near_are_known(host):
    assert is_local_name(host)


@pytest.mark.parametrize("host", ["api.openai.com", "local.example", "internal.example.com", "mylocal.cn"])
def test_other_names_are_not(host):
    assert not is_local_name(host)


class Phonebook:
    """What the system would answer, and how often it was asked."""

    def __init__(self, **names: list[str]) -> None:
        self.names = names
        self.asked: list[str] = []

    def __call__(self, host: str, port: int) -> list[Address]:
        self.asked.append(host)
        if host not in self.names:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [Address(socket.AF_INET, ip, (ip, port)) for ip in self.names[host]]


async def test_a_public_name_is_resolved():
    resolver = Resolver(Phonebook(a=["1.1.1.1", "8.8.8.8"]))
    found = await resolver.resolve("a", 443, allow_private=False)
    assert [address.sockaddr for address in found] == [("1.1.1.1", 443), ("8.8.8.8", 443)]
    resolver.close()


@pytest.mark.parametrize("ips", [["10.0.0.1"], ["1.1.1.1", "10.0.0.1"], ["127.0.0.1", "1.1.1.1"]])
async def test_one_private_address_among_others_is_enough_to_refuse(ips):
    resolver = Resolver(Phonebook(a=ips))
    with pytest.raises(UpstreamFault) as caught:
        await resolver.resolve("a", 443, allow_private=False)
    assert caught.value.kind is FaultKind.ADDRESS_REFUSED
    assert "a is 1" in caught.value.detail
    assert len(await resolver.resolve("a", 443, allow_private=True)) == len(ips)
    resolver.close()


@pytest.mark.parametrize("book", [Phonebook(), Phonebook(a=[])], ids=["unknown", "no address"])
async def test_a_name_without_an_address_fails(book):
    resolver = Resolver(book)
    with pytest.raises(UpstreamFault) as caught:
        await resolver.resolve("a", 443, allow_private=True)
    assert caught.value.kind is FaultKind.RESOLVE_FAILED
    resolver.close()


async def test_an_answer_is_remembered_for_a_while_and_a_failure_is_not():
    book = Phonebook(a=["1.1.1.1"])
    resolver = Resolver(book)
    for _ in range(3):
        await resolver.resolve("a", 443, allow_private=False)
    assert book.asked == ["a"]
    for _ in range(2):
        with pytest.raises(UpstreamFault):
            await resolver.resolve("b", 443, allow_private=False)
    assert book.asked == ["a", "b", "b"]
    resolver.close()

    forgetful = Resolver(book, remember_s=0)
    for _ in range(2):
        await forgetful.resolve("a", 443, allow_private=False)
    assert book.asked == ["a", "b", "b", "a", "a"]
    forgetful.close()


@pytest.mark.parametrize("ip", ["1.1.1.1", "2606:4700::1"])
async def test_a_written_address_is_checked_but_not_looked_up(ip):
    book = Phonebook()
    resolver = Resolver(book)
    (found,) = await resolver.resolve(ip, 443, allow_private=False)
    assert (found.ip, found.sockaddr[:2]) == (ip, (ip, 443))
    with pytest.raises(UpstreamFault, match="address_refused"):
        await resolver.resolve("::1", 443, allow_private=False)
    assert book.asked == []
    resolver.close()


async def test_an_address_that_turned_private_is_refused_when_it_is_looked_up_again():
    book = Phonebook(a=["1.1.1.1"])
    resolver = Resolver(book, remember_s=0)
    await resolver.resolve("a", 443, allow_private=False)
    book.names["a"] = ["127.0.0.1"]
    with pytest.raises(UpstreamFault, match="address_refused"):
        await resolver.resolve("a", 443, allow_private=False)
    resolver.close()


async def test_many_who_ask_at_once_ask_the_system_once_and_one_may_leave():
    book = Phonebook(a=["1.1.1.1"])
    resolver = Resolver(book)
    tasks = [asyncio.create_task(resolver.resolve("a", 443, allow_private=False)) for _ in range(50)]
    await asyncio.sleep(0)
    tasks[0].cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(results[0], asyncio.CancelledError)
    assert all(isinstance(result, list) for result in results[1:])
    assert book.asked == ["a"]
    resolver.close()


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "2130706433", "0x7f.1", "127.1"])
def test_the_system_sees_through_odd_spellings_and_the_check_comes_after(host):
    ips = [address.ip for address in look_up(host, 80)]
    assert ips
    assert not any(is_public(ip) for ip in ips)
