"""help, shell completion and man pages, which are made from the tables of commands and options."""

import re
import shutil
import subprocess

import pytest
from harness import BUILD

PROGRAMS = ("wavetune", "wavetune-agent", "wavetune-server")


def run(*arguments, **more):
    return subprocess.run([str(a) for a in arguments], capture_output=True, text=True, timeout=600, stdin=subprocess.DEVNULL, **more)


def commands(program):
    listed = run(BUILD / program, "--help").stdout.split("commands:\n")[1]
    return re.findall(r"^  (\S+(?: \S+)?)  ", listed, re.M)


def completed(program, *words):
    script = run(BUILD / program, "completion", "bash").stdout
    array = " ".join(f"'{word}'" for word in (program, *words))
    done = run("bash", "-c", f'{script}\nCOMP_WORDS=({array}); COMP_CWORD={len(words)}\n_{program.replace("-", "_")}\n'
                             'printf "%s\\n" "${COMPREPLY[@]}"')
    assert done.returncode == 0 and not done.stderr, done
    return [line for line in done.stdout.split("\n") if line]


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("shell", ("bash", "zsh", "fish"))
def test_a_script_of_completion_is_valid_for_its_shell(program, shell, tmp_path):
    done = run(BUILD / program, "completion", shell)
    assert done.returncode == 0 and program in done.stdout and not done.stderr
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    (tmp_path / "script").write_text(done.stdout)
    checked = run(shell, "--no-execute" if shell == "fish" else "-n", tmp_path / "script")
    assert checked.returncode == 0 and not checked.stderr, checked


def test_bash_completes_commands_flags_words_and_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pins.json").touch()
    assert completed("wavetune", "kern") == ["kernel"]
    assert completed("wavetune", "kernel", "pu") == ["push"]
    assert completed("wavetune", "token", "") == ["make", "list", "revoke"]
    assert completed("wavetune", "jobs", "--wat") == ["--watch"]
    assert completed("wavetune", "token", "make", "ci", "--chan") == ["--channel"]
    assert completed("wavetune", "publish", "--regime", "") == ["cold", "warm"]
    assert completed("wavetune", "publish", "--pins", "pi") == ["pins.json"]
    assert completed("wavetune", "publish", "--channel", "st") == []
    assert sorted(completed("wavetune-agent", "tune", "--fina")) == ["--final-rounds", "--finalists"]


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_command_and_flag_can_be_completed(program):
    first = completed(program, "")
    for name in commands(program):
        words = name.split()
        assert words[0] in first, name
        if len(words) == 2:
            assert words[1] in completed(program, words[0], ""), name
        flags = re.findall(r"^  (--\S+)", run(BUILD / program, *words, "--help").stdout, re.M)
        if name in ("jobs", "kernel push", "run", "serve", "token make"):
            assert sorted(completed(program, *words, "--")) == sorted(flags), name


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_pages_of_the_manual_are_without_warnings_and_have_each_option(program, tmp_path):
    assert run(BUILD / program, "man", "--to", tmp_path).returncode == 0
    pages = sorted(path.name for path in tmp_path.iterdir())
    assert pages == sorted([f"{program}.1", *(f"{program}-{name.replace(' ', '-')}.1" for name in commands(program))])
    if not shutil.which("man"):
        pytest.skip("man is not installed")
    for name in (None, *commands(program)):
        path = tmp_path / (f"{program}-{name.replace(' ', '-')}.1" if name else f"{program}.1")
        shown = run("man", "--warnings", "-E", "UTF-8", "-l", path, env={"MANWIDTH": "200", "LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin"})
        assert shown.returncode == 0 and not shown.stderr, (path, shown.stderr)
        assert path.read_text() == run(BUILD / program, "man", *(name or "").split()).stdout
        if name:
            help_text = run(BUILD / program, *name.split(), "--help").stdout
            for flag in re.findall(r"^  (--\S+)", help_text, re.M):
                assert flag in shown.stdout, (path, flag)


def test_help_shows_what_the_flag_shows():
    for words in ((), ("kernel",), ("kernel", "push"), ("jobs",)):
        assert run(BUILD / "wavetune", "help", *words).stdout == run(BUILD / "wavetune", *words, "--help").stdout != ""
    wrong = run(BUILD / "wavetune", "help", "jbos")
    assert wrong.returncode == 2 and 'did you mean "jobs"' in wrong.stderr


def test_what_is_no_shell_command_or_folder_is_refused(tmp_path):
    for arguments, code, sentence in ((("completion",), 2, "name one shell"), (("completion", "csh"), 2, "name one shell"),
                                      (("man", "jbos"), 2, 'no command "jbos"'),
                                      (("man", "--to", tmp_path / "none"), 1, "cannot be written")):
        done = run(BUILD / "wavetune", *arguments)
        assert done.returncode == code and sentence in done.stderr and done.stderr.count("\n") == 1, done
