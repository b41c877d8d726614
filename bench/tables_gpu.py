"""Functions whose configs come from tables, tuned on a GPU: vLLM's block-scaled fp8 matrix product and fused MoE.

    bench/tables_gpu.py --site FOLDER [--tuner FILE] [--family NAME]… [--every N] [--trials N] [--oracle N] [--postgres-bin DIR]
                        [--tables FOLDER] [--json FILE]

FOLDER holds the package vllm (texts only: nothing of it is imported). For each family the entry of kernels/tables is packed for all
keys and pushed to a server, and an agent tunes all keys by --search descent with so many --trials (0: every config): block_fp8 for
Llama-3-70B, fused_moe for Mixtral 8x7B and DeepSeek-V3, each at tensor parallel 8, M of 1 to 4096 by twos. The release is fetched as
tables, to --tables. Printed for every key: the winner's gain over the default that the package's code has (of the verdict), and over
the package's own table for this GPU where there is one (in turns with the winner, 3 processes of 60 rounds). For --oracle keys of
block_fp8 every config is measured: the seconds of a key of a campaign of them, and of vLLM's own tuner (bench/vllm_tuner.py) on the
same configs, compiled before on both sides, and the regret of both.
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import types

import tuning
from captured_gpu import Server, agent_start, environment_wait, wavetune

MS = [2**i for i in range(13)]
LLAMA = [(1280, 8192), (8192, 1024), (7168, 8192), (8192, 3584)]  # qkv, o, gate_up, down: (N, K) at tensor parallel 8
MOE = [(8, 1792, 4096, 2), (256, 256, 7168, 8)]  # E, N, K, top_k of Mixtral 8x7B and of DeepSeek-V3
TABLES = {"block_fp8": "vllm/model_executor/layers/quantization/utils/configs", "fused_moe": "vllm/model_executor/layers/fused_moe/configs"}


def keys_of(family, every):
    ms = MS[::every]
    if family == "block_fp8":
        return [{"M": m, "N": n, "K": k} for n, k in LLAMA for m in ms]
    return [{"E": e, "N": n, "K": k, "top_k": top_k, "M": m, "gemm": gemm}
            for e, n, k, top_k in MOE for gemm in ("up", "down") for m in ms]


class Table:
    """What bench/tuning.py wants of a kernel: a folder that pack made of an entry."""

    def __init__(self, family, version, place, keys):
        self.entry, self.place, self.keys = f"{tuning.ROOT}/kernels/tables/{family}:{version}", pathlib.Path(place), keys
        self.name = f"{family}:{version}"

    def folder(self, _):
        return str(self.place)

    @property
    def space_path(self):
        manifest = json.loads((self.place / "kernel.json").read_text())
        version, = manifest["versions"].values()
        return self.place / version["space"]

    def pack(self, site, scratch, arch):
        output = pathlib.Path(scratch, f"build-{self.place.name}")
        lines = pathlib.Path(f"{output}.keys")
        lines.write_text("".join(json.dumps(key) + "\n" for key in self.keys))
        begin = time.monotonic()
        done = subprocess.run([sys.executable, "-m", "wavetune", "pack", self.entry, "--package-root", site, "--kernel", self.place,
                               "--keys", lines, "--arch", arch, "--output", output, "--json"], stdout=subprocess.PIPE, check=True,
                              env={**os.environ, "PYTHONPATH": str(tuning.ROOT / "python")})
        return output, time.monotonic() - begin, json.loads(done.stdout)

    def with_configs(self, place, configs):
        """A copy whose space is these configs; the first is the default."""
        shutil.copytree(self.place, place)
        other = Table.__new__(Table)
        other.__dict__.update(self.__dict__, place=pathlib.Path(place))
        roles = json.loads(self.space_path.read_text())["roles"]
        other.space_path.write_text(json.dumps({"configs": configs, "roles": roles, "default": configs[0]}))
        return other


def shipped(site, family, key, gpu):
    """The config of the package's table that its reader takes for the key, or None; (path, config)."""
    folder = pathlib.Path(site, TABLES[family])
    device = gpu.replace(" ", "_")
    name = f"N={key['N']},K={key['K']},device_name={device},dtype=fp8_w8a8,block_shape=[128,128].json" if family == "block_fp8" else \
        f"E={key['E']},N={key['N']},device_name={device},dtype=fp8_w8a8,block_shape=[128,128].json"
    path = folder / name
    if not path.exists():
        return None
    rows = {int(m): row for m, row in json.loads(path.read_text()).items() if m.isdigit()}
    return rows[min(rows, key=lambda m: abs(m - key["M"]))]


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
    numbers = [job["job"] for job in answer["jobs"]]
    waiting = set(numbers)
    while waiting:
        time.sleep(1)
        waiting -= {job["job"] for state in ("done", "failed", "cancelled") for job in server.client.jobs(state=state)}
    seconds = time.monotonic() - begin
    return [server.client.job(number) for number in numbers], seconds


