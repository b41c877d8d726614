"""The web page in a real browser, over a real server: every page on narrow and wide screens, light and dark, by keyboard, for
screen readers, with names that are no text to be trusted, and with tokens that may do less than others."""

import functools
import http.server
import threading
import urllib.parse

import pytest
from browser import NARROW, WIDE
from conftest import HOSTILE, RATIOS, REFUSED, SECRET
from harness import make_token, wait_until

# Each page by what its address needs of the world.
PAGES = {
    "fleet": lambda world: "#/fleet",
    "fleet of a state": lambda world: "#/fleet?state=idle",
    "jobs": lambda world: "#/jobs",
    "a campaign": lambda world: "#/jobs?tag=default&run=again&by=campaign",
    "a done job": lambda world: f"#/job/{world.jobs[0]}",
    "a running job": lambda world: f"#/job/{world.hostile}",
    "a queued job": lambda world: f"#/job/{world.running}",
    "kernels": lambda world: "#/kernels",
    "a kernel": lambda world: f"#/kernel/{urllib.parse.quote(world.kernel)}",
    "releases": lambda world: "#/releases",
    "a release": lambda world: f"#/release/{urllib.parse.quote(world.new)}?against={urllib.parse.quote(world.old)}",
    "a device": lambda world: f"#/device/{world.agent.id}/cpu0",
    "a drained device": lambda world: f"#/device/{world.drained.id}/cpu1",
    "captures": lambda world: "#/captures",
    "cost": lambda world: "#/cost",
    "cost by person": lambda world: "#/cost?by=owner&days=7",
    "no page": lambda world: "#/nothing",
}
WRITING = ["Cancel", "Cancel what is open", "Retry what failed", "Promote or roll back…"]


@pytest.mark.parametrize("width, dark", [(WIDE, False), (NARROW, True)])
def test_every_page_is_whole_and_open_to_everybody(tab, world, axe_source, width, dark):
    shown = tab("admin", width=width, dark=dark, bypass_csp=True)  # axe is a script that the page's policy forbids
    faults = []
    for name, address in PAGES.items():
        page = shown.show(address(world))
        if len(page.locator("main").inner_text()) < 40 or (name == "no page") != ("Not found" in page.locator("main h1").first.inner_text()):
            faults.append(f"{name}: {page.locator('main').inner_text()[:200]}")
        if shown.overflows():
            faults.append(f"{name} is wider than {width} pixels")
        page.evaluate(axe_source)
        found = page.evaluate("axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'best-practice']})")
        faults += [f"{name}: {each['impact']} {each['id']}: {[node['html'][:160] for node in each['nodes'][:3]]}"
                   for each in found["violations"] if each["impact"] in ("serious", "critical")]
    assert not faults, "\n".join(faults)


def test_the_console_is_empty_and_every_request_goes_to_the_server(tab, world):
    shown = tab("admin")
    for address in PAGES.values():
        page = shown.show(address(world))
        assert page.evaluate("window.owned") is None and page.locator("img").count() == 0
    assert shown.complaints == []
    assert {urllib.parse.urlsplit(url)[:2] for url in shown.requests} == {urllib.parse.urlsplit(world.server.url)[:2]}
    assert not any(token in url for url in shown.requests for token in world.tokens.values())


def test_a_name_that_is_code_is_shown_as_text(tab, world):
    shown = tab()
    for address in ("#/jobs", f"#/job/{world.hostile}", "#/kernels", f"#/device/{world.drained.id}/cpu1", "#/fleet"):
        page = shown.show(address)
        assert HOSTILE in page.locator("main").inner_text(), address
        assert page.evaluate("window.owned") is None and page.locator("img").count() == 0
    assert shown.complaints == []


def test_signing_in_and_out(tab, world):
    shown = tab(None)
    page = shown.page
    page.goto(world.server.url + "/#/jobs")
    page.get_by_label("Token").fill("wt_wrong")
    page.get_by_role("button", name="Sign in").click()
    page.get_by_text("The server does not know this token").wait_for()
    page.get_by_label("Token").fill(world.tokens["reader"])
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Jobs").wait_for()
    assert page.get_by_text("eve-reads").is_visible()
    # Kept for this tab, and nowhere that another tab, page or a log would have it.
    assert page.evaluate("[localStorage.length, document.cookie, location.href.includes('wt_')]") == [0, "", False]
    page.reload()
    page.get_by_role("heading", name="Jobs").wait_for()
    page.get_by_role("button", name="Sign out").click()
    page.get_by_label("Token").wait_for()
    assert page.evaluate("sessionStorage.length") == 0
    # The console has the refused sign-in, which the browser itself reports, and nothing else.
    assert all("401" in each for each in shown.complaints)


