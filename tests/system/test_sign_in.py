"""People whom a proxy signs in (serve --sign-in): deploy/proxy/nginx-sign-in.conf with the real nginx, and what the server accepts
from which address."""

import http.client
import http.cookies
import http.server
import socket
import subprocess
import threading
import urllib.parse

import harness
import pytest
from certificates import Authority, Client
from harness import wait_until
from test_proxy import Proxy, plain, program, tmp_path  # noqa: F401

SECRET = "a-secret-of-the-proxy-0123456789"
PAGE = {"X-Wavetune": "page"}
PEOPLE = {"alice": ("alice@example.com", "tuners,all"), "bob": ("bob@example.com", "all"), "mallory": ("mallory@elsewhere.com", "")}
RULES = ("user:root@example.com=root", "group:tuners=tuners", "user:*@example.com=viewers", "group:machines=agents", "group:ghosts=nothing")


def options(folder):
    rules = [word for rule in RULES for word in ("--sign-in", rule)]
    return (*harness.UNHURRIED, "--trusted-proxy", "127.0.0.1", "--sign-in-secret", folder / "secret", *rules)


@pytest.fixture
def server(start, database, tmp_path):  # noqa: F811
    (tmp_path / "secret").write_text(f"{SECRET}\n")
    server = start(harness.Server, database, options=options(tmp_path))
    for name, role in (("root", "admin"), ("tuners", "operator,submitter"), ("viewers", "reader"), ("agents", "agent")):
        assert server.request("POST", "/v1/tokens", {"name": name, "role": role}).status == 201
    return server


def stated(user, groups=None, secret=SECRET, **more):
    headers = {"X-Forwarded-User": user, "X-Wavetune-Proxy": secret, "X-Forwarded-Groups": groups, **more}
    return {name: value for name, value in headers.items() if value is not None}


def test_a_user_acts_as_the_token_of_the_first_rule_that_fits(server):
    for user, groups, name, role in (("root@example.com", "tuners", "root", "admin"),
                                     ("alice@example.com", "all, tuners", "tuners:alice@example.com", "operator,submitter"),
                                     ("bob@example.com", None, "viewers:bob@example.com", "reader"),
                                     ("bob@example.com", "not tuners,tuners too", "viewers:bob@example.com", "reader"),
                                     ("bob@example.com", "tunersx,xtuners", "viewers:bob@example.com", "reader")):
        own = plain(server, "/v1/token", stated(user, groups))
        assert own.status == 200 and own.json["name"] == name and set(own.json["role"].split(",")) == set(role.split(",")), own
        assert plain(server, "/v1/sign-in", stated(user, groups)).json == {"user": name, "problem": None}


def test_who_is_refused_learns_why(server):
    for headers, why in ((stated("mallory@elsewhere.com"), "no rule lets you use this server"), (stated("x", "machines"), "a token of agents"),
                         (stated("x", "ghosts"), 'no live token "nothing"'), (stated("bob@example.com", secret="wrong"), "right secret"),
                         (stated("bob@example.com", secret=None), "right secret"), (stated(""), "name is empty"),
                         (stated("b\xf6b@example.com"), "printable ASCII"), (stated("a b@example.com"), "without blanks"),
                         (stated("b" * 200 + "@example.com"), "too long")):
        answer = plain(server, "/v1/kernels", headers)
        assert answer.status == 401 and why in answer.json["detail"], (headers, answer)
        assert why in plain(server, "/v1/sign-in", headers).json["problem"]


def test_a_user_stated_from_another_address_is_a_stranger(server):
    answer = plain(server, "/v1/kernels", stated("root@example.com"), source="127.0.0.2")
    assert answer.status == 401 and "a token is needed" in answer.json["detail"]
    assert plain(server, "/v1/sign-in", stated("root@example.com"), source="127.0.0.2").json == {"user": None, "problem": None}
    assert plain(server, "/v1/sign-in").json == {"user": None, "problem": None}


def test_headers_that_occur_twice_are_refused(server):
    for name in ("X-Forwarded-User", "X-Forwarded-Groups", "X-Wavetune-Proxy", "Origin", "Sec-Fetch-Site"):
        head = "".join(f"{key}: {value}\r\n" for key, value in (stated("bob@example.com", "all") | {name: "root@example.com"}).items())
        request = f"GET /v1/kernels HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{head}{name}: root@example.com\r\n\r\n"
        with socket.create_connection(("127.0.0.1", server.port), timeout=300) as connection:
            connection.sendall(request.encode())
            received = connection.recv(4096)
            assert received.startswith(b"HTTP/1.1 400") and name.encode() in received, received


