"""python3 -m wavetune pack|build|keys|identity|env: the command line. Exit codes are those of
docs/exit-codes.md."""

import argparse
import json
import os
import re
import signal
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NoReturn

from . import __version__
from ._canonical import Json
from ._errors import PackError
from ._pack.decorator import IGNORABLE

_EPILOG = """
A kernel folder is packed as it stands:
  python3 -m wavetune pack kernels/matmul:triton --key M=4096,N=4096,K=4096 --arch gfx942 \\
    --output build
A file with a @triton.jit function becomes a kernel folder first:
  python3 -m wavetune pack matmul.py --kernel matmul --key M=4096,N=4096,K=4096 --arch gfx942 \\
    --output build \\
    --signature 'a_ptr=*fp16[M,K], b_ptr=*fp16[K,N], c_ptr=*fp16[M,N]:write, stride_am=i64(K), …' \\
    --grid "lambda META: (triton.cdiv(M, META['BLOCK_M']) * triton.cdiv(N, META['BLOCK_N']), )"
Then: wavetune kernel push FOLDER --build build
"""


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; see --help\n")


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="python3 -m wavetune",
        description="Packs Triton kernels ahead of time, and records what an image's caches need.",
    )
    parser.add_argument("--version", action="version", version=f"wavetune {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND",
                                     parser_class=Parser)
    raw = argparse.RawDescriptionHelpFormatter

    # Of these two __main__.py runs the programs.
    commands.add_parser("run", help="run a program, or -m MODULE, as python3 does: its kernels "
                                    "start tuned")

    commands.add_parser("tune", help="run a program, or -m MODULE, and tune what it launches on "
                                     "this machine's GPUs")

    pack = commands.add_parser("pack", help="compile every config for some keys into a build",
                               epilog=_EPILOG, formatter_class=raw)
    pack.add_argument(
        "place",
        metavar="DIR[:VERSION]|FILE.py[:FUNCTION]",
        help="a kernel folder, or a Python file",
    )
    _common(pack)
    pack.add_argument(
        "--output", "-o", required=True, metavar="FOLDER", help="where the build goes"
    )
    _compilers(pack)
    pack.add_argument(
        "--keep-spilling",
        action="store_true",
        help="compile also configs whose loops carry twice as much as the GPU has registers",
    )
    pack.add_argument(
        "--cache", metavar="FOLDER", help="Triton's cache to use and keep (a private one)"
    )
    pack.add_argument(
        "--image",
        metavar="FILE",
        help="identity.json of the image whose Triton cache will hold the code objects (one like "
        "this Python's)",
    )
    file = pack.add_argument_group("for a file")
    file.add_argument("--kernel", metavar="FOLDER", help="where the kernel folder goes")
    file.add_argument(
        "--signature", metavar="TEXT", help="what the function is called with (python/README.md)"
    )
    file.add_argument("--grid", metavar="TEXT", help="the launch's lambda or tuple, as Python")
    file.add_argument("--space", metavar="FILE", help="a space (JSON), in place of the decorator's "
                                                      "configs")
    file.add_argument(
        "--package-root",
        metavar="FOLDER",
        help="the folder that holds the file's package (site-packages): what the "
        "kernel needs of its other modules is read from there; the package is not imported",
    )
    pack.add_argument(
        "--ignore", action="append", choices=IGNORABLE, metavar="ARGUMENT",
        help=f"pack as if the autotune decorator had no {', '.join(IGNORABLE[:-1])} or "
             f"{IGNORABLE[-1]}; may be repeated")
    file.add_argument("--name", metavar="NAME", help="of the kernel (the function's)")
    file.add_argument(
        "--module",
        metavar="NAME",
        help="the module that imports the function in the deployment (the file's name)",
    )

    build = commands.add_parser("build", help="make kernels and builds of the launches that "
                                              "programs recorded")
    build.add_argument(
        "captures",
        nargs="?",
        metavar="FOLDER",
        help="what WAVETUNE_CAPTURE_TO named for the programs",
    )
    build.add_argument(
        "--output", "-o", metavar="FOLDER", help="where the kernel folders go, each with its build"
    )
    build.add_argument(
        "--url",
        metavar="URL",
        help="in place of FOLDER: lease launches from this server ($WAVETUNE_TOKEN, role builder) "
        "and push what is built",
    )
    build.add_argument("--wait", action="store_true", help="with --url: go on until stopped")
    build.add_argument(
        "--patience",
        type=float,
        default=60.0,
        metavar="S",
        help="with --url: how long a server may be away (%(default)g)",
    )
    build.add_argument(
        "--arch",
        action="append",
        default=[],
        metavar="ARCH",
        help="gfx942, sm_90, … (those of the GPUs that "
        "launches were recorded on); with --url may be repeated (gfx942)",
    )
    _compilers(build)
    build.add_argument(
        "--sign-key",
        metavar="FILE",
        help="with --url: a private key (`wavetune key new`) that signs kernels and builds",
    )
    build.add_argument(
        "--no-sandbox",
        action="store_true",
        help="compile captured text with all rights of this user, where "
        "wavetune-agent is not installed or Linux cannot confine it",
    )
    build.add_argument("--json", action="store_true", help="print one JSON document")

    keys = commands.add_parser("keys", help="show the specialisation and the variant of each key")
    keys.add_argument("place", metavar="DIR[:VERSION]", help="a kernel folder")
    _common(keys)
    keys.add_argument(
        "--build", metavar="FOLDER", help="say which variant of this build a key gets"
    )

    identity = commands.add_parser("identity", help="record what the paths of this image's caches "
                                                    "are made of")
    identity.add_argument(
        "--output", "-o", metavar="FILE", help="where identity.json goes (standard output)"
    )
    identity.add_argument(
        "--function",
        action="append",
        default=[],
        metavar="KERNEL=MODULE:NAME",
        help="a decorated function and the kernel it stands for: its name, its hash or its folder; "
        "may be repeated",
    )
    identity.add_argument(
        "--arch",
        metavar="ARCH",
        help="of the GPU that the image will run on (that of this machine)",
    )
    identity.add_argument(
        "--gpu", metavar="NAME", help="its name as torch has it (that of this machine)"
    )
    identity.add_argument(
        "--put", action="store_true", help="keep it at the server: $WAVETUNE_URL, $WAVETUNE_TOKEN"
    )
    identity.add_argument(
        "--json",
        action="store_true",
        help="print one JSON document: the digest, the notes, and the "
        "identity where no --output is",
    )

    env = commands.add_parser("env", help="print the versions of triton and torch that this Python "
                                          "has, as JSON")
    env.add_argument("--json", action="store_true", help="the same: it is always JSON")
    return parser