def behind_proxy(user, groups=""):
    return {"extra_http_headers": {"X-Forwarded-User": user, "X-Forwarded-Groups": groups, "X-Wavetune-Proxy": SECRET}}


def test_a_person_whom_a_proxy_signed_in_needs_no_token(tab, world):
    shown = tab(None, **behind_proxy("zoe@example.com"))
    shown.page.goto(world.server.url + "/#/jobs")
    shown.page.get_by_role("heading", name="Jobs").wait_for()
    assert shown.page.get_by_text("eve-reads:zoe@example.com").is_visible()
    assert shown.page.get_by_role("button", name="Sign out").count() == 0 and shown.page.evaluate("sessionStorage.length") == 0
    assert shown.complaints == []

    job = world.submit(11, run="of a person")
    world.postgres.sql(f"update jobs set submitted_by = 'sam-submits:zoe@example.com' where id = {job}", conninfo=world.database)
    page = tab(None, **behind_proxy("zoe@example.com", "tuners")).page
    page.goto(f"{world.server.url}/#/job/{job}")
    page.get_by_role("button", name="Cancel", exact=True).click()
    page.get_by_role("button", name="Cancel the job").click()
    page.locator("h1 .state", has_text="cancelled").wait_for()
    assert world.server.get(f"/v1/jobs/{job}")["cancelled_by"] == "sam-submits:zoe@example.com"

    stranger = tab(None, **behind_proxy("zoe@elsewhere.com"))
    stranger.page.goto(world.server.url)
    stranger.page.get_by_text("no rule lets you use this server").wait_for()
    assert stranger.page.get_by_label("Token").is_visible() and stranger.complaints == []


def test_a_foreign_page_can_do_nothing_as_a_person_whom_a_proxy_signed_in(tab, world, tmp_path):
    job, url = world.submit(12, run="attacked"), world.server.url
    (tmp_path / "index.html").write_text(f"""<form method="post" enctype="text/plain" action="{url}/v1/jobs/cancel">
      <input name='{{"run": "attacked", "tag": "' value='"}}'><button>Win a prize</button></form>""")
    foreign = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(http.server.SimpleHTTPRequestHandler, directory=tmp_path))
    threading.Thread(target=foreign.serve_forever, daemon=True).start()
    page = tab(None, **behind_proxy("zoe@example.com", "tuners")).page
    page.goto(f"http://127.0.0.1:{foreign.server_port}/")
    done = page.evaluate("""async url => {
      const outcomes = [];
      for (const options of [{method: "DELETE"}, {method: "DELETE", headers: {"X-Wavetune": "page"}}, {method: "POST", mode: "no-cors", body: "{}"}])
        outcomes.push(await fetch(url, options).then((answer) => answer.type, () => "refused"));
      return outcomes;
    }""", f"{url}/v1/jobs/{job}")
    assert done == ["refused", "refused", "opaque"]
    with page.expect_navigation() as navigation:
        page.get_by_role("button", name="Win a prize").click()
    assert navigation.value.status == 403
    foreign.shutdown()
    assert world.server.get(f"/v1/jobs/{job}")["state"] == "queued"


def test_a_revoked_token_leads_to_signing_in(tab, world):
    token = make_token(world.database, "short-lived", "reader")
    shown = tab(None).sign_in(token)
    shown.show("#/jobs")
    assert world.server.request("DELETE", "/v1/tokens/short-lived").status == 204
    shown.page.get_by_text("Your token has ended; sign in again.").wait_for()
    assert shown.page.evaluate("sessionStorage.length") == 0


def test_a_reader_sees_no_button_that_it_may_not_press(tab, world):
    shown = tab("reader")
    for name, address in PAGES.items():
        page = shown.show(address(world))
        for button in WRITING:
            assert page.get_by_role("button", name=button, exact=True).count() == 0, (name, button)
    submitter = tab("submitter")
    assert submitter.show(f"#/job/{world.running}").get_by_role("button", name="Cancel", exact=True).count() == 1
    assert submitter.show(PAGES["a release"](world)).get_by_role("button", name="Promote or roll back…").count() == 0


