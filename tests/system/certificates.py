"""Certificate authorities for tests, made with openssl(1), and a server and requests that use their certificates."""

import http.client
import json
import ssl
import subprocess

import harness
from harness import wait_until


def openssl(*arguments):
    done = subprocess.run(["openssl", *(str(a) for a in arguments)], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout


class Pair:
    """The files of a certificate and its key."""

    def __init__(self, certificate, key):
        self.certificate, self.key = certificate, key

    @property
    def both(self):
        """One file with the certificate and the key, as haproxy reads it."""
        path = self.certificate.with_suffix(".both")
        path.write_text(self.certificate.read_text() + self.key.read_text())
        path.chmod(0o600)
        return path


class Authority(Pair):
    def __init__(self, folder, name="ca"):
        super().__init__(folder / f"{name}.crt", folder / f"{name}.key")
        self.folder, self.n = folder / f"{name}-issued", 0  # of its own: servers read changed files again
        self.folder.mkdir()
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", 30, "-keyout", self.key,
                "-out", self.certificate, "-subj", f"/CN={name}", "-addext", "basicConstraints=critical,CA:TRUE",
                "-addext", "keyUsage=critical,keyCertSign,cRLSign")

    def issue(self, name, san=None, usage="clientAuth", days=30, common_name=None):
        """A pair for `name`, by default a client's whose only name is the subject's."""
        self.n += 1
        pair = Pair(self.folder / f"{name}-{self.n}.crt", self.folder / f"{name}-{self.n}.key")
        request, extensions = self.folder / f"{name}.csr", self.folder / f"{name}.ext"
        extensions.write_text(f"extendedKeyUsage={usage}\nbasicConstraints=CA:FALSE\n" +
                              (f"subjectAltName={san}\n" if san else ""))
        openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", pair.key, "-out", request,
                "-subj", f"/CN={common_name or name}")
        openssl("x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self.key, "-CAcreateserial", "-days", days,
                "-extfile", extensions, "-out", pair.certificate)
        return pair

    def server(self, name="localhost"):
        return self.issue(name, san="DNS:localhost,IP:127.0.0.1", usage="serverAuth")


class Client:
    """A client that trusts an authority and may have a certificate of its own."""

    def __init__(self, authority, pair=None):
        self.authority, self.pair = authority, pair
        self.context = ssl.create_default_context(cafile=authority.certificate)
        if pair:
            self.context.load_cert_chain(pair.certificate, pair.key)

    def connect(self, port, host="127.0.0.1"):
        return http.client.HTTPSConnection(host, port, context=self.context, timeout=300)

    def ask(self, port, method, path, body=None, token=None, headers=None):
        connection = self.connect(port)
        try:
            return ask(connection, method, path, body, token, headers)
        finally:
            connection.close()

    @property
    def variables(self):
        """For programs of ours."""
        variables = {"SSL_CERT_FILE": str(self.authority.certificate)}
        if self.pair:
            variables |= {"WAVETUNE_CLIENT_CERTIFICATE": str(self.pair.certificate), "WAVETUNE_CLIENT_KEY": str(self.pair.key)}
        return variables


def ask(connection, method, path, body=None, token=None, headers=None):
    """On a connection that stays open."""
    headers = dict(headers or {})
    if token:
        headers["Authorization"] = f"Bearer {token}"
    if body is not None and not isinstance(body, bytes):
        body = json.dumps(body).encode()
        headers.setdefault("Content-Type", "application/json")
    connection.request(method, path, body=body, headers=headers)
    answer = connection.getresponse()
    return harness.Answer(answer.status, dict(answer.getheaders()), answer.read())


class TlsServer(harness.Server):
    """A server that speaks https://; its requests trust `authority`."""

    def __init__(self, database, folder, authority, pair, options=()):
        self.authority, self.pair, self.client = authority, pair, Client(authority)
        super().__init__(database, folder, options=("--tls-certificate", pair.certificate, "--tls-key", pair.key, *options))

    def _wait_ready(self):
        def line():
            assert self.process.poll() is None, f"the server ended:\n{self.messages[-3000:]}"
            return next((l for l in self.output.splitlines() if "https://" in l), None)

        self.url = wait_until(line, 30, "the server's ready line").split()[-1]
        wait_until(lambda: self.request("GET", "/readyz").status == 200, 20, "/readyz")
        return self.url

    def request(self, method, path, body=None, token="admin", headers=None, timeout=300):
        return self.client.ask(self.port, method, path, body, self.token if token == "admin" else token, headers)
