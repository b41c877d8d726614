"""The configurations in deploy/proxy with the real nginx and haproxy, and the addresses from which a server accepts headers about
clients."""

import base64
import contextlib
import hashlib
import http.client
import os
import pathlib
import pwd
import re
import shutil
import socket
import ssl
import subprocess
import tempfile
import urllib.parse

import harness
import pytest
from certificates import Authority, Client, ask
from harness import wait_until

NODE = "URI:spiffe://wt.test/agent/node-17"
OTHER = "URI:spiffe://wt.test/agent/node-18"
SAMPLES = harness.SOURCE / "deploy/proxy"


@pytest.fixture
def tmp_path():
    """One that another user may enter: pytest closes the folder of its own to others whenever one starts."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="wt-proxy-", dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path)


@pytest.fixture
def node(authority):
    return Client(authority, authority.issue("node-17", san=NODE))


@pytest.fixture
def other(authority):
    return Client(authority, authority.issue("node-18", san=OTHER))


@pytest.fixture
def server(start, database, authority):
    """Trusts 127.0.0.1, where the proxies are; requests of a test from 127.0.0.2 are untrusted."""
    server = start(harness.Server, database, options=(*harness.UNHURRIED, "--log-requests", "all", "--trusted-proxy",
                                                      "127.0.0.1", "--tls-client-ca", authority.certificate))
    for name, certificate in (("node-17", NODE), ("node-18", OTHER)):
        body = {"name": name, "role": "agent", "certificate": certificate}
        assert server.request("POST", "/v1/tokens", body).status == 201
    return server


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def program(name):
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin")
    if not found:
        pytest.skip(f"{name} is not installed (deploy/packages.sh names its package)")
    return found


class Proxy(harness.Program):
    """A sample, with the test's own ports and files in the place of the machine's."""

    def __init__(self, name, folder, server, authority, sample=None, more=()):
        pair, self.port = authority.server(), free_port()
        text = (SAMPLES / (sample or {"nginx": "nginx.conf", "haproxy": "haproxy.cfg"}[name])).read_text()
        changes = {"127.0.0.1:7200": f"127.0.0.1:{server.port}", "listen [::]:443 ssl http2;": "",
                   "listen 443": f"listen 127.0.0.1:{self.port}", "bind :443": f"bind 127.0.0.1:{self.port}",
                   "/etc/wavetune/server.crt": pair.certificate, "/etc/wavetune/server.key": pair.key,
                   "/etc/wavetune/server.pem": pair.both, "/etc/wavetune/clients.crt": authority.certificate, **dict(more)}
        for old, new in changes.items():
            text = text.replace(old, str(new))
        assert "/etc/" not in text.split("upstream" if name == "nginx" else "global", 1)[1], "all paths are the test's own"
        config = folder / f"{name}.conf"
        if name == "nginx":
            paths = " ".join(f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
            text = (f"daemon off; pid {folder}/nginx.pid; error_log {folder}/nginx.log warn; events {{}}\n"
                    f"http {{ access_log off; {paths}\n{text}}}\n")
        config.write_text(text)
        command = {"nginx": ["-e", folder / "nginx.log", "-p", folder, "-c", config], "haproxy": ["-db", "-f", config]}[name]
        super().__init__([*self.unprivileged(folder, pair), program(name), *command], folder, cwd=folder)
        wait_until(self.is_up, 30, f"{name} to listen")

    def unprivileged(self, folder, pair):
        """As the user of PostgreSQL where the test is root: a proxy needs nothing of root's."""
        if os.geteuid() != 0:
            return []
        user = pwd.getpwnam("postgres")
        for path in (folder, pair.certificate, pair.key, pair.both):
            os.chown(path, user.pw_uid, user.pw_gid)
        return ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]

    def is_up(self):
        assert self.process.poll() is None, f"it ended:\n{self.messages}"
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def send(self, client, text):
        """Sends bytes over TLS and returns the statuses of all answers."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=300) as plain, \
                client.context.wrap_socket(plain, server_hostname="localhost") as connection:
            connection.sendall(text)
            received = b""
            try:
                while chunk := connection.recv(65536):
                    received += chunk
            except (ConnectionResetError, ssl.SSLError):
                pass
        return [int(status) for status in re.findall(rb"HTTP/1\.[01] (\d+)", received)]


@pytest.fixture(params=["nginx", "haproxy"])
def proxy(request, tmp_path, server, authority):
    program(request.param)
    proxy = Proxy(request.param, tmp_path, server, authority)
    yield proxy
    proxy.kill()


def escaped(pair):
    return urllib.parse.quote(pair.certificate.read_text(), safe="")


def der(pair):
    return base64.b64encode(ssl.PEM_cert_to_DER_cert(pair.certificate.read_text())).decode()


def plain(server, path, headers=None, source="127.0.0.1", token=None):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=300, source_address=(source, 0))
    try:
        return ask(connection, "GET", path, token=token, headers=headers)
    finally:
        connection.close()


def test_headers_from_an_untrusted_address_are_ignored(server, node):
    for form in (escaped, der):
        headers = {"X-Client-Cert": form(node.pair)}
        assert plain(server, "/v1/kernels", headers).status == 200, "from the trusted address"
        answer = plain(server, "/v1/kernels", headers, source="127.0.0.2")
        assert answer.status == 401 and "token is needed" in answer.json["detail"]


def test_forwarded_addresses_are_accepted_from_trusted_proxies_only(server):
    def refuse(source, forwarded):
        n = server.messages.count("http: refused")
        headers = {"X-Forwarded-For": forwarded}
        wait_until(lambda: (plain(server, "/v1/kernels", headers, source).status == 401 and
                            server.messages.count("http: refused") > n), 20, "a line in the log, one a second")
        return re.findall(r"http: refused address=(\S+)", server.messages)[-1]

    assert refuse("127.0.0.2", "192.0.2.7") == "127.0.0.2"
    assert refuse("127.0.0.1", "192.0.2.7") == "192.0.2.7"
    assert refuse("127.0.0.1", "192.0.2.66, 192.0.2.7, 127.0.0.1") == "192.0.2.7", "the client's own value comes before it"
    assert refuse("127.0.0.1", "192.0.2.66, nonsense") == "127.0.0.1"


def test_the_log_of_requests_has_the_client_behind_a_trusted_proxy(server):
    for source, peer in (("127.0.0.1", "192.0.2.9"), ("127.0.0.2", "127.0.0.2")):
        assert plain(server, f"/no/such/{peer}", {"X-Forwarded-For": "192.0.2.9"}, source).status == 404
        wait_until(lambda: re.search(rf"status=404 .* peer={peer}\b", server.messages), 20, "the line of the request")


def test_a_connection_of_a_proxy_carries_many_clients(server, node, other):
    """Neither a certificate nor a token of one request is left to the next."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=300)
    boot = {"boot": "boot-1", "name": "n", "version": "0.1.0", "devices": [
        {"device": "cpu0", "backend": "cpu",
         "environment": {"cpu": "gcc 1", "gpu": "Test CPU", "arch": "x86_64", "compute_units": 4, "partition": ""}}]}
    ids = [ask(connection, "POST", "/v1/agents", boot, headers={"X-Client-Cert": form(client.pair)}).json["agent"]
           for client in (node, other) for form in (escaped, der)]
    assert ids[0] == ids[1] != ids[2] == ids[3]
    for headers, token, status in (({"X-Client-Cert": der(node.pair)}, None, 200), ({}, None, 401), ({}, server.token, 200),
                                   ({"X-Client-Cert": der(node.pair)}, None, 200), ({}, None, 401)):
        assert ask(connection, "GET", "/v1/kernels", token=token, headers=headers).status == status
    connection.close()


