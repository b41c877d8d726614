"""The server's TLS: invalid certificates, certificates that change while it runs, and certificates of clients."""

import concurrent.futures
import hashlib
import os
import signal
import socket
import ssl
import subprocess

import certificates
import harness
import pytest
from certificates import Authority, Client, TlsServer, ask
from hands import ENVIRONMENT
from harness import wait_until

NODE = "URI:spiffe://wt.test/agent/node-17"


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path)


@pytest.fixture
def serve(start, database, authority):
    """Starts a server with TLS."""
    return lambda *options: start(TlsServer, database, authority, authority.server(), options=(*harness.UNHURRIED, *options))


@pytest.fixture
def node(authority):
    """A client with a certificate for a node."""
    return Client(authority, authority.issue("node-17", san=NODE))


def enrolment(boot="boot-1", **more):
    return {"boot": boot, "name": "node-17", "version": "0.1.0",
            "devices": [{"device": "cpu0", "backend": "cpu", "environment": ENVIRONMENT}]} | more


def serial(port):
    """The serial number of the certificate that a new connection is shown."""
    pem = ssl.get_server_certificate(("127.0.0.1", port))
    done = subprocess.run(["openssl", "x509", "-noout", "-serial"], input=pem, capture_output=True, text=True, timeout=600)
    return done.stdout


def replace(pair, with_pair):
    """As certbot does: first the certificate, then the key."""
    for old, new in ((pair.certificate, with_pair.certificate), (pair.key, with_pair.key)):
        os.replace(new, old)


def self_signed(folder):
    pair = certificates.Pair(folder / "self.crt", folder / "self.key")
    certificates.openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", 30, "-subj",
                         "/CN=self", "-keyout", pair.key, "-out", pair.certificate, "-addext", f"subjectAltName={NODE}")
    return pair


def refused(*options):
    done = subprocess.run([harness.BUILD / "wavetune-server", "serve", "--port", "0", "--database", "host=/nowhere", *options],
                          capture_output=True, text=True, timeout=600)
    assert done.returncode == 2 and done.stderr.count("\n") == 1, (done.returncode, done.stderr)
    return done.stderr


def test_requests_and_long_polls_go_over_tls(serve):
    server = serve()
    assert server.url.startswith("https://127.0.0.1:")
    connection = server.client.connect(server.port)
    for _ in range(3):
        assert ask(connection, "GET", "/v1/tokens", token=server.token).status == 200
    assert ask(connection, "PUT", "/v1/blobs/sha256:" + "0" * 64, b"x" * (4 << 20), server.token).status in (400, 422)
    hand = server.request("POST", "/v1/agents", enrolment()).json["agent"]
    poll = {"agent": hand, "device": "cpu0", "nonce": "n1", "wait": 0.5}
    assert ask(connection, "POST", "/v1/leases", poll, server.token).status == 204


def test_a_large_body_arrives_whole(serve):
    server = serve()
    body = os.urandom(40 << 20)
    path = "/v1/blobs/sha256:" + hashlib.sha256(body).hexdigest()
    assert server.request("PUT", path, body).status in (200, 201, 204)
    assert server.request("GET", path).body == body


def test_tls_1_2_is_the_least_and_plain_http_is_not_answered(serve):
    server = serve()
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        client = Client(server.authority)
        client.context.minimum_version = client.context.maximum_version = version
        assert client.ask(server.port, "GET", "/healthz").status == 200
    done = subprocess.run(["openssl", "s_client", "-connect", f"127.0.0.1:{server.port}", "-tls1_1", "-cipher", "ALL@SECLEVEL=0"],
                          capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=600)
    assert done.returncode != 0 and "no peer certificate available" in done.stdout
    with socket.create_connection(("127.0.0.1", server.port), timeout=300) as plain:
        plain.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert not plain.recv(100).startswith(b"HTTP")


def test_a_client_that_disconnects_from_a_long_poll_is_noticed(serve):
    server = serve("--poll-ms", "200")
    agent = server.request("POST", "/v1/agents", enrolment()).json["agent"]
    connection = server.client.connect(server.port)
    assert ask(connection, "GET", "/healthz").status == 200  # unread bytes at the end would cause a reset
    body = b'{"agent": "%s", "device": "cpu0", "nonce": "n1", "wait": 60}' % agent.encode()
    connection.request("POST", "/v1/leases", body, {"Authorization": f"Bearer {server.token}", "Content-Type": "application/json"})
    wait_until(lambda: suspended(server) == 1, 10, "the poll to wait")
    connection.sock.settimeout(0.1)
    with pytest.raises(TimeoutError):
        connection.sock.unwrap()  # sends close_notify, as programs do, and does not get the server's
    connection.close()
    wait_until(lambda: suspended(server) == 0, 10, "the server to notice that the client has gone")


