import pytest

from relay.upstreams.endpoint import Endpoint, Proxy


def test_it_works():
    endpoint = Endpoint.parse("https://open.bigmodel.cn/api/paas/v4")
    assert (endpoint.scheme, endpoint.host, endpoint.port) == ("https", "open.bigmodel.cn", 443)
    assert endpoint.is_tls
    assert endpoint.authority == b"open.bigmodel.cn"
    assert endpoint.target("/chat/completions") == "/api/paas/v4/chat/completions"
    assert str(endpoint) == "https://open.bigmodel.cn/api/paas/v4"


READ = {
    "http://a.example": ("a.example", 80, b"a.example", "/x"),
    "http://a.example/": ("a.example", 80, b"a.example", "/x"),
    "http://a.example:80/v1/": ("a.example", 80, b"a.example", "/v1/x"),
    "http://a.example:443": ("a.example", 443, b"a.example:443", "/x"),
    "https://a.example:8443/v1//": ("a.example", 8443, b"a.example:8443", "/v1/x"),
    "HTTPS://A.Example./V1": ("a.example", 443, b"a.example", "/V1/x"),
    "http://127.0.0.1:9100/v1": ("127.0.0.1", 9100, b"127.0.0.1:9100", "/v1/x"),
    "http://[::1]:9100/v1": ("::1", 9100, b"[::1]:9100", "/v1/x"),
    "https://[2001:DB8:0:0::1]/v1": ("2001:db8::1", 443, b"[2001:db8::1]", "/v1/x"),
    "http://my_service:80": ("my_service", 80, b"my_service", "/x"),
    "https://例え.jp/v1": ("xn--r8jz45g.jp", 443, b"xn--r8jz45g.jp", "/v1/x"),
    "https://a.example/a%20b/$metadata": ("a.example", 443, b"a.example", "/a%20b/$metadata/x"),
}


@pytest.mark.parametrize("url", READ)
def test_a_base_url_is_taken_apart(url):
    endpoint = Endpoint.parse(url)
    assert (endpoint.host, endpoint.port, endpoint.authority, endpoint.target("/x")) == READ[url]


REFUSED = {
    "": "must not be empty",
    "a.example": "no host",
    "//a.example": "must start with http",
    "ftp://a.example": "must start with http",
    "file:///etc/passwd": "no host",
    "https://": "no host",
    "https:///v1": "no host",
    "https://:443/v1": "no host",
    "https://user:pw@a.example": "user or password",
    "https://user@a.example": "user or password",
    "https://@a.example": "user or password",
    "https://a.example/v1#x": "fragment",
    "https://a.example/v1#": "fragment",
    "https://a.example/v1?x=1": "query",
    "https://a.example/v1?": "query",
    "https://a.example:0": "port",
    "https://a.example:65536": "port",
    "https://a.example:x": "port",
    "https://a.example:-1": "port",
    "https://a.exa mple": "spaces",
    " https://a.example": "spaces",
    "https://a.example ": "spaces",
    "https://a.example/v 1": "spaces",
    "https://a.example/\r\nx: y": "spaces",
    "https://a.exa\tmple": "spaces",
    "https://a.example/\x00": "spaces",
    "https://a.example\\@b.example": "backslashes",
    "https://a..example": "legal name",
    "https://-a.example": "legal name",
    "https://a.example%2f@b.example": "user or password",
    "https://a%00.example": "legal name",
    "https://" + "a" * 64 + ".example": "legal name",
    "https://[::1": "cannot be read",
    "https://[zz]": "cannot be read",
    "https://[fe80::1%eth0]": "IPv6",
    "https://a.example/é": "percent-encoded",
    "https://a.example/%zz": "percent-encoded",
    "https://a.example/<x>": "percent-encoded",
}


@pytest.mark.parametrize("url", REFUSED)
def test_what_cannot_be_meant_is_refused_with_a_sentence(url):
    with pytest.raises(ValueError, match=r"^The .*\.$") as caught:
        Endpoint.parse(url)
    assert REFUSED[url] in str(caught.value)
    assert "pw" not in str(caught.value)


def test_endpoints_that_lead_the_same_way_share_a_key():
    one, other = Endpoint.parse("https://a.example/v1"), Endpoint.parse("https://A.example:443/v2")
    assert one != other
    assert one.key == other.key
    assert len({one, other, Endpoint.parse("https://a.example/v1/")}) == 2


@pytest.mark.parametrize(
    "options",
    [
        {"allow_private": True},
        {"proxy": "http://p.example:3128"},
        {"proxy": "http://u:p@p.example:3128"},
        {"proxy": "http://u:q@p.example:3128"},
        {"unix_path": "/run/x.sock"},
    ],
)
def test_endpoints_that_lead_another_way_have_another_key(options):
    others = [{}, {"proxy": "socks5://p.example"}, {"unix_path": "/run/y.sock"}]
    key = Endpoint.parse("https://a.example", **options).key
    assert all(Endpoint.parse("https://a.example", **other).key != key for other in others)


def test_a_unix_socket_is_a_way_of_its_own():
    endpoint = Endpoint.parse("http://console", unix_path="/run/console.sock")
    assert endpoint.unix_path == "/run/console.sock"
    assert endpoint.authority == b"console"
    for options in ({"unix_path": ""}, {"unix_path": "/x", "proxy": "http://p"}, {"unix_path": "/x\x00"}):
        with pytest.raises(ValueError, match="unix socket"):
            Endpoint.parse("http://console", **options)


def test_the_root_of_an_endpoint_has_a_target():
    assert Endpoint.parse("http://a.example").target("") == "/"
    assert Endpoint.parse("http://a.example/v1/").target("") == "/v1"


PROXIES = {
    "http://p.example": Proxy("http", "p.example", 8080),
    "http://p.example:3128/": Proxy("http", "p.example", 3128),
    "socks5://10.0.0.1": Proxy("socks5", "10.0.0.1", 1080),
    "socks5h://u%40x:p%3Aq@[::1]:9": Proxy("socks5h", "::1", 9, "u@x", "p:q"),
}


@pytest.mark.parametrize("url", PROXIES)
def test_a_proxy_is_taken_apart(url):
    assert Proxy.parse(url) == PROXIES[url]
    assert Endpoint.parse("https://a.example", proxy=url).proxy == PROXIES[url]


def test_a_proxys_credential_is_in_no_representation():
    endpoint = Endpoint.parse("https://a.example", proxy="http://ann:s3cret@p.example")
    assert "s3cret" not in repr(endpoint) + str(endpoint)
    assert "ann" not in repr(endpoint) + str(endpoint)


@pytest.mark.parametrize(
    "url",
    [
        "https://u:s3cret@p.example",
        "p.example:3128",
        "socks4://p.example",
        "http://u:s3cret@p.example/path",
        "http://u:s3cret@p.example?x",
        "http://u:s3cret@p.example:99999",
        "http://u:s3cret%0d%0ax@p.example",
        "http://a%3Ab:s3cret@p.example",
        "http://u:s3cret" + "x" * 255 + "@p.example",
        "http://u:s3cret@p..example",
        "http://p.exa mple",
    ],
)
def test_a_proxy_that_cannot_be_meant_is_refused_without_its_credential(url):
    with pytest.raises(ValueError, match=r"^The .*\.$") as caught:
        Endpoint.parse("https://a.example", proxy=url)
    assert "s3cret" not in str(caught.value)