def _common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--key", action="append", default=[], metavar="NAME=VALUE,…",
                        help="a key; may be repeated")
    parser.add_argument("--keys", metavar="FILE", help="keys as JSON objects, one a line")
    parser.add_argument("--arch", default="gfx942", help="gfx942, sm_90, … (%(default)s)")
    parser.add_argument(
        "--gpu-name",
        default="",
        metavar="NAME",
        help="what conditions of the space read as gpu_name",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def add_compilers(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--processes", "-j", type=int, default=len(os.sched_getaffinity(0)),
                        metavar="N", help="compilers at once (the CPUs: %(default)s)")
    parser.add_argument("--timeout", type=float, default=300.0, metavar="S", help="seconds for "
                        "compiling a config (%(default)g)")


def _compilers(parser: argparse.ArgumentParser) -> None:
    add_compilers(parser)
    parser.add_argument(
        "--torch",
        metavar="VERSION",
        help="of the deployment (that of this Python, when it has one)",
    )
    parser.add_argument("--rocm", metavar="VERSION", help="of the deployment (not stated)")


def _toolchain(arguments: argparse.Namespace) -> dict[str, str]:
    from ._pack.interpreter import describe
    torch = getattr(arguments, "torch", None) or describe()["torch"]
    return {
        name: value
        for name, value in (("torch", torch), ("rocm", getattr(arguments, "rocm", None))) if value
    }


def _file_place(place: str) -> tuple[Path, str | None] | None:
    match = re.fullmatch(r"(.+\.py)(?::([A-Za-z_]\w*))?", place)
    return (Path(match[1]), match[2]) if match else None


def _request(arguments: argparse.Namespace, kernel: Any, keys: list[Any]) -> Any:
    from ._pack.build import Request
    toolchain, image = _toolchain(arguments), None
    if getattr(arguments, "image", None) is not None:
        from ._pack.artifacts import image_of
        from ._canonical import read_json
        image = image_of(read_json(Path(arguments.image)), arguments.image)
    return Request(kernel, keys, arguments.arch, getattr(arguments, "processes", 1),
                   getattr(arguments, "timeout", 0.0), arguments.gpu_name, toolchain,
                   getattr(arguments, "cache", None), getattr(arguments, "module", None), image,
                   getattr(arguments, "keep_spilling", False), toolchain.get("torch"),
                   tuple(getattr(arguments, "ignore", None) or ()))


def _pack(arguments: argparse.Namespace) -> int:
    from ._pack.build import check_place, pack
    from ._pack.folder import load_kernel
    from ._pack.importing import kernel_of_file, new_folder
    from ._pack.keys import read_keys
    keys = read_keys(arguments.key, arguments.keys)
    if arguments.processes < 1:
        raise PackError("--processes is at least 1")
    check_place(Path(arguments.output))
    file = _file_place(arguments.place)
    if file is not None:
        kernel, files = kernel_of_file(file[0], file[1], arguments, keys)
        folder: Any = new_folder(Path(arguments.kernel), files)
    else:
        for name in ("kernel", "signature", "grid", "space", "name", "package_root"):
            if getattr(arguments, name) is not None:
                raise PackError(f"--{name} is for a file; {arguments.place} is a kernel folder, "
                                "which states it")
        kernel, folder = load_kernel(arguments.place), nullcontext()
    with folder:
        result = pack(_request(arguments, kernel, keys), Path(arguments.output))
    if arguments.json:
        print(json.dumps(result))
        return 0
    for variant in result["variants"]:
        when = f"when {variant['when']}" if variant["when"] else "for every key"
        failed = f", {variant['failed']} failed" if variant["failed"] else ""
        failed += (
            f", {variant['left_out']} left out by prune_configs_by" if variant["left_out"] else ""
        )
        print(f"{variant['objects']} objects{failed} {when}")
    print(f"{result['folder']}: build {result['build']} of kernel {result['kernel']}")
    return 0


def _terms(arguments: argparse.Namespace) -> Any:
    from ._pack.build import clean_environment
    from ._captured.confined import Terms, find_launcher
    from ._pack.signing import SigningKey
    key = SigningKey(arguments.sign_key) if arguments.sign_key is not None else None
    clean_environment()
    return Terms(arguments.processes, arguments.timeout, _toolchain(arguments),
                 find_launcher(arguments.no_sandbox), key)


def _build(arguments: argparse.Namespace) -> int:
    from ._captured.build import build_folder
    if arguments.processes < 1:
        raise PackError("--processes is at least 1")
    if (arguments.captures is None) == (arguments.url is None) or (arguments.captures is None) != (
        arguments.output is None
    ):
        raise PackError("give FOLDER and --output, or --url")
    if arguments.url is not None:
        return _build_leased(arguments)
    if len(arguments.arch) > 1 or arguments.wait or arguments.sign_key is not None:
        raise PackError("--wait, --sign-key and several --arch are for --url; `wavetune kernel "
                        "push --sign-key` signs folders")
    report = build_folder(
        Path(arguments.captures),
        Path(arguments.output),
        (arguments.arch or [None])[0],
        _terms(arguments),
    )
    if arguments.json:
        print(json.dumps(report))
    else:
        for one in report["built"]:
            print(built_line(one))
        print(f"{len(report['built'])} kernels, {len(report['refused'])} launches refused, "
              f"{report['seconds']:.0f} s")
    return 0 if report["built"] or not report["refused"] else 1


def built_line(one: Json) -> str:
    """What a report has of a kernel, in a line."""
    counts = (
        (one["objects"], "objects"),
        (one["failed"], "failed"),
        (one["pruned"], "pruned by the program"),
    )
    return f"{one['folder']}: " + ", ".join(
        [f"{len(one['keys'])} keys", *(f"{n} {what}" for n, what in counts if n)])


def _build_leased(arguments: argparse.Namespace) -> int:
    from ._captured.leasing import build_leased
    from .client import ApiError, Client
    try:
        report = build_leased(Client(arguments.url, patience_s=arguments.patience),
                              arguments.arch or ["gfx942"], arguments.wait, _terms(arguments))
    except ApiError as error:
        raise PackError(error.detail, 4 if 400 <= error.status < 500 else 3) from None
    if arguments.json:
        print(json.dumps(report))
    else:
        print(f"{report['built']} launches built, {report['refused']} refused, "
              f"{report['seconds']:.0f} s")
    return 0


def _keys(arguments: argparse.Namespace) -> int:
    from ._pack.build import make_plan
    from ._canonical import read_json
    from ._pack.expressions import Expression
    from ._pack.folder import load_kernel
    from ._pack.keys import format_key, read_keys
    plan = make_plan(
        _request(arguments, load_kernel(arguments.place), read_keys(arguments.key, arguments.keys)))
    build = read_json(Path(arguments.build) / "build.json") if arguments.build else None
    result = []
    for variant, configs in zip(plan.variants, plan.configs):
        for key in variant.keys:
            entry = {
                "key": key, "when": variant.when, "signature": variant.signature,
                "constexprs": variant.constexprs, "attributes": variant.attributes,
                "configs": len(configs)
            }
            if build is not None:
                entry["variant"] = next((i for i, v in enumerate(build["variants"])
                                         if "when" not in v or Expression(v["when"]).evaluate(key)),
                                        None)
            result.append(entry)
    if arguments.json:
        print(json.dumps(result))
    else:
        for entry in result:
            types = ", ".join(
                f"{n}: {t}{':' + entry['attributes'][n] if n in entry['attributes'] else ''}"
                for n, t in entry["signature"].items())
            print(f"{format_key(entry['key'])}: {entry['configs']} configs\n  when       "
                  f"{entry['when'] or 'always'}\n"
                  f"  signature  {types}\n  constexprs {json.dumps(entry['constexprs'])}")
            if build is not None:
                print("  variant    " +
                      ("none: pack it" if entry["variant"] is None else str(entry["variant"])))
    return 1 if build is not None and any(entry["variant"] is None for entry in result) else 0


def _identity(arguments: argparse.Namespace) -> int:
    from ._canonical import canonical, digest
    from ._pack.identity import make_identity, put_identity
    identity, notes = make_identity(arguments.arch, arguments.gpu, arguments.function)
    text, own = canonical(identity), digest(identity)
    for note in notes:
        print(f"wavetune identity: {note}", file=sys.stderr)
    if arguments.output is not None:
        path = Path(arguments.output)
        beside = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            beside.write_text(text)
            beside.rename(path)
        except OSError as error:
            raise PackError(f"cannot write {path}: {error.strerror}", 1) from None
    if arguments.put:
        put_identity(text, own, dict(os.environ))
    if arguments.json:
        inline = {"identity": identity} if arguments.output is None else {"file": arguments.output}
        print(json.dumps({"digest": own, "notes": notes, **inline}))
    else:
        print(text if arguments.output is None else f"{arguments.output}: identity {own}")
    return 0


def _env(arguments: argparse.Namespace) -> int:
    from ._pack.interpreter import describe
    print(json.dumps(describe()))
    return 0


def _on_term(number: int, frame: Any) -> NoReturn:
    raise SystemExit(128 + number)


def main(argv: list[str] | None = None) -> int:
    arguments = _parser().parse_args(argv)
    signal.signal(signal.SIGTERM, _on_term)
    try:
        if arguments.command in ("pack", "keys"):
            from ._pack.build import clean_environment
            clean_environment()
        return {"pack": _pack, "build": _build, "keys": _keys, "identity": _identity,
                "env": _env}[arguments.command](arguments)
    except PackError as error:
        print(f"wavetune {arguments.command}: {error}", file=sys.stderr)
        return error.status
    except KeyboardInterrupt:
        print(f"wavetune {arguments.command}: interrupted; nothing was left behind",
              file=sys.stderr)
        return 130
    except BrokenPipeError:
        return 0
