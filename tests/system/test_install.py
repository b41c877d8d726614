"""The files that `cmake --install` installs, and whether systemd accepts them."""

import shutil
import subprocess

import harness
import pytest


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    prefix = tmp_path_factory.mktemp("prefix")
    done = subprocess.run(["cmake", "--install", harness.BUILD, "--prefix", prefix], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return prefix


@pytest.mark.parametrize("unit, command", [("server", "wavetune-server serve --migrate"), ("agent", "wavetune-agent run")])
def test_units_name_the_programs_where_they_are_installed(prefix, unit, command):
    path = prefix / f"lib/systemd/system/wavetune-{unit}.service"
    text = path.read_text()
    assert f"ExecStart={prefix}/bin/{command}\n" in text and "@BINDIR@" not in text
    assert "\nStartLimitIntervalSec=0\n" in text.split("[Service]")[0]  # a database may be away for longer than five starts
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is not installed")
    done = subprocess.run(["systemd-analyze", "verify", path], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and done.stderr == "", done


def test_groups_that_the_agents_unit_names_are_made_where_they_are_missing(prefix, tmp_path):
    if not shutil.which("systemd-sysusers"):
        pytest.skip("systemd-sysusers is not installed")
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/group").write_text("video:x:44:\n")
    subprocess.run(["systemd-sysusers", f"--root={tmp_path}", prefix / "lib/sysusers.d/wavetune-agent.conf"], check=True,
                   capture_output=True, timeout=300)
    groups = [line.split(":")[0] for line in (tmp_path / "etc/group").read_text().splitlines()]
    unit = (prefix / "lib/systemd/system/wavetune-agent.service").read_text()
    named = next(line for line in unit.splitlines() if line.startswith("SupplementaryGroups=")).split("=")[1].split()
    assert named == ["render", "video"] and sorted(groups) == sorted(named)
