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
from ._canonical import Json, canonical, digest, read_json
from ._errors import PackError
from ._pack.decorator import IGNORABLE

_EPILOG = """
A kernel folder is packed as it stands:
  python3 -m wavetune pack kernels/matmul:triton --key M=4096,N=4096,K=4096 --arch gfx942 \\
    --output build
A function of an installed package, for which kernels/tables has an entry, and a file with a
@triton.jit function become a kernel folder first:
  python3 -m wavetune pack kernels/tables/block_fp8:vllm --package-root SITE-PACKAGES \\
    --kernel FOLDER --key M=16,N=2048,K=7168 --arch sm_90 --output build
  python3 -m wavetune pack matmul.py --kernel matmul --key M=4096,N=4096,K=4096 --arch gfx942 \\
    --output build \\
    --signature 'a_ptr=*fp16[M,K], b_ptr=*fp16[K,N], c_ptr=*fp16[M,N]:write, stride_am=i64(K), …' \\
    --grid "lambda META: (triton.cdiv(M, META['BLOCK_M']) * triton.cdiv(N, META['BLOCK_N']), )"
Then: wavetune kernel push FOLDER --build build
"""


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; see --help\n")


_OF_ENTRIES = ("kernel", "space", "package_root")
_REPEATED: Json = {"action": "append", "default": []}
_JSON = ("--json", None, "print one JSON document")


def add_options(parser: Any, *rows: tuple[Any, ...]) -> None:
    """Adds options. A row: flags, metavar (None: a switch), help, further arguments of
    argparse's add_argument."""
    for flags, metavar, text, *more in rows:
        kind = {"metavar": metavar} if metavar else {"action": "store_true"}
        parser.add_argument(*flags.split(), help=text, **kind, **(more[0] if more else {}))


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
    pack.add_argument("place", metavar="DIR[:VERSION]|FILE.py[:FUNCTION]",
                      help="a kernel folder, or a Python file")
    _common(pack)
    add_options(pack, ("--output -o", "FOLDER", "where the build goes", {"required": True}))
    _compilers(pack)
    add_options(
        pack,
        ("--keep-spilling", None,
         "compile also configs whose loops carry twice as much as the GPU has registers"),
        ("--cache", "FOLDER", "Triton's cache to use and keep (a private one)"),
        ("--image", "FILE",
         "identity.json of the image whose Triton cache will hold the code objects (one like this "
         "Python's)"))
    made = pack.add_argument_group("for a file, and for an entry of kernels/tables")
    add_options(
        made,
        ("--kernel", "FOLDER", "where the kernel folder goes"),
        ("--space", "FILE",
         "a space (JSON), in place of the decorator's configs or of the entry's"),
        ("--package-root", "FOLDER",
         "the folder that holds the file's package (site-packages): what the kernel needs of its "
         "other modules is read from there; the package is not imported"))
    file = pack.add_argument_group("for a file")
    add_options(
        file,
        ("--signature", "TEXT", "what the function is called with (python/README.md)"),
        ("--grid", "TEXT", "the launch's lambda or tuple, as Python"))
    add_options(
        pack,
        ("--ignore", "ARGUMENT",
         f"pack as if the autotune decorator had no {', '.join(IGNORABLE[:-1])} or "
         f"{IGNORABLE[-1]}; may be repeated",
         {"action": "append", "choices": IGNORABLE}))
    add_options(
        file,
        ("--name", "NAME", "of the kernel (the function's)"),
        ("--module", "NAME",
         "the module that imports the function in the deployment (the file's name)"))

    build = commands.add_parser("build", help="make kernels and builds of the launches that "
                                              "programs recorded")
    build.add_argument("captures", nargs="?", metavar="FOLDER",
                       help="what WAVETUNE_CAPTURE_TO named for the programs")
    add_options(
        build,
        ("--output -o", "FOLDER", "where the kernel folders go, each with its build"),
        ("--url", "URL",
         "in place of FOLDER: lease launches from this server ($WAVETUNE_TOKEN, role builder) and "
         "push what is built"),
        ("--wait", None, "with --url: go on until stopped"),
        ("--patience", "S",
         "with --url: how long a server may be away (%(default)g)",
         {"type": float, "default": 60.0}),
        ("--arch", "ARCH",
         "gfx942, sm_90, … (those of the GPUs that launches were recorded on); with --url may be "
         "repeated (gfx942)",
         _REPEATED))
    _compilers(build)
    add_options(
        build,
        ("--entries", "FOLDER",
         "entries for functions without an autotuner, before those of kernels/tables; may be "
         "repeated", _REPEATED),
        ("--sign-key", "FILE",
         "with --url: a private key (`wavetune key new`) that signs kernels and builds"),
        ("--no-sandbox", None,
         "compile captured text with all rights of this user, where wavetune-agent is not "
         "installed or Linux cannot confine it"),
        _JSON)

    keys = commands.add_parser("keys", help="show the specialisation and the variant of each key")
    keys.add_argument("place", metavar="DIR[:VERSION]", help="a kernel folder")
    _common(keys)
    add_options(keys, ("--build", "FOLDER", "say which variant of this build a key gets"))

    identity = commands.add_parser("identity", help="record what the paths of this image's caches "
                                                    "are made of")
    add_options(
        identity,
        ("--output -o", "FILE", "where identity.json goes (standard output)"),
        ("--function", "KERNEL=MODULE:NAME",
         "a decorated function and its kernel, by name, hash or folder; may be repeated",
         _REPEATED),
        ("--arch", "ARCH", "of the GPU that the image will run on (that of this machine)"),
        ("--gpu", "NAME", "its name as torch has it (that of this machine)"),
        ("--put", None, "keep it at the server: $WAVETUNE_URL, $WAVETUNE_TOKEN"),
        ("--json", None,
         "print one JSON document: the digest, the notes, and the identity where no --output is"))

    env = commands.add_parser("env", help="print the versions of triton and torch that this Python "
                                          "has, as JSON")
    add_options(env, ("--json", None, "the same: it is always JSON"))
    return parser


