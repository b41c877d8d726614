"""Every command of the README, unchanged and in its order."""

import os
import re
import shutil
import subprocess
import sys
import tempfile

import harness
import pytest
from harness import wait_until

README = (harness.SOURCE / "README.md").read_text()
COMMANDS = [line for block in re.findall(r"```sh\n(.*?)```", README, re.S) for line in block.splitlines() if line.strip()]


def run(command, environment, timeout=900):
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=timeout, env=environment,
                          cwd=harness.SOURCE, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, (command, done.stdout[-2000:], done.stderr[-3000:])
    return done.stdout


def test_the_readme_names_the_tokens_and_fetches_what_deployments_read():
    day = README.split("## Five minutes with a server")[1].split("## ")[0]
    assert "WAVETUNE_TOKEN" in day and "`agent`" in day and "`submitter`" in day and "`publisher`" in day
    assert "--format triton" in next(line for line in day.splitlines() if line.startswith("wavetune fetch "))
    assert "today a cache is JSON" not in README


def test_quickstart_prints_the_table_publishes_and_fetches(tmp_path):
    assert COMMANDS[0] == "deploy/quickstart.sh"
    output = run(COMMANDS[0], {**os.environ, "QUICKSTART_FOLDER": str(tmp_path)}, 900)
    for expected in ("winner (*)", "equivalence set (=)", "against the default", "GB/s", "channel  stable", "fresh ", "unchanged "):
        assert expected in output, (expected, output[-3000:])


def test_the_second_command_is_the_one_that_ci_runs(tmp_path):
    assert COMMANDS[1] == "tests/run.sh"
    assert "tests/run.sh" in (harness.SOURCE / ".ci/run").read_text()
    run(f"bash -n {COMMANDS[1]} && test -x {COMMANDS[1]}", dict(os.environ))


def test_the_other_commands_work_in_their_order(tmp_path, start):
    day = COMMANDS[2:]
    folder = tmp_path / "dev"
    if os.geteuid() == 0:  # PostgreSQL's user must be able to reach the folder
        folder = harness.pathlib.Path(tempfile.mkdtemp(prefix="wavetune-test-", dir="/var/lib"))
        folder.chmod(0o755)
    environment = {**os.environ, "PATH": f"{harness.BUILD}:{os.environ['PATH']}", "HOME": str(tmp_path),
                   "WAVETUNE_PORT": "0", "WAVETUNE_STATE": str(tmp_path / "agent")}
    try:
        assert day.pop(0) == "wavetune-server dev"
        server = start(lambda command, logs: harness.Program([harness.BUILD / "wavetune-server", "dev", "--folder", folder], logs,
                                                              environment), None)

        def printed(word):
            assert server.process.poll() is None, server.messages[-3000:]
            return next((line.split()[1] for line in server.output.splitlines() if line.startswith(word + " ")), None)

        environment["WAVETUNE_URL"] = wait_until(lambda: printed("url"), 60, "the url line")
        environment["WAVETUNE_TOKEN"] = wait_until(lambda: printed("token"), 10, "the token line")
        roles = {role: environment | {"WAVETUNE_TOKEN": run(f"wavetune token make {role} --role {role}", environment).strip()}
                 for role in ("agent", "submitter")}
        made = " ".join(re.search(r"`(wavetune token make ci [^`]*)`", README)[1].split())
        roles["ci"] = environment | {"WAVETUNE_TOKEN": run(made, environment).strip()}
        command = day.pop(0)
        assert command == 'wavetune-agent run --url "$WAVETUNE_URL"'
        start(lambda _, logs: harness.Program(["bash", "-c", f"exec {command}"], logs, roles["agent"]), None)
        wait_until(lambda: " idle " in run("wavetune agents", environment), 60, "the agent")
        last_of_ci = next(i for i, command in enumerate(day) if command.startswith("wavetune publish --channel"))
        for i, command in enumerate(day):
            run(command, roles["ci"] if i <= last_of_ci else environment)
        refused = subprocess.run(["bash", "-c", day[last_of_ci]], capture_output=True, text=True, env=roles["submitter"])
        assert refused.returncode == 4 and "role publisher or admin" in refused.stderr, "the README names the role"
        assert (tmp_path / ".cache/wavetune/current/json/cache.json").exists()
        assert server.stop(30) == 0, server.messages[-2000:]
        assert not list(folder.glob("**/postmaster.pid")), "PostgreSQL was stopped too"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def test_the_tests_that_the_page_on_security_names_exist():
    named = set(re.findall(r"`(test_[a-z0-9_]+)`", (harness.SOURCE / "docs/security.md").read_text()))
    there = {name for suite in ("system", "browser", "python") for path in (harness.SOURCE / "tests" / suite).glob("test_*.py")
             for name in re.findall(r"^def (test_\w+)", path.read_text(), re.M)}
    assert len(named) > 20 and named <= there, named - there


