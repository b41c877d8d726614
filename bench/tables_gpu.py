"""Functions whose configs come from tables, tuned on a GPU: vLLM's block-scaled fp8 matrix product and fused MoE.

    bench/tables_gpu.py --site FOLDER [--tuner FILE] [--family NAME]… [--every N] [--trials N] [--oracle N] [--postgres-bin DIR]
                        [--tables FOLDER] [--builds FOLDER] [--pack-only] [--space FILE] [--json FILE]

FOLDER holds the package vllm (texts only: nothing of it is imported). For each family the entry of kernels/tables is packed for all
keys and pushed to a server, and an agent tunes all keys by --search descent with so many --trials (0: every config): block_fp8 for
Llama-3-70B, mixtral and deepseek for fused_moe in bfloat16 of Mixtral 8x7B and in block-scaled fp8 of DeepSeek-V3, each at tensor
parallel 8, M of 1 to 4096 by twos. The release is fetched as
tables, to --tables. Printed for every key: the winner's gain over the default that the package's code has (of the verdict), and over
the package's own table for this GPU where there is one (in turns with the winner, 3 processes of 60 rounds). For --oracle keys of
block_fp8 every config is measured: the seconds of a key of a campaign of them, and of vLLM's own tuner (bench/vllm_tuner.py) on the
same configs, compiled before on both sides, and the regret of both; with --cold-space one key of its configs from nothing. Builds are kept in --builds, and taken from there by the next
call; --space has a space in place of the entry's. --family none: the comparison with the tuner alone.
"""

import argparse
import json
import math
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
import types

import tuning
from captured_gpu import Server, agent_start, environment_wait, wavetune

MS = [2**i for i in range(13)]
LLAMA = [(1280, 8192), (8192, 1024), (7168, 8192), (8192, 3584)]  # qkv, o, gate_up, down: (N, K) at tensor parallel 8
W8A8, MOE = "vllm/model_executor/layers/quantization/utils/configs", "vllm/model_executor/layers/fused_moe/configs"
# An entry, the format of its tables, their folder in the package, and what their names have after the device.
FAMILIES = {
    "block_fp8": ("block_fp8:vllm", "vllm-w8a8", W8A8, ",dtype=fp8_w8a8,block_shape=[128,128]"),
    "mixtral": ("fused_moe:vllm_bf16", "vllm-moe", MOE, ""),
    "deepseek": ("fused_moe:vllm_fp8", "vllm-moe", MOE, ",dtype=fp8_w8a8,block_shape=[128,128]"),
}
SHAPES = {"mixtral": {"E": 8, "N": 1792, "K": 4096, "top_k": 2}, "deepseek": {"E": 256, "N": 256, "K": 7168, "top_k": 8}}


def keys_of(family, every):
    ms = MS[::every]
    if family == "block_fp8":
        return [{"M": m, "N": n, "K": k} for n, k in LLAMA for m in ms]
    return [{**SHAPES[family], "M": m, "gemm": gemm} for gemm in ("up", "down") for m in ms]


class Table:
    """What bench/tuning.py wants of a kernel: a folder that pack made of an entry."""

    def __init__(self, family, place, keys):
        entry, self.format, self.tables, self.tail = FAMILIES[family]
        self.entry, self.place, self.keys = f"{tuning.ROOT}/kernels/tables/{entry}", pathlib.Path(place), keys
        self.name = family

    def folder(self, _):
        return str(self.place)

    @property
    def space_path(self):
        manifest = json.loads((self.place / "kernel.json").read_text())
        version, = manifest["versions"].values()
        return self.place / version["space"]

    def pack(self, arguments, builds):
        """The build, and what pack printed (of an earlier call, where the build is there)."""
        output = pathlib.Path(builds, f"{self.place.name}.build")
        lines, printed = pathlib.Path(f"{output}.keys"), pathlib.Path(f"{output}.json")
        if not printed.exists():
            lines.write_text("".join(json.dumps(key) + "\n" for key in self.keys))
            begin = time.monotonic()
            done = subprocess.run([sys.executable, "-m", "wavetune", "pack", self.entry, "--package-root", arguments.site, "--kernel",
                                   self.place, "--keys", lines, "--arch", arguments.arch, "--output", output, "--json",
                                   *(["--space", arguments.space] if arguments.space else [])], stdout=subprocess.PIPE, check=True,
                                  env={**os.environ, "PYTHONPATH": str(tuning.ROOT / "python")})
            printed.write_text(json.dumps({**json.loads(done.stdout), "wall_s": time.monotonic() - begin}))
        return output, json.loads(printed.read_text())

    def with_configs(self, place, configs):
        """A copy whose space is these configs; the first is the default."""
        shutil.copytree(self.place, place)
        other = Table.__new__(Table)
        other.__dict__.update(self.__dict__, place=pathlib.Path(place))
        roles = json.loads(self.space_path.read_text())["roles"]
        other.space_path.write_text(json.dumps({"configs": configs, "roles": roles, "default": configs[0]}))
        return other