def suspended(server):
    lines = server.request("GET", "/metrics").body.decode().splitlines()
    return next(float(l.split()[1]) for l in lines if l.startswith("wavetune_suspended "))


def test_wrong_files_are_one_sentence_at_the_start(authority, tmp_path):
    good, other = authority.server(), authority.server("other")
    text, open_key = tmp_path / "text", tmp_path / "open.key"
    text.write_text("no PEM\n")
    text.chmod(0o600)
    open_key.write_bytes(good.key.read_bytes())
    open_key.chmod(0o644)
    locked = tmp_path / "locked.key"
    certificates.openssl("pkcs8", "-topk8", "-in", good.key, "-out", locked, "-passout", "pass:x")
    locked.chmod(0o600)
    leaf, many = tmp_path / "leaf.crt", tmp_path / "many.crt"
    leaf.write_text(authority.certificate.read_text() + other.certificate.read_text())
    many.write_text(good.certificate.read_text() * 17)
    cases = [
        (("--tls-certificate", good.certificate), "belong together"),
        (("--tls-certificate", tmp_path / "none", "--tls-key", good.key), "none"),
        (("--tls-certificate", text, "--tls-key", good.key), "no certificate in PEM"),
        (("--tls-certificate", good.certificate, "--tls-key", text), "no private key in PEM"),
        (("--tls-certificate", good.certificate, "--tls-key", open_key), "mode 0644"),
        (("--tls-certificate", good.certificate, "--tls-key", locked), "passphrase"),
        (("--tls-certificate", good.certificate, "--tls-key", other.key), "not the key of"),
        (("--tls-certificate", good.certificate, "--tls-key", good.key, "--tls-client-ca", text), "--tls-client-ca: "),
        (("--tls-certificate", good.certificate, "--tls-key", good.key, "--tls-client-ca", leaf), "certificate 2 in"),
        (("--tls-certificate", many, "--tls-key", good.key), "holds 17 certificates"),
        (("--tls-client-ca", authority.certificate), "--tls-client-ca needs --tls-certificate"),
        (("--trusted-proxy", "10.0.0.0/33"), "0 to 32 bits"),
        (("--trusted-proxy", "proxy.example"), "is no address"),
    ]
    for options, words in cases:
        assert words in refused(*options), (options, words)


def test_a_new_certificate_is_used_without_a_restart_and_open_connections_go_on(serve, authority):
    server = serve()
    before = serial(server.port)
    connection = server.client.connect(server.port)
    assert ask(connection, "GET", "/v1/tokens", token=server.token).status == 200
    replace(server.pair, authority.server("renewed"))
    wait_until(lambda: serial(server.port) != before, 20, "the new certificate")
    assert ask(connection, "GET", "/v1/tokens", token=server.token).status == 200, "on the earlier connection"
    assert server.messages.count("tls: new connections use") == 2, "a pair that is half written is not tried"
    assert "tls: --tls" not in server.messages


def test_a_broken_new_certificate_is_logged_and_the_old_one_stays(serve, authority):
    server = serve()
    before = serial(server.port)
    key = server.pair.key.read_bytes()
    server.pair.key.write_text("damaged\n")
    wait_until(lambda: "no private key in PEM" in server.messages, 20, "the log")
    assert "stays in use" in server.messages and serial(server.port) == before
    server.process.send_signal(signal.SIGHUP)
    wait_until(lambda: server.messages.count("no private key in PEM") == 2, 20, "SIGHUP to be answered")
    server.pair.key.write_bytes(key)
    wait_until(lambda: server.messages.count("tls: new connections use") == 2, 20, "the repaired key")
    assert server.client.ask(server.port, "GET", "/healthz").status == 200


def test_handshakes_go_on_while_certificates_change(serve, authority):
    server = serve("--tls-client-ca", authority.certificate)
    node = Client(authority, authority.issue("node-17", san=NODE))

    def shake(_):
        return [node.ask(server.port, "GET", "/healthz").status for _ in range(25)]

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        shaking = [pool.submit(shake, n) for n in range(4)]
        for n in range(10):
            replace(server.pair, authority.server(f"renewed-{n}"))
            server.process.send_signal(signal.SIGHUP)
        assert {status for done in shaking for status in done.result()} == {200}
    assert server.stop() == 0