def test_a_proxys_header_that_is_no_certificate_of_the_authority_is_refused(server, authority, tmp_path):
    foreign = Authority(tmp_path, "foreign").issue("node-17", san=NODE)
    for value, why in ((der(foreign), "certificate is refused"), (escaped(foreign), "certificate is refused"),
                       ("@@@", "neither PEM"), ("-----BEGIN%2", "neither PEM"), ("AAAA", "is no certificate"),
                       (der(authority.issue("s", san=NODE, usage="serverAuth")), "certificate is refused")):
        answer = plain(server, "/v1/kernels", {"X-Client-Cert": value})
        assert answer.status == 401 and why in answer.json["detail"], (value, answer)
    twice = (f"GET /v1/kernels HTTP/1.1\r\nHost: x\r\nX-Client-Cert: {der(foreign)}\r\nX-Client-Cert: {der(foreign)}\r\n\r\n").encode()
    with socket.create_connection(("127.0.0.1", server.port), timeout=300) as connection:
        connection.sendall(twice)
        received = connection.recv(4096)
        assert received.startswith(b"HTTP/1.1 400") and b"X-Client-Cert" in received, received


def test_a_token_that_came_unencrypted_to_the_proxy_is_logged_once(server):
    for _ in range(2):
        assert plain(server, "/v1/kernels", {"X-Forwarded-Proto": "http"}, token=server.token).status == 200
    assert plain(server, "/v1/kernels", {"X-Forwarded-Proto": "http"}, "127.0.0.2", server.token).status == 200
    assert server.messages.count("trusted proxy over http://") == 1