def gains(table, site, family, build, jobs, gpu, scratch, device):
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
        found = shipped(site, family, key, gpu)
        wanted = found and same_names(found, config)
        if wanted == config:
            row["over_shipped"] = 1.0
        elif wanted:
            few = table.with_configs(pathlib.Path(scratch, f"few-{table.place.name}-{i}"), [config, wanted])
            try:
                row["over_shipped"] = 1 + tuning.oracle(few, scratch, build, device, [key], 60, 3).regret(0, 1)
            except SystemExit as error:  # the table's config is not one of the space
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
    print(f"ratio: {len(good)} of {len(rows)} keys; the default's time over the winner's: geometric mean {tuning.geometric_mean(over):.2f}x, "
          f"median {statistics.median(over):.2f}, most {max(over):.2f}" + (
              f"; the table's: {tuning.geometric_mean(beside):.2f}x, most {max(beside):.2f} ({len(beside)} keys)" if beside else
              "; the package has no table for these shapes and this GPU"), flush=True)


def against_tuner(table, tuner, build, scratch, device, n, warm):
    """Seconds of a key and regret, here and in vLLM's tuner, of every config; by an oracle of both."""
    step = max(1, len(table.keys) // n)
    keys = table.keys[step // 2::step][:n]
    campaign = tuning.tune(table, scratch, build, device, keys)
    listed = pathlib.Path(scratch, "peer.jsonl")
    listed.write_text("".join(json.dumps(key) + "\n" for key in keys))
    done = subprocess.run([sys.executable, tuning.ROOT / "bench/vllm_tuner.py", tuner, table.place, listed, "--warm", str(warm)],
                          stdout=subprocess.PIPE, text=True, check=True, env={**os.environ, "TRITON_CACHE_DIR": f"{scratch}/triton"})
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    exact = tuning.oracle(table, scratch, build, device, keys, 60, 3)
    space = json.loads(table.space_path.read_text())
    rows = []
    for i, key in enumerate(keys):
        ordinal = 0
        for name, choices in space["parameters"].items():
            ordinal = ordinal * len(choices) + choices.index(lines[i]["config"][name])
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
    table = Table(family, "vllm" if family == "block_fp8" else "vllm_fp8", scratch / family, keys_of(family, arguments.every))
    build, seconds, packed = table.pack(arguments.site, scratch, arguments.arch)
    print(f"{table.name}: {len(table.keys)} keys packed in {seconds:.0f} s: "
          + "; ".join(f"{one['objects']} objects, {one['failed']} failed" for one in packed["variants"]), flush=True)
    jobs, spent = campaign(run.server, table, build, arguments.trials, scratch)
    print(f"  {len(jobs)} keys by the server and one agent: {spent:.0f} s, {spent / len(jobs):.1f} s a key", flush=True)
    rows = gains(table, arguments.site, family, build, jobs, gpu, scratch, arguments.device)
    print_rows(rows)
    tables = []
    if arguments.tables:
        stated = json.dumps({**environment, **jobs[0]["environment"]})
        made = json.loads(wavetune(run.server, "publish", "--environment", stated, "--json", "--tag", "default"))
        name = "vllm-w8a8" if family == "block_fp8" else "vllm-moe"
        place = arguments.tables / name
        wavetune(run.server, "export", made["release"], "--format", name, "--to", place)
        tables = sorted(str(path.relative_to(place)) for path in place.rglob("*.json"))
        print(f"  tables: {', '.join(tables)}", flush=True)
    return {"family": family, "packed_s": seconds, "packed": packed, "campaign_s": spent, "rows": rows, "tables": tables,
            "made": (table, build)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--site", required=True)
    parser.add_argument("--tuner")
    parser.add_argument("--family", action="append", choices=list(TABLES))
    parser.add_argument("--every", type=int, default=1, help="every Nth M")
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--oracle", type=int, default=3)
    parser.add_argument("--gpu", default=None, help="the name in the package's tables (torch's name of this GPU)")
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--device", default="cuda0")
    parser.add_argument("--warm", type=int, default=max(1, len(os.sched_getaffinity(0)) - 1))
    parser.add_argument("--postgres-bin")
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
        server = Server(pathlib.Path(scratch, "server"), arguments.postgres_bin)
        run = types.SimpleNamespace(server=server, scratch=pathlib.Path(scratch), arguments=arguments)
        agent = agent_start(run)
        try:
            environment = environment_wait(run)
            for family in arguments.family or list(TABLES):
                answer.append(family_run(run, family, environment, gpu))
                if arguments.json:
                    pathlib.Path(arguments.json).write_text(json.dumps(answer, default=str))
            agent.terminate()
            agent.wait(30)
            if arguments.tuner and answer[0]["family"] == "block_fp8" and arguments.oracle:
                table, build = answer[0]["made"]
                answer[0]["tuner"] = against_tuner(table, arguments.tuner, build, scratch, arguments.device, arguments.oracle,
                                                   arguments.warm)
        finally:
            agent.kill()
            server.stop()
    for one in answer:
        del one["made"]
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(answer))


if __name__ == "__main__":
    main()