def test_sighup_reads_the_files_again_and_ends_no_server(serve, start, database):
    server = serve()
    server.process.send_signal(signal.SIGHUP)
    wait_until(lambda: server.messages.count("tls: new connections use") == 2, 20, "the files to be read again")
    plain = start(harness.Server, database)
    plain.process.send_signal(signal.SIGHUP)
    wait_until(lambda: "no files of --tls-certificate" in plain.messages, 20, "the log")
    assert plain.request("GET", "/healthz").status == 200 and server.request("GET", "/healthz").status == 200


def test_a_server_with_tls_does_not_warn_of_unencrypted_tokens(authority, tmp_path):
    alone = ["unshare", "--map-root-user", "--net"]  # a network of its own: no other machine can reach it
    if subprocess.run([*alone, "true"], capture_output=True, timeout=300).returncode != 0:
        pytest.skip("no network namespace can be made")
    pair = authority.server()
    server = harness.Program([*alone, harness.BUILD / "wavetune-server", "serve", "--listen", "0.0.0.0", "--port", "0", "--database",
                              "host=/nowhere dbname=x", "--tls-certificate", pair.certificate, "--tls-key", pair.key], tmp_path)
    wait_until(lambda: "not ready" in server.messages and server.output, 20, "its start")
    assert server.output.startswith("listening on https://127.0.0.1:") and "unencrypted" not in server.messages
    assert server.stop() == 0


def test_the_command_line_checks_the_servers_certificate(serve, authority, tmp_path):
    server = serve()
    assert harness.wavetune(server, "token", "list", environment=server.client.variables).returncode == 0
    unknown = harness.wavetune(server, "token", "list", check=False)
    assert unknown.returncode == 3 and "certificate" in unknown.stderr
    foreign = Authority(tmp_path, "foreign")
    done = harness.wavetune(server, "token", "list", check=False, environment={"SSL_CERT_FILE": str(foreign.certificate)})
    assert done.returncode == 3 and "certificate" in done.stderr


def test_the_python_programs_check_the_servers_certificate(serve):
    server = serve()
    put = ("import os\nfrom wavetune._errors import PackError\nfrom wavetune._pack.identity import put_identity\n"
           "try:\n  put_identity('{}', 'sha256:' + '0' * 64, dict(os.environ))\nexcept PackError as error:\n  print(error)")
    variables = {**os.environ, "WAVETUNE_URL": server.url, "WAVETUNE_TOKEN": server.token, "PYTHONPATH": str(harness.SOURCE / "python")}
    for extra, words in (({}, "CERTIFICATE_VERIFY_FAILED"),
                         (server.client.variables, "answered 4")):
        done = subprocess.run(["python3", "-c", put], capture_output=True, text=True, env={**variables, **extra}, timeout=600)
        assert done.returncode == 0 and words in done.stdout, (done.stdout, done.stderr)


def test_a_client_key_that_others_may_read_is_refused(serve, node):
    server = serve()
    node.pair.key.chmod(0o644)
    done = harness.wavetune(server, "token", "list", check=False, environment=node.variables)
    assert done.returncode == 2 and "--client-key: " in done.stderr and "chmod 600" in done.stderr
    none = harness.wavetune(server, "token", "list", "--client-key", server.pair.key, "--client-certificate", "/none", check=False)
    assert none.returncode == 2 and "client certificate /none" in none.stderr
    half = harness.wavetune(server, "token", "list", "--client-key", node.pair.key, check=False)
    assert half.returncode == 2 and "belong together" in half.stderr


def test_a_certificate_authenticates_as_the_token_made_for_its_name(serve, authority, node):
    server = serve("--tls-client-ca", authority.certificate)
    answer = node.ask(server.port, "GET", "/v1/kernels")
    assert answer.status == 401 and "no live token" in answer.json["detail"] and f'certificate of "{NODE}"' in answer.json["detail"]
    made = server.request("POST", "/v1/tokens", {"name": "node-17", "role": "agent", "certificate": NODE})
    assert made.status == 201 and made.json == {"name": "node-17", "role": "agent", "certificate": NODE}
    wait_until(lambda: node.ask(server.port, "GET", "/v1/kernels").status == 200, 20, "the certificate to be known")
    assert node.ask(server.port, "GET", "/v1/tokens").status == 403, "a token of the role agent is no admin's"
    renewed = Client(authority, authority.issue("node-17", san=NODE))
    assert renewed.ask(server.port, "GET", "/v1/kernels").status == 200, "another certificate of the same name"
    other = Client(authority, authority.issue("node-18", san=NODE.replace("17", "18")))
    assert other.ask(server.port, "GET", "/v1/kernels").status == 401
    assert server.client.ask(server.port, "GET", "/v1/kernels").status == 401, "without a certificate"
    assert server.request("DELETE", "/v1/tokens/node-17").status == 204
    assert node.ask(server.port, "GET", "/v1/kernels").status == 401, "revoked"


