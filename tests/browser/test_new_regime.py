"""The page over a server with one more regime (tests/new_regime.c): it knows no regime by name."""

import urllib.parse

import browser as browsers
import harness
import pytest
from hands import ENVIRONMENT, SMALL, Hand, register


@pytest.fixture
def server(monkeypatch, tmp_path):
    postgres, server = harness.Postgres(durable=False), None
    try:
        database = postgres.database()
        monkeypatch.setattr(harness, "BUILD", harness.BUILD / "tests/new_regime")
        server = harness.Server(database, tmp_path, options=harness.UNHURRIED)
        yield server
    finally:
        if server:
            server.kill()
        postgres.stop()


def test_jobs_and_releases_of_it_are_shown_with_their_channel(chromium, server):
    kernel = register(server)
    jobs = {}
    for regime in ("cold", "tepid"):
        jobs[regime] = server.request("POST", "/v1/jobs", {
            "kernel": kernel, "key": {"n": 64}, "space": SMALL, "environment": ENVIRONMENT, "regime": regime}).json["job"]
        Hand(server, regime, runs=[f"measure:{regime}"]).work(ratios={1: 0.5})
        release = server.request("POST", "/v1/releases", {"environment": ENVIRONMENT, "regime": regime}).json["release"]
        moved = server.request("PUT", f"/v1/channels/{regime}-is-here", {"release": release}, headers={"If-None-Match": "*"})
        assert moved.status == 200, moved
    tab = browsers.Tab(chromium, server).sign_in(server.token)
    text = tab.show(f"#/job/{jobs['tepid']}").locator("main").inner_text()
    assert "tepid" in text and "--regime tepid" in text
    page = tab.show(f"#/release/{urllib.parse.quote(release)}").locator("main")
    assert page.locator("h3").all_inner_texts().count("tepid-is-here") == 1
    assert "cold-is-here" not in page.locator("h3").all_inner_texts()
    assert tab.complaints == []
    tab.close()