def test_the_user_of_a_request_is_not_left_to_the_next_on_its_connection(server):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=300)

    def status(headers):
        connection.request("GET", "/v1/tokens", headers=headers)
        answer = connection.getresponse()
        answer.read()
        return answer.status

    token = {"Authorization": f"Bearer {server.token}"}
    for headers, expected in ((stated("root@example.com"), 200), ({}, 401), (stated("bob@example.com"), 403), (token, 200), ({}, 401),
                              (stated("bob@example.com") | token, 200), (stated("mallory@x.com"), 401), (stated("root@example.com"), 200)):
        assert status(headers) == expected, headers
    connection.close()


def write(server, headers, method="POST", path="/v1/tokens", body=b'{"name": "new", "role": "reader"}'):
    return server.request(method, path, body, token=None, headers=stated("root@example.com") | {"Host": "tuning.example:8443"} | headers)


def test_a_write_that_another_page_makes_is_refused(server):
    for headers in ({}, {"Sec-Fetch-Site": "same-origin"}, {"Origin": "https://tuning.example:8443"}):
        answer = write(server, headers)
        assert answer.status == 403 and "X-Wavetune: page" in answer.json["detail"], headers
    for headers in ({"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}, {"Sec-Fetch-Site": "none"},
                    {"Origin": "https://evil.example"}, {"Origin": "null"}, {"Origin": "https://tuning.example"},
                    {"Origin": "https://tuning.example:8443.evil.example"}):
        answer = write(server, PAGE | headers)
        assert answer.status == 403 and "another page" in answer.json["detail"], headers
        assert write(server, PAGE | headers, "DELETE", "/v1/tokens/tuners", None).status == 403
    assert [each["name"] for each in server.items("/v1/tokens") if each["name"] == "new"] == []

    for i, headers in enumerate(({}, {"Sec-Fetch-Site": "same-origin"}, {"Origin": "https://Tuning.example:8443"},
                                 {"Origin": "https://internal:1", "Sec-Fetch-Site": "same-origin"})):
        assert write(server, PAGE | headers, body=b'{"name": "new-%d", "role": "reader"}' % i).status == 201, headers
    with_token = server.request("POST", "/v1/tokens", {"name": "script", "role": "reader"}, headers={"Sec-Fetch-Site": "cross-site"})
    assert with_token.status == 201, "a token is in a header, which no other page has"
    preflight = server.request("OPTIONS", "/v1/tokens", token=None, headers=stated("root@example.com"))
    assert preflight.status == 405 and not any(name.lower().startswith("access-control") for name in preflight.headers)


def test_what_a_signed_in_user_writes_names_the_person(server):
    headers = stated("alice@example.com", "tuners") | PAGE
    body = {"kernel": "x", "key": {"n": 1}, "environment": {"gpu": "Some"}, "reason": "why", "config": {"A": 1}, "kind": "ban", "unknown": True}
    made = server.request("POST", "/v1/overrides", body, token=None, headers=headers)
    assert made.status == 201, made
    rows = server.items("/v1/audit")
    assert rows[-1]["token"] == "tuners:alice@example.com" or rows[0]["token"] == "tuners:alice@example.com", rows


def test_a_revoked_token_ends_the_sign_in(server):
    assert plain(server, "/v1/kernels", stated("bob@example.com")).status == 200
    assert server.request("DELETE", "/v1/tokens/viewers").status == 204
    assert plain(server, "/v1/kernels", stated("bob@example.com")).status == 401


def test_a_server_that_has_not_read_its_tokens_answers_503_and_not_401(server, start, postgres, tmp_path):  # noqa: F811
    server.stop()
    postgres.kill()
    start(harness.Program, [harness.BUILD / "wavetune-server", "serve", "--listen", "127.0.0.1", "--port", server.port,
                            "--database", server.database, *options(tmp_path)])

    def answer():
        try:
            return plain(server, "/v1/kernels", stated("bob@example.com"))
        except OSError:  # it does not listen yet
            return None

    refused = wait_until(answer, 30, "an answer without PostgreSQL")
    assert refused.status == 503 and refused.headers["Retry-After"] == "1", refused
    assert "not read its tokens" in refused.json["detail"]
    assert plain(server, "/v1/sign-in", stated("bob@example.com")).status == 503
    assert plain(server, "/v1/sign-in").json == {"user": None, "problem": None}
    assert plain(server, "/v1/kernels", stated("mallory@elsewhere.com")).status == 401, "no rule is for her, whatever the tokens are"
    with_token = server.request("GET", "/v1/kernels")
    assert with_token.status == 503 and with_token.headers["Retry-After"] == "1", with_token
    postgres.start()
    wait_until(lambda: plain(server, "/v1/kernels", stated("bob@example.com")).status == 200, 30, "the tokens to be read")
    assert plain(server, "/v1/kernels", stated("x", "ghosts")).status == 401


def test_false_options_are_refused(database, tmp_path):  # noqa: F811
    (tmp_path / "good").write_text(SECRET)
    (tmp_path / "short").write_text("short\n")
    (tmp_path / "blank").write_text("a secret with blanks in it\n")
    proxy, secret = ("--trusted-proxy", "127.0.0.1"), ("--sign-in-secret", tmp_path / "good")
    for options, why in (((*secret, "--sign-in", "user:a=b"), "needs --trusted-proxy"), ((*proxy, "--sign-in", "user:a=b"), "--sign-in-secret"),
                         ((*proxy, *secret, "--sign-in", "alice=b"), "user:NAME=TOKEN"), ((*proxy, *secret, "--sign-in", "user:=b"), "user:NAME=TOKEN"),
                         ((*proxy, *secret, "--sign-in", "user:a="), "user:NAME=TOKEN"), ((*proxy, *secret, "--sign-in", "group:a"), "user:NAME=TOKEN"),
                         ((*proxy, "--sign-in-secret", tmp_path / "short", "--sign-in", "user:a=b"), "at least 16"),
                         ((*proxy, "--sign-in-secret", tmp_path / "blank", "--sign-in", "user:a=b"), "without blanks"),
                         ((*proxy, "--sign-in-secret", tmp_path / "none", "--sign-in", "user:a=b"), "none"),
                         ((*proxy, *secret, "--sign-in", "user:a=b", "--sign-in-user-header", "no header"), "no name of a header")):
        done = subprocess.run([harness.BUILD / "wavetune-server", "serve", "--database", database, *options], capture_output=True,
                              text=True, timeout=600)
        assert done.returncode == 2 and why in done.stderr and done.stderr.count("\n") == 1, (options, done.stderr)


class SignIn(http.server.BaseHTTPRequestHandler):
    """What oauth2-proxy answers to nginx: who has which cookie."""

    def do_GET(self):
        person = PEOPLE.get(http.cookies.SimpleCookie(self.headers.get("Cookie", "")).get("session", http.cookies.Morsel()).value)
        if self.path == "/oauth2/start":
            self.send_response(302)
            self.send_header("Location", "https://login.example/")
        elif person and "X-Wavetune-Proxy" not in self.headers:
            self.send_response(202)
            self.send_header("X-Auth-Request-Email", person[0])
            self.send_header("X-Auth-Request-Groups", person[1])
        else:
            self.send_response(401)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def proxy(server, tmp_path):  # noqa: F811
    program("nginx")
    authority = Authority(tmp_path)
    sign_in = http.server.ThreadingHTTPServer(("127.0.0.1", 0), SignIn)
    threading.Thread(target=sign_in.serve_forever, daemon=True).start()
    proxy = Proxy("nginx", tmp_path, server, authority, "nginx-sign-in.conf",
                  {"127.0.0.1:4180": f"127.0.0.1:{sign_in.server_port}", "X-Wavetune-Proxy SECRET": f"X-Wavetune-Proxy {SECRET}"})
    proxy.client = Client(authority)
    yield proxy
    proxy.kill()
    sign_in.shutdown()


def test_a_person_signs_in_through_nginx(proxy, server):
    def ask(method, path, who=None, body=None, **headers):
        more = {"Cookie": f"session={who}"} if who else {}
        return proxy.client.ask(proxy.port, method, path, body, headers={**more, **{k.replace("_", "-"): v for k, v in headers.items()}})

    assert ask("GET", "/").status == 302 and ask("GET", "/v1/token").status == 401
    assert ask("GET", "/", "bob").status == 200 and ask("GET", "/web/app.js", "bob").status == 200
    assert ask("GET", "/v1/token", "alice").json["name"] == "tuners:alice@example.com"
    assert ask("GET", "/v1/token", "bob").json["name"] == "viewers:bob@example.com"
    assert "no rule lets you" in ask("GET", "/v1/sign-in", "mallory").json["problem"]

    forged = {"X_Forwarded_User": "root@example.com", "X_Forwarded_Groups": "tuners", "X_Wavetune_Proxy": SECRET,
              "Authorization": f"Bearer {server.token}", "X_Client_Cert": urllib.parse.quote("x")}
    for name, value in forged.items():
        assert ask("GET", "/v1/token", "bob", **{name: value}).json["name"] == "viewers:bob@example.com", name
        assert ask("GET", "/v1/token", **{name: value}).status == 401, name

    assert ask("POST", "/v1/jobs/cancel", "alice", {"tag": "none"}).status == 403, "without X-Wavetune"
    done = ask("POST", "/v1/jobs/cancel", "alice", {"tag": "none"}, X_Wavetune="page", Sec_Fetch_Site="same-origin")
    assert done.status == 200, done
    assert ask("POST", "/v1/jobs/cancel", "alice", {"tag": "none"}, X_Wavetune="page", Sec_Fetch_Site="cross-site").status == 403
    assert ask("POST", "/v1/jobs/cancel", "bob", {"tag": "none"}, X_Wavetune="page", Sec_Fetch_Site="same-origin").status == 403
