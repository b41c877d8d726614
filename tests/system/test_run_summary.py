"""tests/run.sh and tests/summary.py, on a small source tree with real ctest, Criterion and pytest: they count the tests that ran,
and a test that did not run has failed."""

import os
import shutil
import subprocess

import pytest
from harness import SOURCE

PRESETS = '{"version": 6, "configurePresets": [{"name": "dev", "generator": "Ninja", "binaryDir": "${sourceDir}/build/dev"}], ' \
          '"buildPresets": [{"name": "dev", "configurePreset": "dev"}]}'
CMAKE = """
cmake_minimum_required(VERSION 3.25)
project(toy LANGUAGES C)
enable_testing()
set(RESULTS ${PROJECT_BINARY_DIR}/results)
file(MAKE_DIRECTORY ${RESULTS}/unit)
foreach(name test_some test_skips test_dies test_leaks)
  add_executable(${name} ${name}.c)
  target_link_libraries(${name} criterion)
  add_test(NAME unit/${name} COMMAND ${name} --tap=${RESULTS}/unit/${name}.tap)
endforeach()
foreach(name test_pytest test_killer)
  add_test(NAME system/${name} COMMAND python3 -m pytest -q --junitxml=${RESULTS}/system/${name}.xml ${CMAKE_SOURCE_DIR}/${name}.py)
endforeach()
set_tests_properties(system/test_killer PROPERTIES DEPENDS "unit/test_skips;lint/clean")
add_test(NAME python/test_bridge COMMAND sh -c "echo 'skipped: no Triton here'; exit 77")
set_tests_properties(python/test_bridge PROPERTIES SKIP_RETURN_CODE 77)
add_test(NAME lint/clean COMMAND true)
add_test(NAME lint/dirty COMMAND sh -c "echo line 7 is too long; exit 1")
add_test(NAME fuzz/absent COMMAND ${PROJECT_BINARY_DIR}/absent)
add_test(NAME fuzz/hangs COMMAND sleep 60)
set_tests_properties(fuzz/hangs PROPERTIES TIMEOUT 1)
"""
FILES = {
    "CMakePresets.json": PRESETS,
    "CMakeLists.txt": CMAKE,
    "deploy/packages.sh": "packages_install() { :; }\nPACKAGES_BUILD= PACKAGES_RUN= PACKAGES_TEST=\n",
    "tests/python-env.sh": "#!/bin/sh\n",
    "tests/browser-env.sh": "#!/bin/sh\n",
    "tests/manifests.sh": "#!/bin/sh\n",
    "test_some.c": """#include <criterion/criterion.h>
#include <signal.h>
Test(some, passes) { cr_assert(1); }
Test(some, passes_too) { cr_assert(1); }
Test(some, fails) { cr_assert(0, "a \\"quoted\\" <reason>"); }
Test(some, crashes) { raise(SIGSEGV); }
Test(some, skips) { cr_skip("there is no GPU for %s", "hip"); }
""",
    "test_skips.c": """#include <criterion/criterion.h>
Test(skips, one) { cr_skip_test("there is no GPU for hip"); }
Test(skips, two) { cr_skip_test("there is no GPU for \\"cuda\\""); }
""",
    "test_dies.c": """#include <criterion/criterion.h>
#include <signal.h>
__attribute__((constructor)) static void die(void) { raise(SIGKILL); }
Test(dies, before_this) { cr_assert(1); }
""",
    "test_leaks.c": """#include <criterion/criterion.h>
#include <unistd.h>
static int is_runner;
static void leave(void) { if (getpid() == is_runner) _exit(23); }
__attribute__((constructor)) static void begin(void) { is_runner = getpid(); atexit(leave); }
Test(leaks, passes) { cr_assert(1); }
""",
    "test_pytest.py": """import pytest
@pytest.fixture
def dirty():
    yield
    raise RuntimeError("cannot clean up")
def test_passes(): pass
@pytest.mark.parametrize("n", [1, 2])
def test_passes_with(n): pass
def test_fails(): assert False
def test_is_not_cleaned_up(dirty): pass
def test_fails_and_is_not_cleaned_up(dirty): assert False
@pytest.mark.skipif(True, reason="only as root")
def test_skips(): pass
""",
    "test_killer.py": """import os, signal, time
def test_kills_ctest():
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(5)  # the sum is made before this one has its report
""",
}


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    tree = tmp_path_factory.mktemp("tree")
    for name, text in FILES.items():
        (tree / name).parent.mkdir(exist_ok=True)
        (tree / name).write_text(text)
    for name in ("python-env.sh", "browser-env.sh", "manifests.sh"):
        (tree / "tests" / name).chmod(0o755)
    for name in ("run.sh", "summary.py"):
        shutil.copy(SOURCE / "tests" / name, tree / "tests" / name)
    return tree