def test_a_job_is_cancelled_after_a_question(tab, world):
    job = world.submit(10, run="to cancel", token=world.tokens["submitter"])
    page = tab("submitter").show(f"#/job/{job}")
    page.get_by_role("button", name="Cancel", exact=True).click()
    page.keyboard.press("Escape")
    page.locator("dialog").wait_for(state="detached")
    assert world.server.get(f"/v1/jobs/{job}")["state"] == "queued"
    page.get_by_role("button", name="Cancel", exact=True).click()
    page.get_by_role("button", name="Cancel the job").click()
    page.locator("h1 .state", has_text="cancelled").wait_for()
    found = world.server.get(f"/v1/jobs/{job}")
    assert found["state"] == "cancelled" and found["cancelled_by"] == "sam-submits"


def test_a_release_shows_who_fetched_it(tab, world):
    query = urllib.parse.urlencode(world.server.get("/v1/channels")["items"][0]["environment"])
    digest = world.server.request("GET", f"/v1/cache?{query}", token=world.tokens["reader"]).json["release"]
    way = f"/v1/releases/{digest}/fetches"
    wait_until(lambda: ("eve-reads", "entry") in {(row["fetched_by"], row["kind"]) for row in world.server.items(way)}, 120, "the row")
    world.postgres.sql(f"""
        insert into release_fetchers (release, fetched_by_id, fetched_by, kind, channel, rule, requests, first_at, last_at)
        select release, 999, '{HOSTILE.replace("'", "''")}', 'files', '', '', 7, now() - interval '30 d', now() - interval '20 d'
        from release_fetchers where release = '\\x{digest[7:]}' limit 1""", conninfo=world.database)
    shown = tab("reader")
    page = shown.show(f"#/release/{urllib.parse.quote(digest)}")
    rows = page.get_by_role("region", name="Fetches of the release").locator("tbody tr").all_inner_texts()
    assert any("eve-reads" in row and "the channel's entry" in row and "stable" in row and "exact" in row for row in rows), rows
    assert HOSTILE in rows[-1] and "by its digest" in rows[-1] and "20" in rows[-1], "the last fetch comes first"
    assert page.evaluate("window.owned") is None and shown.complaints == []


def test_a_channel_is_moved_and_rolled_back(tab, world):
    def served():
        return world.server.get("/v1/channels")["items"][0]

    def movers():
        query = urllib.parse.urlencode(served()["environment"])
        return {entry["counter"]: entry["moved_by"] for entry in world.server.items(f"/v1/channels/stable/entries?{query}")}

    shown = tab("publisher")
    for target, other in ((world.new, world.old), (world.old, world.new)):
        before = served()
        page = shown.show(f"#/release/{urllib.parse.quote(target)}")
        assert page.locator("#channel option").all_inner_texts() == ["stable"]
        page.get_by_role("button", name="Promote or roll back…").click()
        page.get_by_role("heading", name="Move stable to this release?").wait_for()
        assert other[7:19] in page.locator("dialog").inner_text()
        page.get_by_role("button", name="Move the channel").click()
        page.get_by_text("stable points at this release now.").wait_for()
        assert (served()["release"], served()["counter"]) == (target, before["counter"] + 1)
        assert movers()[served()["counter"]] == "pam-publishes"
        assert page.get_by_role("region", name="Moves of the channel").locator("tbody tr").first.inner_text().startswith(str(served()["counter"]))


def test_a_move_that_another_person_overtakes_changes_nothing(tab, world):
    entry = world.server.get("/v1/channels")["items"][0]
    target, third = (world.new, world.old) if entry["release"] == world.old else (world.old, world.new)
    page = tab("publisher").show(f"#/release/{urllib.parse.quote(target)}")
    page.get_by_role("button", name="Promote or roll back…").click()
    page.get_by_role("button", name="Move the channel").wait_for()
    for release in (target, third):  # somebody else moves it, and back
        assert world.server.request("PUT", "/v1/channels/stable", {"release": release}).status == 200
    page.get_by_role("button", name="Move the channel").click()
    page.get_by_text("Another person moved the channel meanwhile").wait_for()
    assert world.server.get("/v1/channels")["items"][0]["release"] == third


def test_a_publisher_is_offered_only_its_channels(tab, world):
    token = make_token(world.database, "ci-only", "publisher", "--channel", "ci-*")
    page = tab(None).sign_in(token).show(PAGES["a release"](world))
    assert page.locator("#channel").count() == 0
    page.get_by_placeholder("another channel").fill("elsewhere")
    page.get_by_role("button", name="Promote or roll back…").click()
    page.get_by_role("button", name="Move the channel").click()
    page.locator(".problem", has_text="elsewhere").wait_for()  # the server's sentence