def _common(parser: argparse.ArgumentParser) -> None:
    add_options(
        parser,
        ("--key", "NAME=VALUE,…", "a key, or several: 'M=1..4096*2,N=64,128' gives all "
         "combinations; may be repeated", _REPEATED),
        ("--keys", "FILE|-", "keys, one a line, as --key or JSON objects"),
        ("--arch", "ARCH", "gfx942, sm_90, … (%(default)s)", {"default": "gfx942"}),
        ("--gpu-name", "NAME", "what conditions of the space read as gpu_name", {"default": ""}),
        _JSON)


def add_compilers(parser: argparse.ArgumentParser) -> None:
    add_options(
        parser,
        ("--processes -j", "N",
         "compilers at once (the CPUs: %(default)s)",
         {"type": int, "default": len(os.sched_getaffinity(0))}),
        ("--timeout", "S",
         "seconds for compiling a config (%(default)g)",
         {"type": float, "default": 300.0}))


def _compilers(parser: argparse.ArgumentParser) -> None:
    add_compilers(parser)
    add_options(
        parser,
        ("--torch", "VERSION", "of the deployment (that of this Python, when it has one)"),
        ("--rocm", "VERSION", "of the deployment (not stated)"))


def toolchain(arguments: argparse.Namespace) -> dict[str, str]:
    """torch and rocm of the deployment, where known."""
    from ._pack.versions import describe
    stated = {"torch": getattr(arguments, "torch", None) or describe()["torch"],
              "rocm": getattr(arguments, "rocm", None)}
    return {name: value for name, value in stated.items() if value}


def _file_place(place: str) -> tuple[Path, str | None] | None:
    match = re.fullmatch(r"(.+\.py)(?::([A-Za-z_]\w*))?", place)
    return (Path(match[1]), match[2]) if match else None


def _request(arguments: argparse.Namespace, kernel: Any, keys: list[Any]) -> Any:
    from ._pack.artifacts import image_of
    from ._pack.build import Request
    own, stated = vars(arguments), toolchain(arguments)
    image = None
    if own.get("image") is not None:
        image = image_of(read_json(Path(arguments.image)), arguments.image)
    return Request(kernel, keys, arguments.arch, own.get("processes", 1), own.get("timeout", 0.0),
                   arguments.gpu_name, stated, own.get("cache"), own.get("module"), image,
                   own.get("keep_spilling", False), stated.get("torch"),
                   tuple(own.get("ignore") or ()))


