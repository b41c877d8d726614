"""wavetune.Client: jobs, measurements and releases of a real server, and what a script meets when something is wrong."""

import importlib.util
import socket
import ssl
import sys
import threading
import time

import harness
import pytest
from certificates import Authority
from hands import ENVIRONMENT, SMALL, hands, kernel, server, submit  # noqa: F401
from harness import FakeServer, make_token

sys.path.insert(0, str(harness.SOURCE / "python"))
from wavetune.client import ApiError, Client  # noqa: E402


@pytest.fixture
def client(server, monkeypatch):  # noqa: F811
    for name in ("WAVETUNE_URL", "WAVETUNE_TOKEN", "WAVETUNE_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    return Client(server.url, server.token, patience_s=0)


def job_of(kernel, n=64, **more):  # noqa: F811
    return {"kernel": kernel, "key": {"n": n}, "space": SMALL, "environment": ENVIRONMENT} | more


def test_a_job_is_submitted_waited_for_read_and_released(client, hands, kernel):  # noqa: F811
    hand, answer = hands("a"), client.submit(**job_of(kernel))
    assert answer["created"] and not client.submit(**job_of(kernel))["created"]

    def work():
        while client.job(answer["job"])["state"] not in ("done", "failed"):
            hand.work(ratios={0: 1.0, 1: 0.5, 2: 2.0})

    worker = threading.Thread(target=work)
    worker.start()
    done, = client.wait(answer["job"], timeout_s=60)
    worker.join()
    assert (done["state"], done["winner"]["config_values"]) == ("done", {"A": 2})
    measured = list(client.measurements(answer["job"]))
    assert {one["config"] for one in measured} == {0, 1, 2} and all(one["outcome"] == "correct" for one in measured)
    made = client.publish(ENVIRONMENT, channel="stable")
    assert client.release(made["release"])["kernels"][0]["winners"]
    assert [one["release"] for one in client.releases()] == [made["release"]]
    assert client.list("/v1/channels").__iter__().__next__()["release"] == made["release"]


def test_jobs_are_cancelled_and_listed_over_many_pages(client, kernel):  # noqa: F811
    answers = client.submit_all([job_of(kernel, n) for n in range(1, 1203)])
    assert len(answers) == 1202 and len({answer["job"] for answer in answers}) == 1202
    assert client.cancel(answers[0]["job"])["state"] == "cancelled"
    assert len(list(client.jobs(state="queued"))) == 1201 and [j["job"] for j in client.jobs(state="cancelled")] == [answers[0]["job"]]


def test_waiting_ends_in_time_and_says_what_the_job_waits_for(client, kernel):  # noqa: F811
    answer = client.submit(**job_of(kernel))
    with pytest.raises(TimeoutError, match=f"job {answer['job']} is queued: "):
        client.wait(answer["job"], timeout_s=1)


def test_a_refusal_says_kind_and_place(client, server, database, kernel):  # noqa: F811
    with pytest.raises(ApiError) as refused:
        client.submit(**job_of(kernel) | {"key": {"m": 1}})
    assert (refused.value.kind, refused.value.status, refused.value.pointer) == ("invalid", 422, "/key/m")
    with pytest.raises(ApiError) as missing:
        client.job(999)
    assert missing.value.kind == "missing" and "999" in str(missing.value)
    with pytest.raises(ApiError) as forbidden:
        Client(server.url, make_token(database, "reads", "reader"), patience_s=0).submit(**job_of(kernel))
    assert forbidden.value.kind == "forbidden"


def test_a_server_that_is_away_is_asked_again_for_as_long_as_one_has_patience(server, kernel, database, tmp_path):  # noqa: F811
    client, port = Client(server.url, server.token, patience_s=60), server.port
    server.stop()
    with pytest.raises(ApiError) as away:
        Client(server.url, server.token, patience_s=0.5).job(1)
    assert away.value.kind == "unreachable" and server.url in str(away.value)
    started = []
    later = threading.Timer(1.0, lambda: started.append(harness.Server(database, tmp_path, port=port)))
    later.start()
    try:
        assert client.submit(**job_of(kernel))["created"]
    finally:
        later.join()
        started[0].stop()


def test_a_busy_server_is_asked_again_when_it_says(monkeypatch):
    answers = [(429, {"kind": "rate", "detail": "slow"}, {"Retry-After": "1"}), (200, {"ok": 1})]
    with FakeServer(lambda *_: answers.pop(0)) as fake:
        began = time.monotonic()
        assert Client(fake.url, "t").request("GET", "/v1/jobs/1") == {"ok": 1}
        assert time.monotonic() - began >= 1


def test_what_is_no_answer_of_a_server_is_one_error(monkeypatch):
    cases = [(200, b"<html>"), (302, b"", {"Location": "http://elsewhere.example/"}), (500, b"oops")]
    kinds = []
    for case in cases:
        with FakeServer(lambda *_, case=case: case) as fake, pytest.raises(ApiError) as error:
            Client(fake.url, "t", patience_s=0).job(1)
        kinds.append(error.value.kind)
    assert kinds == ["unreachable", "invalid", "unavailable"]


def test_the_token_is_not_sent_unencrypted_to_other_hosts(monkeypatch):
    with pytest.raises(ValueError, match="unencrypted"):
        Client("http://tuning.example", "secret")
    Client("http://tuning.example", "secret", insecure=True)


def test_the_url_and_the_token_come_from_the_environment(server, monkeypatch, tmp_path):  # noqa: F811
    (tmp_path / "token").write_text(server.token + "\n")
    monkeypatch.setenv("WAVETUNE_URL", server.url)
    monkeypatch.setenv("WAVETUNE_TOKEN_FILE", str(tmp_path / "token"))
    assert list(Client().jobs()) == []


def test_a_listing_becomes_a_frame_where_pandas_is_there(client, kernel):  # noqa: F811
    client.submit_all([job_of(kernel, n) for n in (1, 2)])
    if importlib.util.find_spec("pandas") is None:
        with pytest.raises(ImportError, match="pip install pandas"):
            client.jobs().frame()
    else:
        assert sorted(client.jobs().frame()["key.n"]) == [1, 2]


def test_a_proxy_of_the_environment_is_used_and_never_for_loopback(monkeypatch):
    asked = []

    def proxy(method, path, *_):
        asked.append((method, path))
        return 200, {"ok": 1}

    with FakeServer(proxy) as fake:
        monkeypatch.setenv("http_proxy", fake.url)
        assert Client("http://tuning.example:7200/x", "t", insecure=True).request("GET", "/v1/jobs/1") == {"ok": 1}
        assert Client(fake.url, "t").request("GET", "/v1/jobs/2") == {"ok": 1}
        monkeypatch.setenv("no_proxy", "tuning.example")
        with pytest.raises(ApiError, match="tuning.example"):
            Client("http://tuning.example:7200/x", "t", insecure=True, patience_s=0).request("GET", "/v1/jobs/3")
    assert asked == [("GET", "http://tuning.example:7200/x/v1/jobs/1"), ("GET", "/v1/jobs/2")]


@pytest.fixture
def tunnel(monkeypatch):
    """Starts a proxy of one connection: `serve` gets it after the CONNECT."""
    threads, asked = [], []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{port}")

        def start(serve):
            def work():
                with listener.accept()[0] as connection:
                    asked.append(connection.recv(4096))
                    serve(connection)

            threads.append(threading.Thread(target=work))
            threads[-1].start()
            return port, asked

        yield start
        for thread in threads:
            thread.join()


def test_a_proxy_that_makes_no_tunnel_is_named(tunnel):
    port, asked = tunnel(lambda connection: connection.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n"))
    with pytest.raises(ApiError, match=f"the proxy 127.0.0.1:{port} answered 403"):
        Client("https://tuning.example", "t", patience_s=0).job(1)
    assert asked[0].startswith(b"CONNECT tuning.example:443 HTTP/1.1\r\n") and b"Bearer" not in asked[0]


def test_a_tunnel_of_a_proxy_ends_at_the_server_with_its_certificate(tunnel, tmp_path):
    authority = Authority(tmp_path)
    own = authority.issue("tuning", san="DNS:tuning.example", usage="serverAuth")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(own.certificate, own.key)
    requests = []

    def serve(connection):
        connection.sendall(b"HTTP/1.1 200 Connected\r\n\r\n")
        with context.wrap_socket(connection, server_side=True) as secured:
            requests.append(secured.recv(65536))
            secured.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\nConnection: close\r\n\r\n{\"ok\":1}")

    tunnel(serve)
    client = Client("https://tuning.example", "t", ca_file=str(authority.certificate), patience_s=0)
    assert client.request("GET", "/v1/jobs/1") == {"ok": 1}
    assert requests[0].startswith(b"GET /v1/jobs/1 HTTP/1.1\r\n") and b"Authorization: Bearer t\r\n" in requests[0]