def test_certificates_of_others_are_refused(serve, authority, tmp_path):
    server = serve("--tls-client-ca", authority.certificate)
    assert server.request("POST", "/v1/tokens", {"name": "n", "role": "agent", "certificate": NODE}).status == 201
    foreign = Authority(tmp_path, "foreign")
    shown = {"of a foreign authority": foreign.issue("a", san=NODE), "for servers": authority.issue("b", san=NODE, usage="serverAuth"),
             "self-signed": self_signed(tmp_path)}
    for what, pair in shown.items():
        client = Client(authority, pair)
        answer = client.ask(server.port, "GET", "/v1/kernels")
        assert answer.status == 401 and "certificate is refused" in answer.json["detail"], (what, answer)
        assert client.ask(server.port, "GET", "/v1/kernels", token=server.token).status == 401, (what, "with a token, too")
        assert client.ask(server.port, "GET", "/healthz").status == 200, what


def test_names_of_certificates_come_from_uri_then_dns_then_subject(serve, authority):
    server = serve("--tls-client-ca", authority.certificate)
    shown = {"URI:spiffe://a/b": "DNS:a.example,URI:spiffe://a/b,URI:spiffe://c/d", "DNS:Node.Example": "DNS:Node.Example,DNS:b.example",
             "CN:plain": None}
    for name, san in shown.items():
        client = Client(authority, authority.issue("plain", san=san))
        assert f'client certificate of "{name}"' in client.ask(server.port, "GET", "/v1/kernels").json["detail"]
    body = {"name": "dns", "role": "agent", "certificate": "DNS:node.EXAMPLE"}
    assert server.request("POST", "/v1/tokens", body).status == 201
    client = Client(authority, authority.issue("plain", san="DNS:Node.Example"))
    assert client.ask(server.port, "GET", "/v1/kernels").status == 200, "DNS names have no upper and lower case"
    unnamed = Client(authority, authority.issue("umlaut", common_name="kn\u00f6ten"))
    assert "printable ASCII" in unnamed.ask(server.port, "GET", "/v1/kernels").json["detail"]
    for length in (300, 5000):
        long = Client(authority, authority.issue("long", san="URI:spiffe://a/" + "x" * length))
        assert "printable ASCII" in long.ask(server.port, "GET", "/v1/kernels").json["detail"]


def test_certificates_authenticate_agents_only_and_one_token_each(serve):
    server = serve()
    post = lambda **body: server.request("POST", "/v1/tokens", {"name": "n", "role": "agent", "certificate": NODE} | body)  # noqa: E731
    for role in ("admin", "submitter", "reader", "demand", "enrol"):
        answer = post(role=role)
        assert answer.status == 422 and "of the role agent" in answer.json["detail"], role
    for name in ("node-17", "URI:", "DNS:a\nb", "CN:" + "x" * 251, "EMAIL:a@b", ""):
        answer = post(certificate=name)
        assert answer.status == 422 and "no name of a client certificate" in answer.json["detail"], name
    assert post(certificate=None).status == 422
    assert post().status == 201
    taken = post(name="m")
    assert taken.status == 409 and "another one" in taken.json["detail"]
    assert server.request("DELETE", "/v1/tokens/n").status == 204
    assert post(name="m").status == 201, "a revoked token frees its certificate"


