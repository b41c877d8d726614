"""Whatever goes wrong, the program does what it does without wavetune, and loses little time. The seconds are printed
(pytest -s); the bound that is asserted is generous, for the machine may be busy."""

import math
import os
import re
import shutil
import socket
import ssl
import subprocess
import threading
import time

import pytest
from conftest import TUNED
from contract_server import TOKEN, Contract, canonical, document
from starting import UNTOUCHED, choices, essence, python, tuned

from wavetune._runtime import counters, wire

BOUND_MS = 15000.0  # what a program loses is 0.5 s by the clock; a busy machine adds to it, and what hangs does so for 30 s
CHOSEN = [512, 4]


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """What runs in the process of the tests waits for its server, however slow the machine is; programs have their own times."""
    monkeypatch.setattr(wire, "FIRST_BYTE_S", 60.0)
    monkeypatch.setattr(wire, "BACKGROUND_S", 60.0)


@pytest.fixture
def server():
    with Contract() as made:
        made.document = document(choices(4096))
        yield made


def hang(handler):
    handler.server.wait(60)
    return True


def drip(data, at_once=b""):
    def trouble(handler):
        handler.wfile.write(at_once)
        for i in range(len(data)):
            handler.wfile.write(data[i:i + 1])
            handler.wfile.flush()
            handler.server.wait(1)
        return True
    return trouble


def raw(data):
    def trouble(handler):
        handler.wfile.write(data)
        handler.close_connection = True
        return True
    return trouble


def status(number, body=b"{}", **headers):
    def trouble(handler):
        handler.answer(number, body, **headers)
        return True
    return trouble


def endless(handler):
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    for _ in range(100 * 1024):
        handler.wfile.write(b"400\r\n" + b"x" * 1024 + b"\r\n")
    return True


OK = b"HTTP/1.1 200 OK\r\nContent-Length: "
TROUBLES = {
    "hanging": hang,
    "dripping the headers": drip(OK + b"100\r\n\r\n"),
    "dripping the body": drip(b"x" * 100, OK + b"100\r\n\r\n"),
    "garbage": raw(b"\x00\xff garbage \r\n\r\n" * 100),
    "nothing": raw(b""),
    "half a body": raw(OK + b"100\r\n\r\nabc"),
    "no JSON": status(200, b"hello\nworld\nagain\n"),
    "JSON of another kind": status(200, b"[]\n5\n{}\n"),
    "lines too few": status(200, b"{}"),
    "a deep JSON": status(200, b"[" * 200000 + b"\n\n\n"),
    "endless headers": raw(b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 100000),
    "an endless body": endless,
    "a body that states 1 TiB": raw(OK + b"1099511627776\r\n\r\n"),
    "400": status(400), "401": status(401), "403": status(403), "404": status(404), "409": status(409), "429": status(429),
    "500": status(500), "503": status(503), "302": status(302, Location="http://127.0.0.1:1/")}


def logged(tmp_path):
    return {"WAVETUNE_LOG": str(tmp_path / "log")}


def seconds(tmp_path):
    """What the program lost in all, as its last line in the log says."""
    found = re.findall(r"lost_ms ([0-9.e+-]+)", (tmp_path / "log").read_text())
    return float(found[-1])


def check(what, report, tmp_path, expected=UNTOUCHED):
    assert essence(report) == expected
    lost_ms = seconds(tmp_path)
    print(f"\n{what}: lost {lost_ms:.0f} ms, requests {report['counters']['requests']}")
    assert lost_ms < BOUND_MS


@pytest.mark.parametrize("what", TROUBLES)
def test_a_server_that_misbehaves_costs_little(server, tmp_path, what):
    server.trouble = TROUBLES[what]
    (report,) = tuned(4096, cache=tmp_path / "cache", patience=0, server=server, WAVETUNE_SHARED_CODE="1", **logged(tmp_path))
    check(what, report, tmp_path)


@pytest.mark.parametrize("what", ["away", "hanging before TLS", "hanging in TLS", "a name server that does not answer",
                                  "no such host", "no URL", "a plain server behind https"])