def test_the_tests_and_faults_that_the_page_on_reliability_names_exist():
    """A fragment behind `::` is of a name or an id, one behind `:` begins the name of a unit test."""
    page = (harness.SOURCE / "docs/reliability.md").read_text().split("promise | kept by", 1)[1]
    page += (harness.SOURCE / "tests/bugs.md").read_text()
    absent = []
    for file, fragments in re.findall(r"`((?:python/|faults/)?test_\w+\.py)(?:::([\w,]+))?`", page):
        path = harness.SOURCE / "tests" / (file if "/" in file else f"system/{file}")
        text = path.read_text() if path.exists() else ""
        absent += [f"{file}::{word}" for word in fragments.split(",") if not re.search(rf'def test_\w*{word}|"[^"\n]*{word}', text)]
        absent += [] if text else [file]
    for file, beginning in re.findall(r"`(\w+):(\w+)`", page):
        path = harness.SOURCE / f"tests/unit/test_{file}.c"
        if not path.exists() or not re.search(rf"^\w*Test\(\w+,\s*{beginning}|^\w+_TEST\({beginning}", path.read_text(), re.M):
            absent.append(f"{file}:{beginning}")
    faults = set(re.findall(r'Fault\("(\w+)"', (harness.SOURCE / "tests/faults/faults.py").read_text()))
    named = {fault for cell in re.findall(r"`([a-z]+_[a-z]+(?:,[a-z_]+)*)`", page) for fault in cell.split(",")}
    assert len(page) > 1000 and absent == [] and len(named) > 10 and named <= faults, (absent, named - faults)


def test_links_between_pages_lead_to_a_file_and_a_heading():
    pages = [page for page in harness.SOURCE.rglob("*.md") if not page.is_relative_to(harness.SOURCE / "build")]
    headings = {page: {re.sub(r"[^\w -]", "", line.lower()).replace(" ", "-") for line in re.findall(r"^#+ (.*)$", page.read_text(), re.M)}
                for page in pages}
    astray, links = [], 0
    for page in pages:
        for link in re.findall(r"\]\((?!http)([^)\s]+)\)", page.read_text()):
            file, _, heading = link.partition("#")
            target = (page.parent / file).resolve() if file else page
            links += 1
            if not target.exists() or (heading and heading not in headings.get(target, ())):
                astray.append(f"{page.name}: {link}")
    assert links > 100 and astray == []


def test_each_block_of_the_page_on_production_names_its_machines_and_is_bash(monkeypatch):
    """deploy/test/walk.sh runs them, for which it needs machines."""
    folder = str(harness.SOURCE / "deploy/test/walk")
    monkeypatch.syspath_prepend(folder)
    for name in ("checks", "machines", "walk"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import walk

    parts = walk.parts_of(walk.PAGE.read_text())
    blocks = [script for _, blocks in parts for _, _, script in blocks]
    assert len(blocks) > 20 and {*walk.AFTER, *walk.BEFORE} <= walk.moments_of(parts)
    for script in blocks:
        checked = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True)
        assert checked.returncode == 0 and not checked.stderr, (script, checked.stderr)
    for broken in ("```sh\nls\n```", "```sh\n# on nowhere\nls\n```"):
        with pytest.raises(AssertionError):
            walk.parts_of("# Part\n" + broken)
