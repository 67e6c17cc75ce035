"""Which URLs are taken by their form, and which addresses may be connected to."""

import ipaddress
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backburner.cli.serving import in_development
from backburner.domain.webhooks.address import (
    Reach,
    check_callback,
    check_url,
    is_public,
    plain,
)
from backburner.settings import Settings

USUAL = Reach()


@pytest.mark.parametrize(
    "address",
    [
        "8.8.8.8",
        "1.1.1.1",
        "93.184.216.34",
        "2606:4700:4700::1111",
        "2a00:1450:4001:80b::200e",
        "::ffff:8.8.8.8",
    ],
)
def test_a_public_address_is_public(address):
    assert is_public(address)


@pytest.mark.parametrize(
    "address",
    [
        # this machine, nobody, everybody
        *("127.0.0.1", "127.255.255.254", "::1", "0.0.0.0", "::"),  # noqa: S104
        *("255.255.255.255", "224.0.0.1", "ff02::1", "240.0.0.1", "0.1.2.3"),
        # inside
        *("10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.0.1", "fc00::1"),
        *("fd00:ec2::254", "169.254.169.254", "fe80::1", "fe80::1%eth0", "fec0::1"),
        # carriers, clouds, trials, documents
        *("100.64.0.1", "100.127.255.255", "100.100.100.200", "168.63.129.16"),
        *("192.0.0.192", "192.0.0.9", "192.88.99.1", "198.18.0.1", "198.19.255.255"),
        *("192.0.2.1", "198.51.100.1", "203.0.113.1", "2001:db8::1", "3fff::1"),
        # IPv4 within IPv6
        *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "::127.0.0.1", "::ffff:0:127.0.0.1"),
        *("64:ff9b::7f00:1", "64:ff9b::808:808", "64:ff9b:1::a00:1"),
        *("2002:7f00:1::", "2002:808:808::1", "2001::1", "2001:0:4136:e378::1"),
        # not given out
        *("100::1", "4000::1", "5f00::1", "2606:4700:4700::1111%eth0"),
    ],
)
def test_an_address_that_is_not_public_is_not(address):
    assert not is_public(address)


@given(st.ip_addresses(v=4))
def test_an_ipv4_address_within_ipv6_is_judged_as_what_it_is(address):
    mapped = f"::ffff:{address}"

    assert is_public(str(address)) == is_public(mapped)
    assert str(address) == plain(mapped)


@given(st.ip_addresses())
def test_nothing_that_python_calls_private_is_public(address):
    assert not (is_public(str(address)) and address.is_private)


@given(st.ip_addresses(v=6))
def test_ipv6_is_public_only_where_it_is_given_out(address):
    is_given_out = address in ipaddress.ip_network("2000::/3")

    assert is_given_out or address.ipv4_mapped or not is_public(str(address))


@pytest.mark.parametrize(
    ("url", "normal"),
    [
        ("https://example.com", "https://example.com/"),
        ("HTTPS://Example.COM:443/Hook", "https://example.com/Hook"),
        ("https://example.com./a?b=c&d#e", "https://example.com/a?b=c&d"),
        ("https://example.com:8443/a%20b", "https://example.com:8443/a%20b"),
        ("https://example.com:80/", "https://example.com:80/"),
        ("https://bücher.example/x", "https://xn--bcher-kva.example/x"),
        ("https://straße.example/", "https://xn--strae-oqa.example/"),
        ("https://8.8.8.8/", "https://8.8.8.8/"),
        ("https://[2606:4700::0:1111]:8443/", "https://[2606:4700::1111]:8443/"),
        ("https://my_service/", "https://my_service/"),
    ],
)
def test_a_url_is_written_one_way(url, normal):
    assert normal == str(check_url(url, USUAL))
    assert normal == str(check_url(normal, USUAL))


@pytest.mark.parametrize(
    "host",
    ["2130706433", "0177.0.0.1", "0x7f000001", "127.1", "10.0.0.1", "[::1]"],
)
def test_the_form_does_not_tell_what_an_address_is(host):
    assert check_url(f"https://{host}/", USUAL)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("", "https://"),
        ("example.com/x", "https://"),
        ("//example.com/x", "https://"),
        ("http://example.com/", "https://"),
        ("ftp://example.com/", "https://"),
        ("file:///etc/passwd", "https://"),
        ("gopher://example.com/", "https://"),
        ("https:///x", "host"),
        ("https:example.com", "host"),
        ("https://", "host"),
        ("https://.", "host"),
        ("https://a..b/", "host"),
        ("https://-a.example/", "host"),
        ("https://a%2eb/", "host"),
        ("https://127%2e0.0.1/", "host"),
        (f"https://{'a' * 64}.example/", "host"),
        (f"https://{'a.' * 130}example/", "host"),
        ("https://[::1/", "host"),
        ("https://[::1%25eth0]/", "host"),
        ("https://[fe80::1%eth0]/", "host"),
        ("https://[1.2.3.4]/", "host"),
        ("https://[v1.x]/", "host"),
        ("https://example.com:port/", "host"),
        ("https://example.com:65536/", "host"),
        ("https://example.com:-1/", "host"),
        ("https://１２７.0.0.1/", "host"),  # noqa: RUF001 - that is the trap
        ("https://a\u2100b.example/", "host"),
        ("https://user@example.com/", "user"),
        ("https://user:secret@example.com/", "user"),
        ("https://@example.com/", "user"),
        ("https://example.com@127.0.0.1/", "user"),
        ("https://example.com\\@127.0.0.1/", "backslashes"),
        ("https://example.com/a b", "spaces"),
        (" https://example.com/", "spaces"),
        ("https://exam\tple.com/", "control"),
        ("https://example.com/\r\nX: y", "control"),
        ("https://example.com/\x00", "control"),
        ("https://example.com/é", "%-encoded"),
        ("https://example.com/?q=é", "%-encoded"),
        ("https://example.com:22/", "port 22 is not allowed: 80, 443, 8443"),
        ("https://example.com:0/", "port 0"),
        ("https://example.com/" + "a" * 2048, "longer than 2048"),
    ],
)
def test_a_url_of_another_form_is_refused_with_what_it_lacks(url, said):
    with pytest.raises(ValueError, match=said):
        check_url(url, USUAL)


