"""The settings of a relay: nginx forwards the body of a report, and nothing that tells who sent it."""

import http.client
import re
import shutil
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import trustme

from deploy.local.children import start_child
from deploy.local.ports import free_ports
from ldpstream.gateway.oblivious import MAX_CAPSULE_BYTES
from tests.conftest import give_up

ROOT = Path(__file__).parents[2]
SETTINGS = ROOT / "deploy" / "relay" / "nginx.conf"
KIND = "message/ohttp-req"
START_S = 60.0
TEMPORARY = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
TELLING = {
    "User-Agent": "a browser of 2026", "Cookie": "id=7", "Origin": "https://app.example", "X-Forwarded-For": "203.0.113.9",
    "Forwarded": "for=203.0.113.9", "X-Device": "7", "Accept-Language": "sw", "Content-Type": "message/ohttp-req; device=7",
}  # fmt: skip


class Gateway(ThreadingHTTPServer):
    """A gateway with TLS that remembers what it gets."""

    def __init__(self, port: int, ca: trustme.CA) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.seen: list[tuple[str, dict[str, str], bytes]] = []
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        ca.issue_cert("gateway.example").configure_cert(context)
        self.socket = context.wrap_socket(self.socket, server_side=True)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Gateway

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.seen.append((self.path, dict(self.headers.items()), body))
        self.send_response(200)
        self.send_header("Content-Type", "message/ohttp-res")
        self.send_header("Set-Cookie", "id=7")
        self.send_header("Content-Length", "6")
        self.end_headers()
        self.wfile.write(b"answer")

    def log_message(self, format: str, *args: object) -> None:
        """Keeps no log."""


def test_the_largest_body_is_that_of_the_gateway() -> None:
    text = SETTINGS.read_text()
    assert re.findall(r"body\w*_size (\d+);", text) == [str(MAX_CAPSULE_BYTES)] * 2
    assert "access_log off;" in text
    assert "error_log /dev/null crit;" in text


@pytest.fixture
def site(tmp_path: Path) -> Iterator[tuple[int, ssl.SSLContext, Gateway]]:
    """Runs nginx with the settings, but with ports of this machine and certificates of the test."""
    if shutil.which("nginx") is None:
        give_up("no nginx on PATH: install nginx")
    ca, (front, back) = trustme.CA(), free_ports(2)
    ca.issue_cert("relay.example").private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "relay.pem"))
    ca.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    text = SETTINGS.read_text()
    for old, new in {
        "/run/nginx.pid": f"{tmp_path}/pid",
        "gateway.example:443": f"127.0.0.1:{back}", "listen 443": f"listen 127.0.0.1:{front}",
        "/etc/nginx/relay.pem": f"{tmp_path}/relay.pem", "/etc/nginx/relay.key": f"{tmp_path}/relay.pem",
        "/etc/ssl/certs/ca-certificates.crt": f"{tmp_path}/ca.pem",
        "error_log /dev/null crit;": f"error_log {tmp_path}/log crit; daemon off;",
        "http {": "http {" + "".join(f" {name}_temp_path {tmp_path};" for name in TEMPORARY),
    }.items():  # fmt: skip
        assert old in text
        text = text.replace(old, new)
    (tmp_path / "nginx.conf").write_text(text)
    gateway, trust = Gateway(back, ca), ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
    trust.check_hostname = False  # the test asks for 127.0.0.1
    thread = threading.Thread(target=gateway.serve_forever, args=(0.05,))
    thread.start()
    command = ["nginx", "-e", str(tmp_path / "log"), "-c", str(tmp_path / "nginx.conf")]
    try:
        with start_child(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as nginx:
            try:
                yield front, trust, gateway
            finally:
                nginx.terminate()
    finally:
        gateway.shutdown()
        thread.join()
        gateway.server_close()


def ask(
    front: int, trust: ssl.SSLContext, method: str, path: str, body: bytes = b"capsule"
) -> tuple[int, dict[str, str], bytes]:
    with closing(http.client.HTTPSConnection("127.0.0.1", front, context=trust, timeout=START_S)) as connection:
        connection.request(method, path, body, TELLING)
        answer = connection.getresponse()
        return answer.status, dict(answer.headers.items()), answer.read()


def first(front: int, trust: ssl.SSLContext, path: str) -> tuple[int, dict[str, str], bytes]:
    """Asks until nginx answers."""
    end = time.monotonic() + START_S
    while True:
        try:
            return ask(front, trust, "POST", path)
        except ConnectionRefusedError:
            assert time.monotonic() < end, "nginx does not listen"
            time.sleep(0.05)


def test_nginx_forwards_the_body_and_nothing_else_of_the_device(site: tuple[int, ssl.SSLContext, Gateway]) -> None:
    front, trust, gateway = site
    status, told, body = first(front, trust, "/ldpstream?device=7")
    assert (status, told["Content-Type"], body) == (200, "message/ohttp-res", b"answer")
    assert "Set-Cookie" not in told
    ((path, headers, given),) = gateway.seen
    assert (path, given) == ("/ohttp", b"capsule")
    assert headers == {"Host": "gateway.example", "Content-Type": KIND, "Content-Length": "7"}
    for method, path in (
        ("GET", "/ldpstream"),
        ("POST", "/"),
        ("POST", "/ldpstream/x"),
        ("POST", "/.well-known/ohttp-gateway"),
    ):
        assert ask(front, trust, method, path)[0] in (403, 404)
    assert ask(front, trust, "POST", "/ldpstream", bytes(MAX_CAPSULE_BYTES + 1))[0] == 413
    assert ask(front, trust, "POST", "/ldpstream", bytes(MAX_CAPSULE_BYTES))[0] == 200
    assert [len(given) for _, _, given in gateway.seen] == [7, MAX_CAPSULE_BYTES]
    answers = [ask(front, trust, "POST", "/ldpstream")[0] for _ in range(40)]
    assert set(answers) == {200, 429}  # one address is limited to one request a second, after a burst of 20