def shipped_rows(table, site, key, gpu):
    """The rows of the package's own table for the key's shape and this GPU, by M."""
    shape = ",".join(f"{name}={key[name]}" for name in (("N", "K") if "E" not in key else ("E", "N")))
    path = pathlib.Path(site, table.tables, f"{shape},device_name={gpu.replace(' ', '_')}{table.tail}.json")
    return {int(m): row for m, row in json.loads(path.read_text()).items() if m.isdigit()} if path.exists() else {}


def shipped(table, site, key, gpu):
    """The config that the reader takes for the key, or None."""
    rows = shipped_rows(table, site, key, gpu)
    return rows[min(rows, key=lambda m: abs(m - key["M"]))] if rows else None


def thin_space(table, arguments, gpu):
    """The default, the package's own rows, and so many more configs of the entry's space, at random."""
    folder, version = table.entry.rsplit(":", 1)
    manifest = json.loads(pathlib.Path(folder, "kernel.json").read_text())
    space = json.loads(pathlib.Path(folder, manifest["versions"][version]["space"]).read_text())
    names, draw = list(space["parameters"]), random.Random(7)
    rows = [same_names(row, names) for key in table.keys for row in shipped_rows(table, arguments.site, key, gpu).values()]
    more = [{name: draw.choice(values) for name, values in space["parameters"].items()} for _ in range(arguments.thin)]
    configs = [space["default"]]
    configs += [one for one in [*filter(None, rows), *more] if one["BLOCK_SIZE_M"] >= 16 and one not in configs]
    distinct = [one for i, one in enumerate(configs) if one not in configs[:i]]
    return {"configs": distinct, "roles": space["roles"], "default": distinct[0]}


def same_names(config, like):
    """The config with exactly the names of another; None where it lacks one."""
    return {name: config[name] for name in like} if all(name in config for name in like) else None


def campaign(server, table, build, trials, scratch):
    """The jobs of all keys, by their index, and the seconds from the first request to the last winner."""
    wavetune(server, "kernel", "push", table.place, "--build", build)
    listed = pathlib.Path(f"{build}.keys")
    search = ["--search", "descent", "--trials", trials] if trials else []
    begin = time.monotonic()
    answer = json.loads(wavetune(server, "submit", table.place, "--keys", listed, "--json", *search))
    numbers = [job["job"] for job in answer]
    waiting = set(numbers)
    while waiting:
        time.sleep(1)
        waiting -= {job["job"] for state in ("done", "failed", "cancelled") for job in server.client.jobs(state=state)}
    seconds = time.monotonic() - begin
    return [server.client.job(number) for number in numbers], seconds


def gains(table, site, build, jobs, gpu, scratch, device):
    """For every key: the winner's gain over the default, and over the package's table."""
    rows = []
    for i, (key, job) in enumerate(zip(table.keys, jobs)):
        winner = job.get("winner") or {}
        verdict, config = winner.get("verdict"), winner.get("config_values")
        if not config:
            rows.append({"key": key, "error": f"{job['state']}: {job.get('reason')}"})
            continue
        row = {"key": key, "winner": config, "winner_us": verdict["winner_us"], "over_shipped": None, "verdict": verdict["verdict"],
               "over_default": 1 / verdict["baseline_ratio"], "measured": sum(job["outcomes"].values()),
               "device_s": job["spent_device_seconds"]}
        found = shipped(table, site, key, gpu)
        wanted = found and same_names(found, config)
        if wanted == config:
            row["over_shipped"] = 1.0
        elif wanted:
            few = table.with_configs(pathlib.Path(scratch, f"few-{table.place.name}-{i}"), [config, wanted])
            try:
                ratio = 1 + tuning.oracle(few, scratch, build, device, [key], 60, 3).regret(0, 1)
                row["over_shipped"] = ratio if math.isfinite(ratio) else None  # it is not in the build
            except SystemExit as error:
                row["shipped_error"] = str(error)
        rows.append(row)
    return rows


def print_rows(rows):
    for row in rows:
        if "error" in row:
            print(f"  {tuning.key_text(row['key']):52} {row['error']}")
            continue
        beside = f"{row['over_shipped']:6.2f}x" if row["over_shipped"] else "      -"
        print(f"  {tuning.key_text(row['key']):52} {row['winner_us']:9.1f} us  default {row['over_default']:6.2f}x  table {beside}  "
              f"{row['verdict']}, {row['measured']} measured")
    good = [row for row in rows if "error" not in row]
    over = [row["over_default"] for row in good]
    beside = [row["over_shipped"] for row in good if row["over_shipped"]]
    print(f"ratio: {len(good)} of {len(rows)} keys; the default's time over the winner's: geometric mean "
          f"{tuning.geometric_mean(over):.2f}x, median {statistics.median(over):.2f}, most {max(over):.2f}" + (
              f"; the table's: {tuning.geometric_mean(beside):.2f}x, most {max(beside):.2f} ({len(beside)} keys)" if beside else
              "; the package has no table for these shapes and this GPU, or none whose configs were packed"), flush=True)