@given(st.text(max_size=60))
def test_any_text_is_taken_or_refused(text):
    for url in (text, f"https://{text}", f"https://example.com/{text}"):
        with suppress(ValueError):
            assert str(check_url(url, USUAL)).isascii()


def test_plain_http_and_other_ports_are_for_the_operator_to_allow():
    reach = Reach.read(is_plain_allowed=True, ports=(80, 8000))

    assert check_url("http://example.com:8000/", reach)
    with pytest.raises(ValueError, match="port 443"):
        check_url("https://example.com/", reach)


@pytest.mark.parametrize(
    ("allowed", "url"),
    [
        ("tasks.internal", "http://tasks.internal:9000/"),
        ("tasks.internal:9000", "http://tasks.internal:9000/"),
        ("Bücher.internal", "http://bücher.internal/"),
        ("127.0.0.1:9000", "http://127.0.0.1:9000/"),
        ("127.0.0.1", "http://127.0.0.1:9000/"),
        ("[::1]:9000", "http://[::1]:9000/"),
        ("10.0.0.0/8", "http://10.1.2.3:9000/"),
        ("10.1.2.3/8", "http://10.255.0.1:9000/"),
        ("127.0.0.0/8", "http://[::ffff:127.0.0.1]:9000/"),
        ("fd00::/8", "http://[fd00::1]:9000/"),
    ],
)
def test_what_the_operator_names_may_be_called_by_http_on_any_port(allowed, url):
    assert check_url(url, Reach.read([allowed]))
    with pytest.raises(ValueError, match="https://"):
        check_url(url, USUAL)


@pytest.mark.parametrize(
    ("allowed", "url"),
    [
        ("tasks.internal:9000", "http://tasks.internal:9001/"),
        ("tasks.internal", "http://other.internal/"),
        ("tasks.internal", "http://a.tasks.internal/"),
        ("127.0.0.1:9000", "http://localhost:9000/"),
        ("[::1]:8001", "http://[::1:8001]/"),
        ("10.0.0.0/8", "http://11.0.0.1/"),
        ("10.0.0.0/8", "http://inside.example/"),
    ],
)
def test_only_what_is_named_is_allowed(allowed, url):
    with pytest.raises(ValueError, match="https://"):
        check_url(url, Reach.read([allowed]))


def test_addresses_of_an_allowed_network_are_admitted():
    reach = Reach.read(["10.0.0.0/8", "127.0.0.2"])

    assert reach.admits("10.255.0.1")
    assert reach.admits("127.0.0.2")
    assert reach.admits("::ffff:127.0.0.2")
    assert reach.admits("8.8.8.8")
    assert not reach.admits("127.0.0.1")
    assert not reach.admits("192.168.0.1")


def test_an_allowed_name_is_vouched_for_and_its_address_is_not():
    reach = Reach.read(["tasks.internal:9000"])

    assert reach.vouches_for("tasks.internal", 9000)
    assert not reach.vouches_for("tasks.internal", 9001)
    assert not reach.vouches_for("evil.example", 9000)
    assert not reach.admits("10.0.0.1")


@pytest.mark.parametrize(
    "text",
    ["", "a b", "a/b", "10.0.0.0/33", "user@host", "host:port", "host:70000", "[::1"],
)
def test_what_cannot_be_allowed_is_said_so(text):
    with pytest.raises(ValueError, match="not a host, host:port, address or network"):
        Reach.read([text])


@pytest.mark.parametrize(
    "url",
    [
        "https://127.0.0.1/",
        "https://10.1.2.3/",
        "https://169.254.169.254/latest",
        "https://100.64.0.1/",
        "https://[::1]/",
        "https://[fd00::1]/",
        "https://[::ffff:127.0.0.1]/",
        "https://localhost/",
        "http://localhost:9000/",
        "https://a.localhost/",
    ],
)
def test_a_callback_to_a_host_inside_names_the_setting_that_allows_it(url):
    with pytest.raises(ValueError, match="BACKBURNER_WEBHOOK_ALLOW"):
        check_callback(url, USUAL)


@pytest.mark.parametrize("host", ["1.1.1.1", "[2606:4700::1111]", "example.com"])
def test_a_callback_to_a_public_host_is_taken(host):
    assert f"https://{host}/" == str(check_callback(f"https://{host}/", USUAL))


@pytest.mark.parametrize(
    "url",
    ["http://localhost:9000/", "http://127.0.0.1:9000/", "http://[::1]:9000/hook"],
)
def test_in_development_a_callback_may_go_to_this_machine(url):
    reach = in_development(Settings()).reach

    assert url == str(check_callback(url, reach))
    with pytest.raises(ValueError, match="BACKBURNER_WEBHOOK_ALLOW"):
        check_callback("http://10.0.0.1:9000/", reach)


def test_what_is_refused_names_the_setting():
    with pytest.raises(ValueError, match="BACKBURNER_WEBHOOK_HTTP"):
        check_url("http://example.com/", USUAL)
    with pytest.raises(ValueError, match="BACKBURNER_WEBHOOK_PORTS"):
        check_url("https://example.com:9000/", USUAL)
