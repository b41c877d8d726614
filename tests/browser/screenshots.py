"""Makes the pictures of the web page in docs/screenshots/ again, over the demo fleet (bench/demo_fleet.py).

    tests/browser/run.sh tests/browser/screenshots.py [FOLDER]        default docs/screenshots
    tests/browser/run.sh tests/browser/screenshots.py --all FOLDER    every page, narrow and wide, light and dark

The data are made anew, so the pictures differ in their numbers."""

import pathlib
import sys
import time
import urllib.parse

import browser as browsers
from PIL import Image

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
import demo_fleet  # noqa: E402

# Name, width, height, dark, page.
SHOTS = [("fleet", 1440, 900, False, "fleet"), ("fleet-dark", 1440, 900, True, "fleet"), ("fleet-phone", 360, 760, False, "fleet"),
         ("jobs", 1440, 860, False, "jobs"), ("job", 1440, 1000, False, "job"), ("job-dark", 1440, 1000, True, "job"), ("job-phone", 360, 760, True, "job"),
         ("kernel", 1440, 860, False, "kernel"), ("release", 1440, 860, False, "release"), ("device", 1440, 860, False, "device"),
         ("cost", 1440, 720, False, "cost")]


def addresses(fleet):
    """Page -> its address, for what is worth a look: a job with many configs, a key that changed, the device that drifted."""
    server = fleet.server
    newest = {each["name"]: each["job"] for each in reversed(server.get("/v1/jobs?state=done&limit=1000")["items"]) if each["winner"]}
    jobs = [server.get(f"/v1/jobs/{job}") for job in newest.values()]
    job = max(jobs, key=lambda each: (each["winner"]["verdict"]["verdict"] == "FASTER", len(each["winner"]["verdict"]["equivalence_set"]), each["measured"]))
    nodes = server.get("/v1/fleet/nodes?limit=1000")["items"]
    drifted = next(((node, device) for node in nodes for device in node["devices"] if device["state"] == "drifted"), (nodes[0], nodes[0]["devices"][0]))
    channels = server.get("/v1/channels")["items"]
    quoted = urllib.parse.quote
    found = {"fleet": "#/fleet", "jobs": "#/jobs", "job": f"#/job/{job['job']}", "kernels": "#/kernels", "kernel": f"#/kernel/{quoted(job['kernel'])}",
             "releases": "#/releases", "captures": "#/captures", "cost": "#/cost", "device": f"#/device/{drifted[0]['agent']}/{drifted[1]['device']}"}
    if channels:
        found["release"] = f"#/release/{quoted(channels[0]['release'])}"
    return found


def shrink(path):
    """A palette is enough for text and lines, and a third of the bytes. MAXCOVERAGE keeps colours of a few pixels."""
    Image.open(path).convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(path, optimize=True)


def take(browser, fleet, shots, folder):
    folder.mkdir(parents=True, exist_ok=True)
    where = addresses(fleet)
    for name, width, height, dark, page in shots:
        tab = browsers.Tab(browser, fleet.server, width=width, height=height or 900, dark=dark).sign_in(fleet.tokens["release-bot" if page == "release" else "dashboard"])
        tab.show(where[page])
        tab.page.wait_for_timeout(700)
        tab.page.screenshot(path=folder / f"{name}.png", animations="disabled", full_page=height == 0)
        shrink(folder / f"{name}.png")
        print(f"{name}.png", (folder / f"{name}.png").stat().st_size // 1024, "KiB", *tab.complaints)
        tab.close()


def main():
    arguments = sys.argv[1:]
    is_all = arguments[:1] == ["--all"]
    folder = pathlib.Path(arguments[-1]) if arguments and arguments != ["--all"] else ROOT / "docs/screenshots"
    with demo_fleet.Fleet() as fleet, browsers.chromium() as browser:
        time.sleep(30)  # rates and the time to go are of what was measured meanwhile
        shots = SHOTS
        if is_all:
            shots = [(f"{page}-{width}{'-dark' if dark else ''}", width, 0, dark, page) for page in addresses(fleet) for width in (360, 1600) for dark in (False, True)]
        take(browser, fleet, shots, folder)


if __name__ == "__main__":
    main()
