"""Each real server answers in its own protocol."""

import socket
import struct
from urllib.parse import parse_qs, urlsplit


def the_answer_of(url, default_port, question):
    """Ask once; read until the server has said a whole message or hung up."""
    parts = urlsplit(url)
    address = (parts.hostname, parts.port or default_port)
    with socket.create_connection(address, timeout=60) as connection:
        connection.sendall(question)
        return connection.recv(4096)


def test_postgres_takes_a_connection(postgres_url):
    parts = urlsplit(postgres_url)
    names = f"user\0{parts.username}\0database\0{parts.path[1:]}\0\0".encode()
    startup = struct.pack("!II", len(names) + 8, 3 << 16) + names

    answer = the_answer_of(postgres_url, 5432, startup)

    assert b"R" == answer[:1]  # it asks for a password, or lets us in


def test_redis_answers_a_ping(redis_url):
    answer = the_answer_of(redis_url, 6379, b"PING\r\n")

    assert answer in {b"+PONG\r\n", b"-NOAUTH Authentication required.\r\n"}


def test_rabbitmq_opens_the_handshake(rabbitmq_url):
    answer = the_answer_of(rabbitmq_url, 5672, b"AMQP\x00\x00\x09\x01")
    frame, channel, _size, kind, method = struct.unpack("!BHIHH", answer[:11])

    assert (1, 0, 10, 10) == (frame, channel, kind, method)  # Connection.Start


def test_what_plays_sqs_answers_in_http(sqs_url):
    [endpoint] = parse_qs(urlsplit(sqs_url).query)["endpoint"]
    asked = b"GET /moto-api/ HTTP/1.0\r\n\r\n"

    assert the_answer_of(endpoint, 80, asked).startswith(b"HTTP/1.")