def test_everything_is_reached_by_keyboard(tab, world):
    shown = tab("reader")
    page = shown.show("#/jobs")
    page.reload()
    page.get_by_role("heading", name="Jobs").wait_for()
    shown.settle()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "skip" and page.locator("#skip").bounding_box()["x"] >= 0
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main" and "#/jobs" in page.url
    reached = set()
    page.locator("#skip").focus()
    for _ in range(60):
        page.keyboard.press("Tab")
        name, seen = page.evaluate("""() => { const e = document.activeElement, style = getComputedStyle(e);
          return [e.textContent.trim() || e.id || e.getAttribute('aria-label'), style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0]; }""")
        assert seen, f"the focus on {name} is not visible"
        reached.add(name)
    assert {"Jobs", "Kernels", "Releases", "Sign out", "Show", "kernel", "tag"} <= reached
    # A column sorts by Enter.
    page.locator("th button", has_text="job").first.focus()
    page.keyboard.press("Enter")
    assert page.locator("th[aria-sort='ascending']", has_text="job").count() == 1
    # Without a mouse to a job and to the table of a chart's data.
    page = shown.show(f"#/job/{world.jobs[0]}")
    page.locator("figure summary").first.focus()
    page.keyboard.press("Enter")
    assert page.locator("figure details[open] tbody tr").count() == 22  # 24 configs, two of which failed


def test_screen_readers_get_names_landmarks_and_the_data_of_charts(tab, world):
    page = tab("reader").show(f"#/job/{world.jobs[0]}")
    for role in ("banner", "navigation", "main"):
        assert page.get_by_role(role).count() == 1, role
    for name in ("Time of each config, the fastest first", "Best so far against trials", "Best time by BLOCK and WARPS"):
        chart = page.get_by_role("img", name=name)
        assert chart.count() == 1 and chart.locator("desc").inner_html()
        assert chart.locator("text").count() > 4  # text that can be selected, not a picture of it
    assert page.locator("[aria-current='page']").inner_text() == "Jobs"
    job = world.server.get(f"/v1/jobs/{world.jobs[0]}")
    words = page.locator(".words").inner_text()
    assert f"Config {job['winner']['config']}" in words and "times as fast" in words and "95 %" in words
    assert page.title() == f"Job {world.jobs[0]} – wavetune"


def test_a_job_follows_its_measurements_while_it_runs(tab, world):
    job = world.submit(11, run="live", priority=100)
    page = tab("reader").show(f"#/job/{job}")
    assert "waits in the queue" in page.locator(".words").inner_text()
    lease = world.agent.pull().json
    assert lease["job"] == job
    world.agent.post(lease)
    page.locator("h1 .state", has_text="running").wait_for()
    page.get_by_role("img", name="Time of each config, the fastest first").wait_for()
    world.agent.work()
    page.locator("h1 .state", has_text="done").wait_for()
    winner = wait_until(lambda: world.server.get(f"/v1/jobs/{job}")["winner"], 30, "the winner")
    page.locator(".words", has_text=f"config {winner['config']}").wait_for()


def test_a_job_says_why_an_agent_handed_a_part_of_it_back(tab, world):
    job = world.submit(12, run="handed back", priority=100)
    page, lease = tab("reader").show(f"#/job/{job}"), world.agent.pull().json
    assert lease["job"] == job
    world.server.request("POST", f"/v1/leases/{lease['lease']}/release", {"epoch": lease["epoch"], "reason": "its buffers need 4000 GiB"})
    page.locator(".words", has_text="An agent handed a part of it back: its buffers need 4000 GiB.").wait_for()
    assert world.server.request("DELETE", f"/v1/jobs/{job}").status == 200


def test_the_list_of_jobs_follows_what_happens(tab, world):
    page = tab("reader").show("#/jobs?run=follow")
    job = world.submit(12, run="follow", priority=100)
    row = page.locator("tr", has=page.get_by_role("link", name=job, exact=True))
    row.locator(".state", has_text="queued").wait_for()
    lease = world.agent.pull().json
    assert lease["job"] == job
    row.locator(".state", has_text="running").wait_for()
    world.agent.post(lease)
    world.agent.work()
    row.locator(".state", has_text="done").wait_for()