def _pack(arguments: argparse.Namespace) -> int:
    from ._pack.build import check_place, pack
    from ._pack.entries import kernel_of_entry, load_entry
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
        entry = load_entry(arguments.place)
        names = ("signature", "grid", "name", *(() if entry else _OF_ENTRIES))
        for name in names:
            if getattr(arguments, name) is not None:
                raise PackError(f"--{name.replace('_', '-')} is for a file; {arguments.place} is "
                                "a kernel folder, which states it")
        if entry is not None:
            kernel, files = kernel_of_entry(entry, arguments)
            folder = new_folder(Path(arguments.kernel), files)
        else:
            kernel, folder = load_kernel(arguments.place), nullcontext()
    with folder:
        result = pack(_request(arguments, kernel, keys), Path(arguments.output))
    if arguments.json:
        print(json.dumps(result))
        return 0
    for variant in result["variants"]:
        when = f"when {variant['when']}" if variant["when"] else "for every key"
        print(_counts((variant["objects"], "objects"), (variant["failed"], "failed"),
                      (variant["left_out"], "left out by prune_configs_by")), when)
    print(f"{result['folder']}: build {result['build']} of kernel {result['kernel']}")
    return 0


def _counts(*counts: tuple[int, str]) -> str:
    """The first, and those of the others that are not 0."""
    return ", ".join(f"{n} {what}" for i, (n, what) in enumerate(counts) if n or i == 0)


def _terms(arguments: argparse.Namespace) -> Any:
    from ._pack.build import clean_environment
    from ._captured.confined import Terms, find_launcher
    from ._pack.entries import load_entries
    from ._pack.signing import SigningKey
    key = SigningKey(arguments.sign_key) if arguments.sign_key is not None else None
    clean_environment()
    return Terms(arguments.processes, arguments.timeout, toolchain(arguments),
                 find_launcher(arguments.no_sandbox), key, load_entries(arguments.entries))


def _build(arguments: argparse.Namespace) -> int:
    from ._captured.build import build_folder
    if arguments.processes < 1:
        raise PackError("--processes is at least 1")
    is_local = arguments.captures is not None
    if is_local == (arguments.url is not None) or is_local != (arguments.output is not None):
        raise PackError("give FOLDER and --output, or --url")
    if arguments.url is not None:
        return _build_leased(arguments)
    if len(arguments.arch) > 1 or arguments.wait or arguments.sign_key is not None:
        raise PackError("--wait, --sign-key and several --arch are for --url; `wavetune kernel "
                        "push --sign-key` signs folders")
    report = build_folder(Path(arguments.captures), Path(arguments.output),
                          (arguments.arch or [None])[0], _terms(arguments))
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
    return f"{one['folder']}: " + _counts(
        (len(one["keys"]), "keys"), (one["objects"], "objects"), (one["failed"], "failed"),
        (one["pruned"], "pruned by the program"))


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
    from ._pack.expressions import expression
    from ._pack.folder import load_kernel
    from ._pack.keys import format_key, read_keys
    plan = make_plan(
        _request(arguments, load_kernel(arguments.place), read_keys(arguments.key, arguments.keys)))
    build = read_json(Path(arguments.build) / "build.json") if arguments.build else None
    result = []
    for variant, configs in zip(plan.variants, plan.configs):
        for key in variant.keys:
            entry: Json = {
                "key": key, "when": variant.when, "signature": variant.signature,
                "constexprs": variant.constexprs, "attributes": variant.attributes,
                "configs": len(configs)
            }
            if build is not None:
                entry["variant"] = next((i for i, v in enumerate(build["variants"])
                                         if "when" not in v or expression(v["when"]).evaluate(key)),
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
                number = entry["variant"]
                print("  variant   ", "none: pack it" if number is None else number)
    return 1 if build is not None and any(entry["variant"] is None for entry in result) else 0


def _identity(arguments: argparse.Namespace) -> int:
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
    from ._pack.versions import describe
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
