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


@pytest.mark.parametrize("text, complaint", [("See [more](no-such-page.md).", "no-such-page.md"),
                                             ("See [more](signing.md#no-such-part).", "no-such-part"),
                                             ("![](screenshots/none.png)", "none.png")])
def test_a_link_that_leads_nowhere_is_refused(tmp_path, text, complaint):
    tree = tmp_path / "tree"
    shutil.copytree(harness.SOURCE, tree, ignore=shutil.ignore_patterns("build", ".git", "__pycache__"))
    with open(tree / "docs/dejavu.md", "a") as page:
        page.write(f"\n{text}\n")
    done = build(tree / "docs/site/build.sh", tmp_path / "site")
    assert done.returncode != 0 and complaint in done.stderr and "dejavu.md" in done.stderr, done
    assert done.stderr.count("WARNING") == 1, done.stderr
