"""Counts which autotuned functions of a package pack reads, and which of them compile for a target.

    census.py ROOT PACKAGE [--arch gfx942] [--torch 2.9.0] [--compile SECONDS] [--only TEXT]

ROOT is the folder that holds the package (site-packages, or an unpacked wheel); nothing of it is imported. A function is read
when its text, decorators and configs are known here. With --compile one config of each is compiled, with guessed arguments:
what the text loads or stores by is a pointer to bfloat16, other parameters are 64, heuristics are evaluated. A guess can be
wrong where the function is right, so what does not compile is listed with its reason and is no fault of pack by itself.
"""
import argparse
import ast
import collections
import os
import re
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))
from recorded_calls import call_task  # noqa: E402
from wavetune._pack.build import clean_environment, compile_tasks  # noqa: E402
from wavetune._pack.calls import Tensor, prunes, pruned  # noqa: E402
from wavetune._pack.configs import decorator_configs  # noqa: E402
from wavetune._pack.decorator import refuse_unfollowed  # noqa: E402
from wavetune._errors import PackError, one_line  # noqa: E402
from wavetune._pack.source import load_function  # noqa: E402
from wavetune._pack.target import make_backend, make_target  # noqa: E402


def name_of(node):
    node = node.func if isinstance(node, ast.Call) else node
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def autotuned(root, package):
    """(file, function) of each definition under a decorator whose name ends with autotune."""
    for path in sorted((root / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and any(name_of(d).endswith("autotune") for d in node.decorator_list):
                yield path, node


def pointers(function):
    """The parameters of which an address is made: what load, store and the like take, and what is added to to give that."""
    names = {argument.arg for argument in function.args.args}
    found = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and node.args and (
                name_of(node).startswith(("load", "store", "atomic", "make_block_ptr", "make_tensor_descriptor"))):
            left = node.args[0]
            while isinstance(left, ast.BinOp):
                left = left.left
            found.update(n.id for n in ast.walk(left) if isinstance(n, ast.Name))
    for _ in range(4):  # x_ptr += …; p = x_ptr + …
        for node in ast.walk(function):
            target = node.target if isinstance(node, ast.AugAssign) else node.targets[0] if isinstance(node, ast.Assign) else None
            value = getattr(node, "value", None)
            while isinstance(value, ast.BinOp):
                value = value.left
            if isinstance(target, ast.Name) and target.id in found and isinstance(value, ast.Name):
                found.add(value.id)
    return found & names


def guess(decorated, node):
    """A call: pointers by the text, constexprs without a default 64 or, named like a flag, False; others 64."""
    buffers, call = pointers(node), {}
    given = {name for config in decorated.autotuner.configs for name in config.kwargs}
    for parameter in decorated.jit.params:
        name = parameter.name
        if name in given or name in decorated.heuristics or parameter.has_default:
            continue
        if name in buffers and not parameter.is_constexpr:
            kind = "int32" if re.search(r"seqlens|indices|offsets|ids|lens$|_map|block_counts|chunk", name) else "bfloat16"
            call[name] = Tensor(kind, (4096, 64))
        elif not parameter.is_constexpr:
            call[name] = 0.125 if re.search(r"scale|eps|alpha|lower_bound|beta|gamma", name) else 4096
        else:
            is_flag = name.isupper() and ("_" in name or name in ("REVERSE",)) and not re.search("BLOCK|DIM|SIZE|NUM|_D$|_K$|_V$|LEN", name)
            call[name] = False if is_flag or name.startswith("is_") else 64
    return call


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("root", type=Path)
    parser.add_argument("package")
    parser.add_argument("--arch", default="gfx942")
    parser.add_argument("--torch", default="2.9.0")
    parser.add_argument("--compile", type=float, metavar="SECONDS")
    parser.add_argument("--only", default="")
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    clean_environment()
    target = make_target(arguments.arch)
    backend = make_backend(target)
    n, n_configs, n_pruning, refused, read = 0, 0, 0, collections.Counter(), []
    examples = {}
    for path, node in autotuned(arguments.root, arguments.package):
        if arguments.only not in f"{path}:{node.name}":
            continue
        n += 1
        try:
            decorated = load_function(path, node.name, target, None, arguments.root, arguments.torch)
            refuse_unfollowed(decorated, [])
            decorator_configs(decorated, backend)
        except PackError as error:
            reason = re.sub(r"\S*/\S+\s?", "", str(error)).replace(node.name, "NAME")[:160]
            refused[reason] += 1
            examples.setdefault(reason, f"{path.relative_to(arguments.root)}:{node.name}")
            continue
        n_configs += len(decorated.autotuner.configs)
        n_pruning += prunes(decorated)
        read.append((path, node, decorated))
    print(f"{arguments.package}: {n} autotuned functions, {len(read)} read ({n_configs} configs; {n_pruning} prune them)")
    for reason, count in refused.most_common():
        print(f"  {count} refused: {reason} ({examples[reason]})")
    if arguments.compile:
        compile_all(arguments, read, target, backend)


def compile_all(arguments, read, target, backend):
    compiled, failed = 0, collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        objects = Path(folder) / "objects"
        objects.mkdir()
        os.environ["TRITON_CACHE_DIR"] = f"{folder}/cache"
        for path, node, decorated in read:
            call = guess(decorated, node)
            try:
                config = pruned(decorated, call, decorated.autotuner.configs)[0]
                (result,) = compile_tasks([call_task(decorated, backend, call, config)], decorated.jit, target, backend, objects,
                                          1, arguments.compile)
            except PackError as error:
                result = {"error": one_line(str(error))}
            compiled += "digest" in result
            if "error" in result:
                failed[re.sub(r"at \d+:\d+: .*?: |\S*/\S+\s?", "", result["error"])[:110]] += 1
                print(f"  {path.relative_to(arguments.root)}:{node.name}: {result['error'][:230]}", flush=True)
    print(f"{arguments.package}: {compiled} of {len(read)} compile for {arguments.arch} with guessed arguments")
    for reason, count in failed.most_common():
        print(f"  {count}: {reason}")


if __name__ == "__main__":
    main()