def test_a_server_that_cannot_be_reached_costs_little(server, tmp_path, what):
    variables, listening = {}, socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    url = {"away": f"http://127.0.0.1:{port}", "no URL": "localhost", "no such host": "https://wavetune.invalid",
           "a plain server behind https": server.url.replace("http", "https")}.get(what, f"https://127.0.0.1:{port}")
    if what == "away":
        listening.close()
    elif what == "a name server that does not answer":
        url = "https://wavetune.example"
        (tmp_path / "sitecustomize.py").write_text(
            "import socket, time\nreal = socket.getaddrinfo\n"
            "def slow(host, port, *args, **kwargs):\n"
            "    if kwargs.get('flags') != socket.AI_NUMERICHOST:\n        time.sleep(60)\n"
            "    return real(host, port, *args, **kwargs)\nsocket.getaddrinfo = slow\n")
        from starting import ROOT
        variables["PYTHONPATH"] = f"{tmp_path}:{ROOT / 'python'}:{TUNED}"
    elif what == "hanging in TLS":
        def accept():
            connection = listening.accept()[0]
            connection.recv(1)  # and never answers
            time.sleep(30)
        threading.Thread(target=accept, daemon=True).start()
    (report,) = tuned(4096, cache=tmp_path / "cache", patience=0, server=url, **logged(tmp_path), **variables)
    assert essence(report) == UNTOUCHED
    lost_ms = report["counters"]["lost_ms"]
    print(f"\n{what}: lost {lost_ms:.0f} ms, requests {report['counters']['requests']}")
    assert lost_ms < BOUND_MS
    listening.close()


def test_a_server_that_fails_after_the_choices_costs_little(server, tmp_path):
    server.trouble = lambda handler: "/remote/" in handler.path and hang(handler)
    (report,) = tuned(4096, cache=tmp_path / "cache", patience=1.5, server=server, WAVETUNE_SHARED_CODE="1", **logged(tmp_path))
    check("hanging at code", report, tmp_path, {"used": [CHOSEN] * 2, "benchmarked": 0, "compiled": 2})


@pytest.mark.parametrize("what, body", [("16 MiB of code", raw(OK + b"17000000\r\n\r\n" + b"x" * 100000)),
                                        ("403 for code", status(403))])
def test_code_that_is_too_large_or_forbidden_is_not_taken(server, tmp_path, what, body):
    server.trouble = lambda handler: "/remote/" in handler.path and body(handler)
    (report,) = tuned(4096, cache=tmp_path / "cache", server=server, WAVETUNE_SHARED_CODE="1", **logged(tmp_path))
    check(what, report, tmp_path, {"used": [CHOSEN] * 2, "benchmarked": 0, "compiled": 2})


def test_a_server_that_hangs_at_a_report_lets_the_program_end(server, tmp_path):
    server.document = {"functions": {}}
    server.trouble = lambda handler: "demand" in handler.path and hang(handler)
    (report,) = tuned(4096, cache=tmp_path / "cache", patience=0, server=server, **logged(tmp_path))
    check("hanging at a report", report, tmp_path)


def test_a_budget_of_nothing_keeps_a_program_from_waiting(server, tmp_path):
    (report,) = tuned(4096, cache=tmp_path / "cache", server=server, WAVETUNE_BUDGET_MS="0")
    assert essence(report) == UNTOUCHED and server.asked("GET") == [] and report["counters"]["lost_ms"] < 1


def test_nothing_is_printed_unless_it_is_asked_for(server, tmp_path):
    """WAVETUNE_LOG may have a level, which other programs read."""
    server.trouble = TROUBLES["500"]
    tuned(4096, cache=tmp_path / "cache", patience=0, server=server)  # asserts that stderr is empty
    (report,) = tuned(4096, cache=tmp_path / "cache", patience=0, server=server, WAVETUNE_LOG="info")
    assert report["counters"]["failures"] in (1, 2)  # the list of starts may be requested beside the choices


# The client itself

@pytest.fixture
def client(server):
    counters.reset()
    server.trouble = None
    return wire.Wire(server.url, TOKEN)


def test_a_connection_is_kept_and_made_anew_where_the_server_closed_it(server, client):
    for _ in range(3):
        assert client.request("GET", "/readyz").status == 200
    client.transport._local.connection.sock.sock.shutdown(socket.SHUT_RDWR)  # as if the server had closed it meanwhile
    assert client.request("GET", "/readyz").status == 200
    assert (counters.requests, counters.failures) == (4, 0)