def test_a_certificate_goes_through_a_proxy(proxy, server, node, other, authority):
    assert node.ask(proxy.port, "GET", "/v1/kernels").status == 200
    assert other.ask(proxy.port, "GET", "/v1/kernels").status == 200
    assert Client(authority).ask(proxy.port, "GET", "/v1/kernels").status == 401
    assert Client(authority).ask(proxy.port, "GET", "/v1/kernels", token=server.token).status == 200
    assert server.request("DELETE", "/v1/tokens/node-17").status == 204
    assert node.ask(proxy.port, "GET", "/v1/kernels").status == 401


def test_forged_headers_do_not_pass_a_proxy(proxy, server, node, other, authority):
    forged = {"X-Client-Cert": der(node.pair), "x-client-cert": escaped(node.pair), "X-Client-Verify": "SUCCESS",
              "X-Forwarded-For": "192.0.2.66", "X-Forwarded-Proto": "http"}
    for name, value in forged.items():
        answer = Client(authority).ask(proxy.port, "GET", "/v1/kernels", headers={name: value})
        assert answer.status == 401 and "token is needed" in answer.json["detail"], name
    body = {"boot": "b1", "name": "n", "version": "0.1.0", "devices": [
        {"device": "cpu0", "backend": "cpu",
         "environment": {"cpu": "gcc 1", "gpu": "Test CPU", "arch": "x86_64", "compute_units": 4, "partition": ""}}]}
    mine = other.ask(proxy.port, "POST", "/v1/agents", body).json["agent"]
    assert other.ask(proxy.port, "POST", "/v1/agents", body, headers=forged).json["agent"] == mine, "its own certificate counts"
    enrolled = [line for line in server.messages.splitlines() if "agent: enrolled" in line]
    assert len(enrolled) == 2 and all(" address=127.0.0.1 " in line for line in enrolled)


def test_a_proxy_refuses_foreign_certificates(proxy, authority, tmp_path):
    foreign = Client(authority, Authority(tmp_path, "foreign").issue("node-17", san=NODE))
    assert foreign.ask(proxy.port, "GET", "/v1/kernels").status == 400