def test_the_list_of_jobs_follows_a_queued_job_that_is_cancelled(tab, world):
    job, other = world.submit(13, run="called off", priority=-3), world.submit(14, run="called off", priority=-3)
    whole, queued = tab("reader"), tab("reader")
    whole.show("#/jobs?run=called+off"), queued.show("#/jobs?run=called+off&state=queued")

    def row(shown, each):
        return shown.page.locator("tr", has=shown.page.get_by_role("link", name=each, exact=True))

    for shown in (whole, queued):
        row(shown, job).locator(".state", has_text="queued").wait_for()
    assert world.server.request("DELETE", f"/v1/jobs/{job}").status == 200
    row(whole, job).locator(".state", has_text="cancelled").wait_for()
    row(queued, job).wait_for(state="detached")
    assert row(queued, other).count() == 1


def test_jobs_are_found_by_the_server(tab, world):
    """Not among those that the page has read."""
    shown = tab("reader")
    page = shown.show("#/jobs?q=N%3D256")
    assert page.locator("table", has=page.get_by_text("Jobs", exact=True)).locator("tbody tr").count() == 2
    assert any("contains=N%3D256" in request for request in shown.requests)


def test_a_search_goes_on_while_a_page_has_no_job(tab, world):
    """The newest 20,000 jobs may not have the text."""
    shown = tab("reader")

    def newest(route):
        if "after=" in route.request.url:
            route.continue_()
        else:
            route.fulfill(json={"items": [], "next": "1000000"})

    shown.page.route(lambda url: "contains=" in url, newest)
    page = shown.show("#/jobs?q=N%3D256")
    rows = page.locator("table", has=page.get_by_text("Jobs", exact=True)).locator("tbody tr")
    rows.nth(1).wait_for()
    assert rows.count() == 2


def test_captures_and_demand_show_what_waits(tab, world):
    page = tab("reader").show("#/captures")
    captured = page.locator("tr", has_text="package.module:f")
    assert "builder: a builder (python3 -m wavetune build --url)" in captured.inner_text(), "whose move it is"
    assert "0 of 2 served" in captured.inner_text() and page.get_by_role("img", name="2 wait for a builder").count() == 1
    assert "1,234" in page.locator("tr", has_text="n=5000").inner_text()
    assert "the release has nothing of this function" in page.locator("tr", has_text="late_kernel").inner_text()