def test_a_connection_that_the_server_closes_after_its_answer_is_read_to_the_end(server, client):
    server.trouble = raw(b"HTTP/1.0 200 OK\r\n\r\n" + b"x" * 200000)
    for _ in range(2):
        assert len(client.request("GET", "/readyz").body) == 200000
    server.trouble = raw(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello")
    assert client.request("GET", "/readyz").body == b"hello"


def test_the_breaker_opens_for_ever_longer_and_a_background_thread_closes_it(server, client, monkeypatch):
    woken = []
    client.wake = lambda: woken.append(1)
    clock = [1000.0]
    monkeypatch.setattr(wire.time, "monotonic", lambda: clock[0])
    server.trouble = status(500)
    waits = []
    for _ in range(7):
        assert client.request("GET", "/readyz", background=True) is None
        waits.append(client._open_until - clock[0])
        assert client.request("GET", "/readyz") is None and client.is_open() and not client.may_try()
        clock[0] = client._open_until
        assert client.may_try() and client.request("GET", "/readyz") is None  # a program does not find out
    assert waits == [30, 60, 120, 240, 480, 900, 900] and len(woken) == 7 and len(server.requests) == 7
    server.trouble = None
    assert client.request("GET", "/readyz", background=True).status == 200 and not client.is_open()
    assert client.request("GET", "/readyz").status == 200


def test_an_unknown_token_ends_all_requests(server):
    client = wire.Wire(server.url, "unknown")
    assert client.request("GET", "/v1/choices").status == 401
    assert client.request("GET", "/readyz") is None and len(server.requests) == 1 and not client.may_try()


@pytest.mark.parametrize("url", ["", "localhost", "ftp://localhost", "http://", "http://user:pass@localhost", "http://[",
                                 "http://x:y", "http://localhost/?a=b"])
def test_what_is_no_url_is_not_asked(url):
    assert not wire.Wire(url, TOKEN).is_allowed and wire.Wire(url, TOKEN).request("GET", "/") is None


def test_a_token_goes_to_loopback_or_over_tls_only():
    assert wire.Wire("http://127.0.0.1", TOKEN).is_allowed and wire.Wire("http://[::1]:80", TOKEN).is_allowed
    assert wire.Wire("https://example.org", TOKEN).is_allowed
    assert not wire.Wire("http://example.org", TOKEN).is_allowed
    assert wire.Wire("http://example.org", TOKEN, insecure=True).is_allowed
    anonymous = wire.Wire("http://example.org", None)
    assert anonymous.is_allowed and not anonymous.is_private  # choices, and no code


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                    "-days", "2", "-subj", "/CN=wavetune", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", folder / "key.pem", "-out",
                    folder / "cert.pem"], check=True, capture_output=True)
    return folder


def test_https_takes_the_certificates_of_a_file_and_no_others(certificate, tmp_path):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
    with Contract(context) as server:
        server.document = document(choices(4096))
        (report,) = tuned(4096, cache=tmp_path / "1", server=server, WAVETUNE_CA_FILE=str(certificate / "cert.pem"))
        assert report["used"] == [CHOSEN] * 2
        (report,) = tuned(4096, cache=tmp_path / "2", server=server)
        assert essence(report) == UNTOUCHED and len(server.asked("GET")) == 1
        (report,) = tuned(4096, cache=tmp_path / "3", server=server, WAVETUNE_CA_FILE=str(tmp_path / "absent.pem"))
        assert essence(report) == UNTOUCHED


def test_a_document_is_asked_for_again_after_a_while_with_its_etag(server, monkeypatch):
    from wavetune._runtime.choices import Choices
    from wavetune._runtime.settings import Settings
    found = Choices(Settings({"WAVETUNE_ENVIRONMENT": "{}"}, TOKEN), wire.Wire(server.url, TOKEN))
    (closure, _, key, config), *_ = choices(4096)
    assert found.find(closure, tuple(key)).config == config and found.find(closure, ("5",)) is None
    found._got_s -= 601
    assert found.find(closure, ("6",)) is None and len(server.asked("GET")) == 2 and found.find(closure, tuple(key))
    server.document = document(choices(7))
    found._got_s -= 601
    assert found.find(*[(c, tuple(k)) for c, _, k, _ in choices(7)][0]).config == config


