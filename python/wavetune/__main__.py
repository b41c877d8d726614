"""python3 -m wavetune: `run` starts a program tuned, `tune` tunes it; _cli.py has the others."""

import sys

_PACKING = ("pack", "keys", "tune")


def main():
    arguments = sys.argv[1:]
    if arguments[:1] == ["run"]:
        from ._runtime.running import main as run
        return run(arguments[1:])
    if sys.version_info < (3, 10):
        print("wavetune: of the commands only `run` works with Python "
              f"{sys.version_info[0]}.{sys.version_info[1]}; the others need 3.10 or newer",
              file=sys.stderr)
        return 2
    if arguments[:1] and arguments[0] in _PACKING and not {"-h", "--help"}.intersection(arguments):
        from importlib.util import find_spec
        if find_spec("triton") is None:
            print(f"wavetune {arguments[0]}: Triton is not installed for this Python; install "
                  "wavetune[pack], or triton 3.3 to 3.9", file=sys.stderr)
            return 2
    if arguments[:1] == ["tune"]:
        from ._tuning.command import main as tune
        return tune(arguments[1:])
    from ._cli import main as bridge
    return bridge()


if __name__ == "__main__":
    sys.exit(main())