TRICKS = {
    "a blank before the colon of Content-Length": b"Content-Length : 5\r\n\r\nhello",
    "a blank before the colon of Transfer-Encoding": b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    "a tab before the colon": b"Content-Length\t: 5\r\n\r\nhello",
    "a folded Transfer-Encoding beside Content-Length": b"Content-Length: 5\r\nTransfer-Encoding: x,\r\n chunked\r\n\r\n0\r\n\r\n",
    "another folded header": b"Content-Length: 2\r\nX-Note: one,\r\n two\r\n\r\n{}",
    "a header folded by a tab": b"Content-Length: 2\r\nX-Note: one,\r\n\ttwo\r\n\r\n{}",
    "Content-Length, then Transfer-Encoding": b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "Transfer-Encoding, then Content-Length": b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    "a sign before the length": b"Content-Length: +5\r\n\r\nhello",
    "Content-Length twice": b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
}


@pytest.mark.parametrize("trick", TRICKS)
def test_a_proxy_refuses_tricks_with_headers(proxy, server, authority, trick):
    client = Client(authority)
    head = b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + server.token.encode() + b"\r\n"
    smuggled = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    before = metric(server, "wavetune_http_requests_total")
    statuses = proxy.send(client, head + TRICKS[trick] + smuggled)
    assert statuses and statuses[0] in (400, 411, 422), statuses
    assert len(statuses) == 1, "no bytes after it are read as a request"
    assert metric(server, "wavetune_http_requests_total") == before + 1, "the server received nothing of it, only this request"


def metric(server, name):
    lines = server.request("GET", "/metrics").body.decode().splitlines()
    return sum(float(line.rsplit(None, 1)[1]) for line in lines if line.startswith(f"{name} "))


@pytest.mark.parametrize("name", ["nginx", "haproxy"])
def test_a_slow_body_through_a_proxy_ends(name, start, database, authority, tmp_path):
    """A proxy waits for as long as some bytes come; the server has a deadline, and closes its connection to the proxy."""
    program(name)
    server = start(harness.Server, database, options=(*harness.UNHURRIED, "--trusted-proxy", "127.0.0.1", "--body-timeout-ms",
                                                      "1000", "--body-rate", "1000"))
    proxy = Proxy(name, tmp_path, server, authority)
    head = (f"PUT /v1/blobs/sha256:{'0' * 64} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {server.token}\r\n"
            "Content-Length: 1000000\r\n\r\n")
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=300) as plain, \
            Client(authority).context.wrap_socket(plain, server_hostname="localhost") as connection:
        connection.sendall(head.encode())

        def has_ended():
            with contextlib.suppress(OSError):
                connection.sendall(b"x")
            return metric(server, 'wavetune_http_connections_closed_total{reason="body"}') == 1

        wait_until(has_ended, 60, "the server to end what the proxy forwards")
    proxy.kill()


def test_bodies_go_through_a_proxy_up_to_the_limit(proxy, server, authority):
    client = Client(authority)
    body = bytes(60 << 20)
    path = "/v1/blobs/sha256:" + hashlib.sha256(body).hexdigest()
    assert client.ask(proxy.port, "PUT", path, body, server.token).status in (200, 201, 204)
    assert client.ask(proxy.port, "GET", path, token=server.token).body == body
    head = f"PUT {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {server.token}\r\nContent-Length: {65 << 20}\r\n\r\n"
    assert proxy.send(client, head.encode()) == [413], "before a byte of the body was sent"


def test_the_programs_work_through_a_proxy(proxy, start, server, node, authority, tmp_path):
    """An agent with a certificate, and the command line with a token, over https:// to the proxy."""
    class Front:
        url, token = f"https://localhost:{proxy.port}", server.token

    agent = start(harness.Agent, Front, options=("--device", "cpu0"), environment={**node.variables, "WAVETUNE_TOKEN": ""})
    wait_until(lambda: server.items("/v1/agents"), 30, "the agent to enrol")
    kernel = harness.small_kernel(tmp_path / "kernel")
    harness.wavetune(Front, "submit", kernel, "--key", "n=1024", "--wait", environment=Client(authority).variables)
    assert agent.stop() == 0