def test_other_choices_take_the_place_of_earlier_answers(server):
    from wavetune._runtime.choices import Choices
    from wavetune._runtime.settings import Settings
    found = Choices(Settings({"WAVETUNE_ENVIRONMENT": "{}"}, TOKEN), wire.Wire(server.url, TOKEN))
    (closure, _, _, config), *_ = choices(4096)
    server.later = {(closure, ("5",)): config}
    assert found.find(closure, ("5",)).config == config
    server.later, server.document = {}, document(choices(7))  # as when the channel moved
    found._got_s -= 601
    assert found.find(closure, ("6",)) is None and found.find(closure, ("5",)) is None


def test_threads_that_miss_at_once_ask_together(server):
    from wavetune._runtime.choices import Choices
    from wavetune._runtime.settings import Settings
    (closure, _, key, config), *_ = choices(4096)
    server.later = {(closure, (str(n),)): config for n in range(8)}
    server.trouble = lambda handler: handler.server.wait(0.2)
    found = Choices(Settings({"WAVETUNE_ENVIRONMENT": "{}"}, TOKEN), wire.Wire(server.url, TOKEN))
    answers = []
    threads = [threading.Thread(target=lambda n=n: answers.append(found.find(closure, (str(n),)))) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(answer.config == config for answer in answers) and len(server.asked("GET")) == 1
    assert len(server.asked("POST")) <= 2


def missed(n):
    return {"function": "sha256:" + "a" * 64, "name": "f", "key": [str(n)], "why": "it is new"}


def miss(sending, n=1):
    """A miss of a key that the program tunes at once."""
    item = missed(n)
    sending.missed(item)
    sending.tuned(item, 2.5)


def test_misses_wait_for_a_server_that_is_back_and_are_bounded(server, client, monkeypatch):
    from wavetune._runtime import sender
    monkeypatch.setattr(sender, "MISSES_MAX", 3)
    monkeypatch.setattr(wire, "BREAK_S", 0.2)
    server.trouble = status(500)
    sending = sender.Sender(wire.Wire(server.url, TOKEN), lambda: {"environment": {}})
    sending.probe()
    server.wait_for(lambda: sending.wire.is_open())
    for n in range(5):
        miss(sending, n)
    asked = len(server.requests)
    server.wait_for(lambda: len(server.requests) > asked)
    server.trouble = None
    server.wait_for(lambda: server.missed, 30)
    assert [one["key"] for one in server.tuned()] == [["0"], ["1"], ["2"]]
    assert server.asked("GET", "/readyz") and server.asked("POST").count("/v1/demand") == 1


def test_files_beyond_the_queue_are_dropped_and_a_403_ends_them(server, client):
    from wavetune._runtime import sender
    sending = sender.Sender(client, dict)
    server.trouble = status(403)
    sending.file("/v1/remote/triton/a/b", b"x" * (17 * 1024 * 1024))
    assert counters.dropped == 1
    for _ in range(300):
        sending.file("/v1/remote/triton/a/b", b"x")
    server.wait_for(lambda: not sending._may_send_files)
    sending.file("/v1/remote/triton/a/b", b"x")
    assert counters.dropped == 302 and len(server.requests) == 1, "the one that was refused"


def test_a_limit_of_requests_holds_misses_back_and_nothing_else(server, client):
    from wavetune._runtime import sender
    server.trouble = status(429)
    sending = sender.Sender(client, lambda: {"environment": {}})
    miss(sending)
    server.wait_for(lambda: time.monotonic() + 20 < sending._report_at < math.inf)
    assert not client.is_open() and len(sending._misses["missed"]) == 1
    ending = sender.Sender(client, lambda: {"environment": {}})
    miss(ending, 2)
    before = len(server.requests)
    ending.stop()  # sends it once more, and drops it
    assert len(server.requests) == before + 1 and not any(ending._misses.values())
    server.trouble = None
    sending._report_at = 0.0
    sending.probe()
    server.wait_for(lambda: server.missed)
    assert [one["key"] for one in server.tuned()] == [["1"]]


def test_misses_that_are_forbidden_are_not_sent_again(server, client):
    from wavetune._runtime import sender
    server.trouble = status(403)
    sending = sender.Sender(client, lambda: {"environment": {}})
    miss(sending)
    server.wait_for(lambda: not sending._may_send_misses)
    miss(sending, 2)
    assert not any(sending._misses.values())


# What programs count

def add(sending, hits):
    counters.hits += hits
    sending.counted()


@pytest.fixture
def sending(client):
    from wavetune._runtime import sender
    return sender.Sender(client, lambda: {"environment": {}})


def test_counters_are_sent_after_a_while_and_then_what_came_since(server, sending, monkeypatch):
    from wavetune._runtime import sender
    monkeypatch.setattr(sender, "REPORT_S", 0.05)
    add(sending, 3)
    server.wait_for(lambda: server.counted == [{"hits": 3}])
    counters.saved_ms += 0.1 + 0.2
    add(sending, 1)
    server.wait_for(lambda: server.counted == [{"hits": 3}, {"hits": 1, "saved_ms": 0.3}])


def test_counters_go_with_what_was_tuned(server, sending):
    add(sending, 3)
    miss(sending)
    server.wait_for(lambda: server.counted)
    assert server.counted == [{"hits": 3}] and len(server.tuned()) == 1 and len(server.requests) == 2
    sending.stop()
    assert len(server.requests) == 2, "nothing is left"


def test_the_tag_of_counters_is_the_programs(server, client):
    from wavetune._runtime import sender
    sending = sender.Sender(client, lambda: {"environment": {}, "tag": "chat", "regime": "warm"})
    add(sending, 3)
    sending.stop()
    server.wait_for(lambda: server.counted == [{"tag": "chat", "hits": 3}])


def test_counters_wait_for_the_end_of_the_program(server, sending):
    add(sending, 250000)
    assert server.requests == []
    counters.hits -= 1  # one was none after all
    sending.stop()
    server.wait_for(lambda: server.counted == [{"hits": 100000}, {"hits": 100000}, {"hits": 49999}])


def test_counters_of_a_report_without_an_answer_are_not_sent_again(server, sending, monkeypatch):
    from wavetune._runtime import sender
    monkeypatch.setattr(sender, "REPORT_S", 0.05)
    sending.wire._break_s = 0.1
    server.trouble = status(500)
    add(sending, 3)
    server.wait_for(lambda: server.requests)
    add(sending, 4)
    server.wait_for(lambda: server.asked("GET", "/readyz"))
    server.trouble = None
    server.wait_for(lambda: server.counted, 30)
    assert server.counted == [{"hits": 4, "failures": len(server.asked("GET", "/readyz"))}]


def test_counters_that_are_too_many_now_are_sent_later(server, sending, monkeypatch):
    from wavetune._runtime import sender
    monkeypatch.setattr(sender.random, "uniform", lambda *_: 0.1)
    server.trouble = lambda handler: len(server.asked("POST", "/v1/counters")) < 2 and status(429)(handler)
    monkeypatch.setattr(sender, "REPORT_S", 0.05)
    add(sending, 3)
    server.wait_for(lambda: server.counted)
    assert server.counted == [{"hits": 3}] and len(server.requests) == 2


def test_counters_that_are_forbidden_end_them(server, sending):
    server.trouble = status(403)
    add(sending, 3)
    miss(sending)
    server.wait_for(lambda: not sending._may_send_counters)
    add(sending, 1)
    sending.stop()
    assert server.asked("POST") == ["/v1/demand", "/v1/counters"]


def test_a_name_is_resolved_also_when_the_interpreter_ends(server, monkeypatch):
    def start(thread):
        raise RuntimeError("can't create new thread at interpreter shutdown")
    client = wire.Wire(server.url.replace("127.0.0.1", "localhost"), TOKEN)
    monkeypatch.setattr(wire.threading, "Thread", type("Thread", (threading.Thread,), {"start": start}))
    assert client.transport._resolver.addresses(time.monotonic() + 60)


def test_a_child_of_a_fork_has_its_own_connection_queue_and_locks(server, client):
    from wavetune._runtime import sender
    sending = sender.Sender(client, lambda: {"environment": {}})
    assert client.request("GET", "/readyz").status == 200
    parents = client.transport._local.connection
    sending._condition.acquire()  # as a thread of the parent may, when it forks
    client._lock.acquire()
    sending.after_fork()
    client.after_fork()
    assert client.request("GET", "/readyz").status == 200 and client.transport._local.connection is not parents
    miss(sending)
    server.wait_for(lambda: server.missed)


def test_settings_that_are_wrong_are_as_if_they_were_not_there():
    from wavetune._runtime.settings import Settings
    found = Settings({"WAVETUNE_URL": "http://localhost/", "WAVETUNE_ON_MISS": "guess", "WAVETUNE_BUDGET_MS": "many",
                      "WAVETUNE_ENVIRONMENT": "{", "WAVETUNE_IMAGE": "latest", "WAVETUNE_IDENTITY": "/nonexistent"}, None)
    assert (found.url, found.on_miss, found.budget_s) == ("http://localhost", "tune", 2.0)
    assert isinstance(found.environment(), dict) and found.image().startswith("sha256:") and found.identity() == {}
    stated = Settings({"WAVETUNE_IMAGE": "sha256:" + "1" * 64, "WAVETUNE_ENVIRONMENT": '{"gpu": "X"}'}, None)
    assert stated.image() == "sha256:" + "1" * 64 and stated.environment() == {"gpu": "X"}


def test_a_token_that_is_no_text_of_a_header_is_none(tmp_path):
    from wavetune._runtime import settings
    settings.forget()
    for text in ("two words", "a\nb", "ü", ""):
        assert settings.take_token({"WAVETUNE_TOKEN": text}) is None
    variables = {"WAVETUNE_TOKEN": "secret", "WAVETUNE_TOKEN_FILE": str(tmp_path / "absent")}
    assert settings.take_token(variables) == "secret" and "WAVETUNE_TOKEN" not in variables
    (tmp_path / "token").write_text("other\n")
    assert settings.take_token({"WAVETUNE_TOKEN": "secret", "WAVETUNE_TOKEN_FILE": str(tmp_path / "token")}) == "other"
    assert settings.taken_token() == "other"
    settings.forget()


def test_a_partition_is_named_as_agents_name_it(monkeypatch, tmp_path):
    from wavetune._runtime import environment
    for card, modes in (("card1", ("SPX\n", "NPS1\n")), ("card2", ("SPX\n", "NPS1\n"))):
        (tmp_path / card).mkdir()
        for kind, mode in zip(("compute", "memory"), modes):
            (tmp_path / card / f"current_{kind}_partition").write_text(mode)
    monkeypatch.setattr(environment.glob, "glob", lambda _: [str(path) for path in tmp_path.glob("*/current_compute_partition")])
    assert environment.partitions() == {"SPX/NPS1"} and environment._partition() == "SPX/NPS1"
    (tmp_path / "card2/current_memory_partition").write_text("NPS4\n")
    assert environment._partition() is None, "the GPUs are not alike"
    os.remove(tmp_path / "card1/current_memory_partition"), shutil.rmtree(tmp_path / "card2")
    assert environment._partition() == "SPX"


def test_the_environment_is_what_torch_and_triton_say(monkeypatch):
    import types

    import triton

    from wavetune._runtime import environment
    device = types.SimpleNamespace(multi_processor_count=304, gcnArchName="gfx942:sramecc+:xnack-", major=9, minor=4)
    cuda = types.SimpleNamespace(is_available=lambda: True, current_device=lambda: 0, get_device_properties=lambda _: device,
                                 get_device_name=lambda: "AMD Instinct MI300X")
    torch = types.SimpleNamespace(__version__="2.9.0+rocm6.4", cuda=cuda, version=types.SimpleNamespace(hip="6.4", cuda=None))
    monkeypatch.setitem(environment.sys.modules, "torch", torch)
    monkeypatch.setattr(environment, "rocm", lambda: "6.4.1")
    monkeypatch.setattr(environment, "_partition", lambda: "SPX")
    assert environment.find({}) == {"rocm": "6.4.1", "torch": "2.9.0+rocm6.4", "triton": triton.__version__, "arch": "gfx942",
                                    "gpu": "AMD Instinct MI300X", "compute_units": 304, "partition": "SPX"}
    torch.version = types.SimpleNamespace(hip=None, cuda="12.8")
    cuda.get_device_name = lambda: "NVIDIA H200"
    found = environment.find({"rocm": None})
    assert (found["cuda"], found["arch"], found["partition"], found["gpu"]) == ("12.8", "sm_94", "", "NVIDIA H200")
    cuda.is_available = lambda: False
    assert environment.find({"gpu": "stated"})["gpu"] == "stated"
    cuda.is_available = lambda: 1 / 0
    assert environment.find({"torch": "2.9.0"})["torch"] == "2.9.0"