@pytest.fixture
def run(tree):
    def run(regex, passes=False):
        """Runs the tests that a regular expression names, as a user does; returns what was printed after ctest's output."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("ASAN_", "UBSAN_", "CTEST_"))}
        done = subprocess.run(["bash", tree / "tests/run.sh", "dev", "-R", regex], capture_output=True, text=True,
                              env=environment, timeout=600)
        assert (done.returncode == 0) is passes, done.stdout + done.stderr
        return done.stdout.partition("minutes, of programs")[2].splitlines()

    return run


def test_every_test_of_a_program_is_counted_and_a_crash_is_a_failure(run):
    lines = run("^unit/test_some$")
    assert lines[-1] == "2 passed, 2 failed, 1 skipped"
    assert '  dev unit/test_some some::crashes: unexpected signal after' in "\n".join(lines)


def test_a_pytest_test_that_fails_twice_is_one_and_one_that_cannot_be_cleaned_up_failed(run):
    assert run("^system/test_pytest$")[-1] == "3 passed, 3 failed, 1 skipped"


def test_skips_are_grouped_by_reason(run):
    lines = run("^unit/test_(some|skips)$")
    first = lines.index("skipped:")
    assert lines[first + 1:first + 6] == [
        '  1: there is no GPU for "cuda"', "      dev unit/test_skips: two",
        "  2: there is no GPU for hip", "      dev unit/test_some: skips", "      dev unit/test_skips: one"]


def test_a_program_whose_tests_all_skip_has_not_passed(run):
    assert run("^unit/test_skips$")[-1] == "0 passed, 0 failed, 2 skipped"  # so the run, which has no other test, failed
    assert run("^(unit/test_skips|lint/clean)$", passes=True)[-1] == "1 passed, 0 failed, 2 skipped"


def test_a_file_that_ends_with_77_is_skipped_for_the_reason_that_it_printed(run):
    lines = run("^(python/|lint/clean)", passes=True)
    assert lines[-1] == "1 passed, 0 failed, 1 skipped" and "  1: no Triton here" in lines


@pytest.mark.parametrize("name, why", [
    ("unit/test_dies", "failed, though none of its tests did"), ("unit/test_leaks", "failed, though none of its tests did"),
    ("fuzz/absent", "Unable to find executable"), ("fuzz/hangs", "no output"), ("lint/dirty", "line 7 is too long")])
def test_a_program_that_fails_or_does_not_run_is_a_failure(run, name, why):
    lines = run(f"^({name}|lint/clean)$")
    passed = 2 if name == "unit/test_leaks" else 1
    assert lines[-1] == f"{passed} passed, 1 failed, 0 skipped"
    assert any(line.startswith(f"  dev {name}: ") and why in line for line in lines)


def test_a_ctest_that_is_killed_fails_the_run_and_what_had_passed_is_counted(run):
    lines = run("^(unit/test_skips|system/test_killer|lint/clean)$")
    assert lines[-1] == "0 passed, 1 failed, 2 skipped"
    assert any("ctest: ended before its report, with exit status 137" in line for line in lines)


def test_the_minutes_of_suites_and_the_slowest_tests_are_printed(run):
    lines = run("^(fuzz/hangs|lint/clean)$")
    assert lines[1].split() == ["unit", "system", "faults", "python", "browser", "fuzz", "lint", "all"]
    assert lines[2].split()[0] == "dev" and lines[2].split()[1:5] == ["0.0"] * 4
    slowest = lines.index("the 10 slowest tests, seconds:")
    assert lines[slowest + 1].split()[1:] == ["dev", "fuzz/hangs"]


@pytest.fixture
def summary(tmp_path):
    """Sums up a folder that a run left in some state."""
    (tmp_path / "dev/results/unit").mkdir(parents=True)

    def summary(status, report, tap):
        (tmp_path / "dev/results/ctest.status").write_text(f"{status}\n")
        (tmp_path / "dev/results/ctest.xml").write_text(report)
        (tmp_path / "dev/results/unit/test_a.tap").write_text(tap)
        done = subprocess.run([SOURCE / "tests/summary.py", tmp_path / "dev"], capture_output=True, text=True)
        return done.returncode, done.stdout.splitlines()

    return summary


PASSED = '<testsuite><testcase name="unit/test_a" time="1" status="run"><system-out/></testcase></testsuite>'


@pytest.mark.parametrize("status, report, tap, code, last", [
    (0, PASSED, "1..1\nok - a::b  (0.00s)\n", 0, "1 passed, 0 failed, 0 skipped"),
    (1, PASSED, "1..1\nok - a::b  (0.00s)\n", 1, "1 passed, 1 failed, 0 skipped"),
    (0, PASSED, "1..3\nok - a::b  (0.00s)\n", 1, "1 passed, 1 failed, 0 skipped"),
    (0, PASSED, "", 1, "0 passed, 1 failed, 0 skipped"),
    (0, PASSED[:40], "1..1\nok - a::b  (0.00s)\n", 1, "1 passed, 1 failed, 0 skipped")],
    ids=["all is well", "ctest itself failed", "results are missing", "an empty report", "half a report of ctest"])
def test_what_is_missing_from_reports_has_failed(summary, status, report, tap, code, last):
    returned, lines = summary(status, report, tap)
    assert (returned, lines[-1]) == (code, last)