def ordinal_of(space, config):
    """The number of a config in its space: its place in a list, or its mixed-radix position, the last parameter fastest."""
    if "configs" in space:
        return space["configs"].index({name: config[name] for name in space["configs"][0]})
    ordinal = 0
    for name, choices in space["parameters"].items():
        ordinal = ordinal * len(choices) + choices.index(config[name])
    return ordinal


def against_tuner(arguments, scratch):
    """Seconds of a key and regret, here and in vLLM's tuner, of every config of the entry; by an oracle of both."""
    device, n = arguments.device, arguments.oracle
    table = Table("block_fp8", pathlib.Path(arguments.builds or scratch, "every"), keys_of("block_fp8", 1))
    whole = [key for key in table.keys if key["M"] % 16 == 0 and key["K"] % 2048 == 0]  # of one code, as compiling takes long
    keys = whole[::max(1, len(whole) // n)][:n]
    table.keys = keys
    build, packed = table.pack(argparse.Namespace(**{**vars(arguments), "space": arguments.every_space}), table.place.parent)
    print(f"every config: packed in {packed['wall_s']:.0f} s: "
          + "; ".join(f"{one['objects']} objects, {one['failed']} failed" for one in packed["variants"]), flush=True)
    campaign = tuning.tune(table, scratch, build, device, keys)
    listed = pathlib.Path(scratch, "peer.jsonl")
    listed.write_text("".join(json.dumps(key) + "\n" for key in keys))
    done = subprocess.run([sys.executable, tuning.ROOT / "bench/vllm_tuner.py", arguments.tuner, table.place, listed, "--warm",
                           str(arguments.warm)],
                          stdout=subprocess.PIPE, text=True, check=True, env={**os.environ, "TRITON_CACHE_DIR": f"{scratch}/triton"})
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    exact = tuning.oracle(table, scratch, build, device, keys, 60, 3)
    rows = []
    for i, key in enumerate(keys):
        ordinal = ordinal_of(json.loads(table.space_path.read_text()), lines[i]["config"])
        rows.append({"key": key, "peer_s": lines[i]["seconds"], "wavetune_s": campaign.seconds / len(keys),
                     "regret": exact.regret(i, campaign.lines[i]["winner"]["config"]), "peer_regret": exact.regret(i, ordinal)})
        row = rows[-1]
        print(f"  {tuning.key_text(key):52} vLLM's tuner {row['peer_s']:7.1f} s, here {row['wavetune_s']:6.1f} s: "
              f"{row['peer_s'] / row['wavetune_s']:5.1f}x; regret {100 * row['regret']:.2f} %, its {100 * row['peer_regret']:.2f} %",
              flush=True)
    ratios = [row["peer_s"] / row["wavetune_s"] for row in rows]
    print(f"ratio: seconds a key, vLLM's tuner over here: {tuning.geometric_mean(ratios):.1f}x (least {min(ratios):.1f}); every config "
          f"of the space, compiled before on both sides; most regret {100 * max(r['regret'] for r in rows):.2f} %, its "
          f"{100 * max(r['peer_regret'] for r in rows):.2f} %", flush=True)
    return rows


def family_run(run, family, environment, gpu):
    arguments, scratch = run.arguments, run.scratch
    builds = arguments.builds or scratch
    builds.mkdir(parents=True, exist_ok=True)
    table = Table(family, builds / family, keys_of(family, arguments.every))
    own = argparse.Namespace(**vars(arguments))
    if arguments.thin:
        own.space = builds / f"{family}.space.json"
        own.space.write_text(json.dumps(thin_space(table, arguments, gpu)))
    build, packed = table.pack(own, builds)
    print(f"{table.name}: {len(table.keys)} keys packed in {packed['wall_s']:.0f} s: "
          + "; ".join(f"{one['objects']} objects, {one['failed']} failed" for one in packed["variants"]), flush=True)
    if arguments.pack_only:
        return None
    jobs, spent = campaign(run.server, table, build, arguments.trials, scratch)
    print(f"  {len(jobs)} keys by the server and one agent: {spent:.0f} s, {spent / len(jobs):.1f} s a key", flush=True)
    rows = gains(table, arguments.site, build, jobs, gpu, scratch, arguments.device)
    print_rows(rows)
    tables = []
    if arguments.tables:
        stated = json.dumps({**environment, **jobs[0]["environment"]})
        made = json.loads(wavetune(run.server, "publish", "--environment", stated, "--json", "--tag", "default"))
        arguments.tables.mkdir(parents=True, exist_ok=True)
        place = arguments.tables / f"{family}.tar"
        wavetune(run.server, "export", made["release"], "--format", table.format, "--to", place)
        with tarfile.open(place) as files:
            tables = sorted(one.name for one in files if one.isfile())
        print(f"  tables: {', '.join(tables)}", flush=True)
    return {"family": family, "packed": packed, "campaign_s": spent, "rows": rows, "tables": tables}


def cold(arguments, scratch):
    """One key from nothing, on all cores: packing and tuning, and vLLM's unchanged tuner, which compiles in its loop."""
    table = Table("block_fp8", pathlib.Path(scratch, "cold"), [{"M": 64, "N": 7168, "K": 8192}])
    begin = time.monotonic()
    build, packed = table.pack(argparse.Namespace(**{**vars(arguments), "space": arguments.cold_space}), table.place.parent)
    line = tuning.tune(table, scratch, build, arguments.device, table.keys).lines[0]
    ours = time.monotonic() - begin
    listed = pathlib.Path(scratch, "cold.jsonl")
    listed.write_text(json.dumps(table.keys[0]) + "\n")
    begin = time.monotonic()
    subprocess.run([sys.executable, tuning.ROOT / "bench/vllm_tuner.py", arguments.tuner, table.place, listed], check=True,
                   stdout=subprocess.PIPE, env={**os.environ, "TRITON_CACHE_DIR": f"{scratch}/empty"})
    theirs = time.monotonic() - begin
    print(f"ratio: from nothing, {line['configs']} configs of {tuning.key_text(table.keys[0])}, whole processes on "
          f"{len(os.sched_getaffinity(0))} cores: vLLM's tuner {theirs:.1f} s, here {ours:.1f} s (packing {packed['wall_s']:.1f}): "
          f"{theirs / ours:.1f}x", flush=True)
    return {"configs": line["configs"], "peer_s": theirs, "wavetune_s": ours, "packing_s": packed["wall_s"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--site", required=True)
    parser.add_argument("--tuner")
    parser.add_argument("--family", action="append", choices=[*FAMILIES, "none"])
    parser.add_argument("--every", type=int, default=1, help="every Nth M")
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--oracle", type=int, default=3)
    parser.add_argument("--gpu", default=None, help="the name in the package's tables (torch's name of this GPU)")
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--device", default="cuda0")
    parser.add_argument("--warm", type=int, default=max(1, len(os.sched_getaffinity(0)) - 1))
    parser.add_argument("--postgres-bin")
    parser.add_argument("--builds", type=pathlib.Path, help="where builds are kept")
    parser.add_argument("--pack-only", action="store_true")
    parser.add_argument("--space", help="a space (JSON) in place of the entry's, for the campaigns")
    parser.add_argument("--thin", type=int, default=0, help="so many configs of the entry's space at random, beside the package's")
    parser.add_argument("--every-space", help="the same, for --oracle")
    parser.add_argument("--cold-space", help="a space for one key from nothing, beside vLLM's tuner")
    parser.add_argument("--tables", type=pathlib.Path, help="where the tables go")
    parser.add_argument("--agent", default="", help="options of the agent")
    parser.add_argument("--json")
    arguments = parser.parse_args()
    gpu, answer = arguments.gpu, []
    if gpu is None:
        import torch
        gpu = torch.cuda.get_device_name()
    with tempfile.TemporaryDirectory(prefix="wt-tables-") as scratch:
        os.chmod(scratch, 0o755)
        if arguments.pack_only:
            run = types.SimpleNamespace(scratch=pathlib.Path(scratch), arguments=arguments)
            for family in arguments.family or FAMILIES:
                family_run(run, family, None, gpu)
            return
        server = Server(pathlib.Path(scratch, "server"), arguments.postgres_bin)
        run = types.SimpleNamespace(server=server, scratch=pathlib.Path(scratch), arguments=arguments)
        agent = agent_start(run)
        try:
            environment = environment_wait(run)
            for family in [one for one in arguments.family or FAMILIES if one != "none"]:
                answer.append(family_run(run, family, environment, gpu))
                if arguments.json:
                    pathlib.Path(arguments.json).write_text(json.dumps(answer))
            agent.terminate()
            agent.wait(30)
            if arguments.tuner:
                answer.append({"tuner": against_tuner(arguments, scratch)})
            if arguments.tuner and arguments.cold_space:
                answer.append({"cold": cold(arguments, scratch)})
        finally:
            agent.kill()
            server.stop()
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(answer))


if __name__ == "__main__":
    main()