def test_an_agent_of_a_certificate_is_one_agent_and_acts_as_no_other(serve, authority, node):
    server = serve("--tls-client-ca", authority.certificate, "--require-enrolment")
    assert server.request("POST", "/v1/tokens", {"name": "n17", "role": "agent", "certificate": NODE}).status == 201
    name18 = NODE.replace("17", "18")
    assert server.request("POST", "/v1/tokens", {"name": "n18", "role": "agent", "certificate": name18}).status == 201
    other = Client(authority, authority.issue("node-18", san=name18))
    enrolled = node.ask(server.port, "POST", "/v1/agents", enrolment())
    assert enrolled.status == 201 and "token" not in enrolled.json and enrolled.json["rotate_in_ms"] is None
    id17 = enrolled.json["agent"]
    again = node.ask(server.port, "POST", "/v1/agents", enrolment("boot-2"))
    assert again.status == 200 and again.json["agent"] == id17, "the certificate identifies the agent, without any state"
    id18 = other.ask(server.port, "POST", "/v1/agents", enrolment()).json["agent"]
    assert id18 != id17
    pull = {"agent": id17, "device": "cpu0", "nonce": "n1", "wait": 0}
    assert node.ask(server.port, "POST", "/v1/leases", pull).status == 204
    for client, token in ((other, None), (server.client, harness.make_token(server.database, "shared", "agent"))):
        for path, body in (("/v1/leases", pull), (f"/v1/agents/{id17}/heartbeat", {"boot": "boot-2"}),
                           ("/v1/agents", enrolment(agent=id17))):
            assert client.ask(server.port, "POST", path, body, token).status == 403, (path, token)
    assert node.ask(server.port, "POST", f"/v1/agents/{id17}/token", {}).status == 403, "it has no token to replace"


def test_an_agent_of_a_certificate_stays_its_own_when_its_token_was_revoked_and_made_again(serve, authority, node):
    server = serve("--tls-client-ca", authority.certificate)
    make = {"name": "n17", "role": "agent", "certificate": NODE}
    shared = harness.make_token(server.database, "shared", "agent")
    assert server.request("POST", "/v1/tokens", make).status == 201
    id17 = node.ask(server.port, "POST", "/v1/agents", enrolment()).json["agent"]
    for _ in range(2):
        assert server.request("DELETE", "/v1/tokens/n17").status == 204
        taken = server.client.ask(server.port, "POST", "/v1/agents", enrolment("boot-2", agent=id17), shared)
        assert taken.status == 403 and "is a client certificate's" in taken.json["detail"]
        assert server.request("POST", "/v1/tokens", make).status == 201
    assert node.ask(server.port, "POST", "/v1/agents", enrolment("boot-3")).json["agent"] == id17
    listed = [token["certificate"] for token in server.items("/v1/tokens")]
    assert listed.count(NODE) == 3 and listed.count(None) == len(listed) - 3


def test_an_agent_works_with_a_certificate_instead_of_a_token(start, serve, authority, node, tmp_path):
    server = serve("--tls-client-ca", authority.certificate, "--require-enrolment")
    done = harness.wavetune(server, "token", "make", "node-17", "--role", "agent", "--certificate", NODE,
                            environment=server.client.variables)
    assert done.stdout == f"{NODE}\n"
    variables = {**node.variables, "WAVETUNE_TOKEN": ""}
    agent = start(harness.Agent, server, options=("--device", "cpu0"), environment=variables)
    kernel = harness.small_kernel(tmp_path / "kernel")
    wait_until(lambda: server.items("/v1/agents"), 30, "the agent to enrol")
    harness.wavetune(server, "submit", kernel, "--key", "n=1024", "--wait", environment=server.client.variables)
    assert not (agent.state / "token").exists()
    first = (agent.state / "agent").read_text()
    assert agent.stop() == 0
    (agent.state / "agent").unlink()
    agent = start(harness.Agent, server, options=("--device", "cpu0"), environment=variables)
    wait_until(lambda: (agent.state / "agent").exists(), 30, "the agent to enrol again")
    assert (agent.state / "agent").read_text() == first, "the same agent without its state"


def test_new_authorities_of_clients_are_used_without_a_restart(serve, authority, tmp_path):
    folder = tmp_path / "authorities.crt"
    folder.write_bytes(authority.certificate.read_bytes())
    server = serve("--tls-client-ca", folder)
    assert server.request("POST", "/v1/tokens", {"name": "n", "role": "agent", "certificate": NODE}).status == 201
    second = Authority(tmp_path, "second")
    client = Client(authority, second.issue("node-17", san=NODE))
    assert client.ask(server.port, "GET", "/v1/kernels").status == 401
    folder.write_bytes(authority.certificate.read_bytes() + second.certificate.read_bytes())
    wait_until(lambda: client.ask(server.port, "GET", "/v1/kernels").status == 200, 20, "the new authority")