def test_the_heatmap_shows_the_best_time_of_each_pair(tab, world):
    page = tab("reader").show(f"#/job/{world.jobs[0]}")
    page.get_by_label("Down").select_option("STAGES")
    chart = page.locator("figure", has_text="Best time by BLOCK and STAGES")
    chart.locator("summary").click()
    rows = [row.split("\t") for row in chart.locator("table").inner_text().splitlines() if "\t" in row]
    assert rows[0][1:] == ["16", "32", "64", "128"] and [row[0] for row in rows[1:]] == ["1", "2"]
    # The ratios that the simulated agent posted, times the baseline of 100 µs.
    times = {config: 100 * ratio for config, ratio in RATIOS.items() if config not in (5, 9)}
    for stages, row in enumerate(rows[1:]):
        for block, cell in enumerate(row[1:]):
            best = min(time for config, time in times.items() if config // 6 == block and config % 2 == stages)
            assert float(cell.split()[0]) == pytest.approx(best, rel=0.02)


@pytest.mark.parametrize("width", [400, 768, WIDE])
def test_no_key_and_no_name_breaks_inside_a_word(tab, world, width):
    """Each word of a cell, as in "rows=16432 columns=64", is in one line."""
    shown, broken = tab("reader", width=width), []
    for name in ("a kernel", "captures", "jobs", "a release"):
        page = shown.show(PAGES[name](world))
        words = page.evaluate("""() => {
          const broken = [];
          for (const cell of document.querySelectorAll("main tbody .code")) {
            const texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
            while (texts.nextNode())
              for (const { index, 0: word } of texts.currentNode.data.matchAll(/[^\\s]+/g)) {
                const range = document.createRange();
                range.setStart(texts.currentNode, index);
                range.setEnd(texts.currentNode, index + word.length);
                if (new Set([...range.getClientRects()].map((box) => box.top)).size > 1) broken.push(word);
              }
          }
          return broken;
        }""")
        broken += [(name, word) for word in words]
        assert not shown.overflows(), name
    assert broken == []


@pytest.mark.parametrize("width", [768, 1024, 1280, WIDE])
def test_no_fact_of_many_is_alone_in_its_line(tab, world, width):
    shown, alone = tab("reader", width=width), []
    for name in ("a done job", "a kernel", "a release", "a device"):
        lines = shown.show(PAGES[name](world)).evaluate("""() => [...document.querySelectorAll("main .facts")].map((list) => {
          const lines = {};
          for (const { top } of [...list.children].map((each) => each.getBoundingClientRect())) lines[top] = (lines[top] || 0) + 1;
          return Object.values(lines);
        })""")
        alone += [(name, each) for each in lines if len(each) > 1 and each[-1] == 1 and max(each) > 2]
    assert alone == []


@pytest.mark.parametrize("width", [NARROW, 400, 768, 1024, 1280, WIDE])
def test_what_a_captured_function_waits_for_is_not_cut_off(tab, world, width):
    page = tab("reader", width=width).show("#/captures")
    text = page.get_by_text(REFUSED)
    box = text.bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= width
    assert page.locator(".scroll[aria-label='Captured functions']").evaluate("region => region.scrollWidth <= region.clientWidth")


def test_the_colours_of_captures_have_a_legend(tab, world):
    page = tab("reader").show("#/captures")
    legend = page.locator(".legend")
    assert [each.split() for each in legend.locator("li").all_inner_texts()] == [["2", "wait", "for", "a", "builder"], ["1", "cannot", "be", "built"]]
    for name in ("waiting", "refused"):
        colours = [page.locator(where).first.evaluate("mark => getComputedStyle(mark).backgroundColor") for where in (f".legend .way-{name}", f"td .way-{name}")]
        assert colours[0] == colours[1] != "rgba(0, 0, 0, 0)"


def test_a_campaign_has_buttons_for_what_there_is_to_do(tab, world):
    """Those of a question say what each does."""
    failing, waiting = (world.submit(key, run="half", priority=priority, token=world.tokens["submitter"]) for key, priority in ((20, 100), (21, -5)))
    page = tab("submitter").show("#/jobs?tag=default&run=half&by=campaign")
    cancel, retry = (page.get_by_role("button", name=name, exact=True) for name in ("Cancel what is open", "Retry what failed"))
    cancel.wait_for()
    assert retry.is_hidden()
    while world.server.get(f"/v1/jobs/{failing}")["state"] != "failed":
        lease = world.agent.pull().json
        assert lease["job"] == failing
        world.agent.post(lease, outcomes=dict.fromkeys(range(24), "runtime"))
    retry.wait_for()

    cancel.click()
    page.get_by_role("button", name="Keep the jobs").wait_for()
    assert page.locator("dialog button").all_inner_texts() == ["Keep the jobs", "Cancel the jobs"]
    page.get_by_role("button", name="Keep the jobs").click()
    page.locator("dialog").wait_for(state="detached")
    assert world.server.get(f"/v1/jobs/{waiting}")["state"] == "queued"
    cancel.click()
    page.get_by_role("button", name="Cancel the jobs").click()
    page.locator("tr .state", has_text="cancelled").wait_for()
    cancel.wait_for(state="hidden")

    # What a person cancelled is not tried again with what failed.
    retry.click()
    assert "1 job of default / half failed" in page.locator("dialog").inner_text()
    page.get_by_role("button", name="Retry the jobs").click()
    cancel.wait_for()
    retry.wait_for(state="hidden")
    jobs = {job["job"]: job["state"] for job in world.server.items("/v1/jobs?run=half")}
    assert jobs.pop(waiting) == "cancelled" and failing not in jobs and list(jobs.values()) == ["queued"]


def test_a_campaign_of_others_is_cancelled_by_operators_alone(tab, world):
    job = world.submit(22, run="of others", token=world.tokens["publisher"], priority=-5)
    address, name = "#/jobs?tag=default&run=of+others&by=campaign", "Cancel what is open"
    page = tab("submitter").show(address)
    page.get_by_role("button", name=name).click()
    refusal = page.get_by_role("status").filter(has_text='submitted by others than "sam-submits", such as pam-publishes')
    refusal.wait_for()
    for part in ("jobs", "campaigns"):  # in this order a page that reads again draws what it read
        with page.expect_response(f"**/v1/{part}?*"):
            pass
    assert refusal.is_visible() and page.locator("dialog").count() == 0
    assert world.server.get(f"/v1/jobs/{job}")["state"] == "queued"

    page = tab("admin").show(address)
    page.get_by_role("button", name=name).click()
    page.get_by_role("button", name="Cancel the jobs").click()
    page.locator("tr .state", has_text="cancelled").wait_for()
    assert world.server.get(f"/v1/jobs/{job}")["state"] == "cancelled"
