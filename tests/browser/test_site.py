"""The documentation as a site (docs/site/build.sh): read and searched from files with no network, and its check of links."""

import shutil
import subprocess

import browser as browsers
import harness
import pytest

BUILD = harness.SOURCE / "docs/site/build.sh"


def build(script, folder):
    return subprocess.run([script, folder], capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("docs") / "site"
    done = build(BUILD, folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_search_works_from_files(site):
    with browsers.chromium() as browser:
        page = browser.new_page()
        asked, missing = [], []
        page.on("request", lambda request: asked.append(request.url))
        page.on("requestfailed", lambda request: missing.append(request.url))
        page.goto(f"file://{site}/search.html?q=promised")
        page.locator("#search-results li a", has_text="Reliability").first.click()
        page.get_by_role("heading", level=1, name="Reliability").wait_for()
        assert not [url for url in asked if not url.startswith("file://")]
        # Beside what it found, the search wants to show the text around it, which browsers let no page read from a file.
        assert not [url for url in missing if "highlight=" not in url and not url.endswith(".html")], missing


WRONG = {"See [more](no-such-page.md).": "no-such-page.md", "See [more](signing.md#no-such-part).": "no-such-part",
         "![](screenshots/none.png)": "none.png"}


def test_links_that_lead_nowhere_are_refused(tmp_path):
    tree = tmp_path / "tree"
    shutil.copytree(harness.SOURCE, tree, ignore=shutil.ignore_patterns("build", ".git", "__pycache__"))
    with open(tree / "docs/dejavu.md", "a") as page:
        page.write("".join(f"\n{text}\n" for text in WRONG))
    done = build(tree / "docs/site/build.sh", tmp_path / "site")
    warnings = [line for line in done.stderr.splitlines() if "WARNING" in line]
    assert done.returncode != 0 and len(warnings) == len(WRONG), done
    for complaint in WRONG.values():
        assert [complaint in warning and "dejavu.md" in warning for warning in warnings].count(True) == 1, done.stderr
