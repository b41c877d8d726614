"""Each command that the page prints is run as a person would, with what is in capitals replaced, against a real server."""

import os
import re
import subprocess
import threading

import harness
import pytest
from test_page import PAGES

IN_TEXT = re.compile(r"(?:python3 -m )?wavetune(?: [a-z]+)+")
REPLACED = {"KERNEL_FOLDER": "KERNEL_FOLDER:c", "CHANNEL": "printed", "--queue N": "--queue 1", "KEY.pem": "KEY"}
PLACES = {"PATH": f"{harness.BUILD}:{os.environ['PATH']}", "PYTHONPATH": str(harness.SOURCE / "python")}


def job(world):
    return world.server.get(f"/v1/jobs/{world.jobs[0]}")


# The name in web/commands.js: (what the page knows, the exit code). What simulated agents measured has no code to show (1).
COMMANDS = {
    "recompute": (job, 0), "devices": (job, 0), "assembly": (job, 1), "ttgir": (job, 1), "submitAgain": (job, 0),
    "push": (None, 0), "submit": (None, 0), "publish": (None, 0), "publishTo": (None, 0),
    "promote": (lambda world: world.new, 0), "capture": (None, 0), "queueDemand": (None, 0),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """What the words in capitals name."""
    made = tmp_path_factory.mktemp("terminal")
    (made / "PROGRAM").write_text("print('it ran')\n")
    (made / "KERNEL_FOLDER").symlink_to(harness.KERNELS / "vector_add")
    harness.wavetune(None, "key", "new", made / "KEY")
    return made


@pytest.fixture
def printed(tab, world):
    """printed(NAME): that command as the page prints it."""
    page = tab("reader").page

    def printed(name):
        value = COMMANDS[name][0](world) if COMMANDS[name][0] else None
        return page.evaluate("async ([name, value]) => (await import('./web/commands.js')).COMMANDS[name](value)", [name, value])

    return printed


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_does_what_the_page_says(world, folder, printed, name):
    text, done = printed(name), []
    for old, new in REPLACED.items():
        text = text.replace(old, new)
    if name == "submit":
        text += " --key n=77"
    environment = os.environ | PLACES | {"WAVETUNE_URL": world.server.url, "WAVETUNE_TOKEN": world.server.token}
    shell = threading.Thread(target=lambda: done.append(subprocess.run(text, shell=True, cwd=folder, env=environment, capture_output=True,
                                                                       text=True, stdin=subprocess.DEVNULL)))
    shell.start()
    while shell.is_alive():  # one waits for its job
        world.agent.work(wait=0)
        shell.join(0.2)
    assert done[0].returncode == COMMANDS[name][1], done


def test_every_command_of_the_page_is_run_here(tab):
    names = tab("reader").page.evaluate("async () => Object.keys((await import('./web/commands.js')).COMMANDS)")
    assert sorted(names) == sorted(COMMANDS)
    others = {path.name: IN_TEXT.findall(path.read_text()) for path in (harness.SOURCE / "web").glob("*.js") if path.name != "commands.js"}
    assert not any(others.values()), others


@pytest.mark.parametrize("page, names", [("a done job", ["recompute", "devices", "submitAgain"]), ("a release", ["promote"])])
def test_a_box_has_the_commands_that_are_run_here(tab, world, printed, page, names):
    lines = tab("publisher").show(PAGES[page](world)).locator(".commands pre").inner_text().splitlines()
    assert lines == [printed(name) for name in names]


def test_commands_in_what_a_capture_or_proposal_waits_for_exist():
    """The page shows these texts of the server."""
    texts = [(harness.SOURCE / "server" / path).read_text() for path in ("capture/captures.c", "policy/proposals.c")]
    found = {command for text in texts for literal in re.findall(r'"(?:[^"\\]|\\.)*"', text) for command in IN_TEXT.findall(literal)}
    assert len(found) > 4
    for command in found:
        done = subprocess.run(f"{command} --help", shell=True, env=os.environ | PLACES, capture_output=True, text=True)
        assert done.returncode == 0, (command, done.stderr)
