"""A real browser for tests, screenshots and measurements of the web page: Debian's chromium, driven by playwright."""

import contextlib
import pathlib
import shutil
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "system"))

from playwright.sync_api import sync_playwright  # noqa: E402

NARROW, WIDE = 360, 1600
PATIENCE_MS = 60_000  # the machine may be busy


@contextlib.contextmanager
def chromium():
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"),
                                             args=["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--hide-scrollbars"])
        yield browser
        browser.close()


class Tab:
    """A tab that notes whatever a person would find in the console, and each request."""

    def __init__(self, browser, server, width=WIDE, height=900, dark=False, **options):
        self.server = server
        self.context = browser.new_context(viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light",
                                           reduced_motion="reduce", **options)
        self.context.set_default_timeout(PATIENCE_MS)
        self.page = self.context.new_page()
        self.complaints, self.requests = [], []
        self.page.on("console", lambda message: self.complaints.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        self.page.on("request", lambda request: self.requests.append(request.url))

    def sign_in(self, token):
        self.page.goto(self.server.url + "/")
        self.page.get_by_label("Token").fill(token)
        self.page.get_by_role("button", name="Sign in").click()
        self.page.locator("#nav a").first.wait_for()
        return self

    def show(self, address):
        """Shows a part of the page and waits until its content is there."""
        self.page.evaluate("address => { document.getElementById('main').replaceChildren(); location.hash = address; }", address)
        self.page.locator("main h1").first.wait_for()
        self.settle()
        return self.page

    def settle(self):
        """Until nothing changes for a while: parts of a page arrive one after the other."""
        self.page.evaluate("""async () => {
          let still = 0, last = '';
          for (let i = 0; i < 200 && still < 4; i++) {
            const now = document.getElementById('main').textContent.replace(/\\d+ (s|min) ago|now/g, '');
            still = now === last && !/Loading…|Reading…|Reading the jobs…/.test(now) ? still + 1 : 0;
            last = now;
            await new Promise((resolve) => setTimeout(resolve, 60));
          }
        }""")

    def overflows(self):
        return self.page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth")

    def close(self):
        self.context.close()
