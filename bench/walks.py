#!/usr/bin/env python3
"""How much code three requests run: the functions, and the files that they are in, counted in running programs.

    bench/walks.py [SOURCE_FOLDER]        default: this source tree; another checkout is counted in the same way

Builds the programs of the tree with -O0 -finstrument-functions (in a separate folder, some minutes), starts a real server on
a real PostgreSQL, and notes which functions run in the threads that serve:
  a  POST /v1/leases: the event thread and the worker that serves it
  b  results: POST /v1/leases/{id}/results, the same; and the agent's side of it, the thread that posts
  c  GET /v1/cache and the release behind it, on the server; `wavetune fetch` from main() to FOLDER/current
A function counts once, however often it runs. Functions of headers count with the header. Below each count are the files by
folder; WALKS_LIST=1 lists the functions.
"""

import collections
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parents[1]
TREE = pathlib.Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else HERE
WORK = pathlib.Path(tempfile.mkdtemp(prefix="wavetune-walks-"))
BUILD, NOTES = WORK / "build", WORK / "notes"
os.environ["WAVETUNE_BUILD"] = str(BUILD)
sys.path[:0] = [str(TREE / "tests/system"), str(TREE / "bench")]

import driver  # noqa: E402
import hands  # noqa: E402
import harness  # noqa: E402


def build():
    trace = WORK / "walk_trace.o"
    subprocess.run(["cc", "-O1", "-c", "-D_GNU_SOURCE", f'-DWALK_FOLDER="{NOTES}"', HERE / "bench/walk_trace.c", "-o", trace], check=True)
    subprocess.run(["cmake", "-S", TREE, "-B", BUILD, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Debug",
                    "-DCMAKE_C_FLAGS_DEBUG=-O0 -g1 -finstrument-functions", f"-DCMAKE_EXE_LINKER_FLAGS={trace}"],
                   check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", BUILD, "--target", "wavetune", "wavetune-server", "wavetune-agent"], check=True,
                   stdout=subprocess.DEVNULL)


def switch(on):
    """In place: programs have the file mapped."""
    with open(NOTES / "control", "r+b") as file:
        file.write(struct.pack("=I", on))


def noted():
    """Program -> thread -> offsets of the functions that ran; clears the notes."""
    found = collections.defaultdict(lambda: collections.defaultdict(set))
    for path in NOTES.glob("*.*"):
        data = path.read_bytes()
        for pair in struct.unpack(f"={len(data) // 8}Q", data):
            if pair:
                found[path.name.rsplit(".", 1)[0]][pair >> 32].add(pair & 0xffffffff)
        with open(path, "r+b") as file:
            file.write(bytes(len(data)))
    return found


def functions(program, offsets):
    """(file, function) of each."""
    text = subprocess.run(["addr2line", "-f", "-e", BUILD / program], input="\n".join(map(hex, offsets)), capture_output=True,
                          text=True, check=True).stdout.splitlines()
    return {(re.sub(r":\d+.*", "", place).removeprefix(f"{TREE}/").removeprefix(f"{BUILD}/"), name)
            for name, place in zip(text[::2], text[1::2])}


def walk(program, threads, wanted):
    """The functions of the threads that ran one of `wanted`; of all threads if that is empty."""
    ran = set()
    for offsets in threads.values():
        here = functions(program, offsets)
        if not wanted or wanted & {name for _, name in here}:
            ran |= here
    return ran


def count(step, action, wanted):
    """Runs `action` and counts what ran in each program meanwhile: {program: names of functions whose threads count}."""
    noted()
    switch(1)
    answer = action()
    switch(0)
    for program, threads in noted().items():
        if program in wanted:
            ran = walk(program, threads, wanted[program])
            assert ran, f"{step}: nothing of {program} was noted"
            print(f"{step:36} {program:16} {len(ran):5} functions in {len({file for file, _ in ran}):3} files")
            folders = collections.defaultdict(set)
            for file, _ in ran:
                folders[str(pathlib.Path(file).parent)].add(file)
            print("   ", ", ".join(f"{folder} {len(files)}" for folder, files in sorted(folders.items())))
            if os.environ.get("WALKS_LIST"):
                print("\n".join(f"    {file}: {name}" for file, name in sorted(ran)))
    return answer


def main():
    NOTES.mkdir()
    (NOTES / "control").write_bytes(struct.pack("=I", 0))
    build()
    print(TREE)
    serves = {"dispatch_access", "route_lease_post", "route_lease_results", "route_cache_get", "route_release_get"}
    with driver.Bench() as bench:
        server = bench.server(options=(*harness.UNHURRIED, *harness.LEASES_OF_8))
        hand = hands.Hand(server, "walker", environment=driver.ENVIRONMENT)
        driver.submit(server, hands.register(server), [{"n": 1}], hands.LARGE)
        lease = count("a: POST /v1/leases", hand.pull, {"wavetune-server": serves})
        assert lease.status == 200, lease
        posted = count("b: POST …/results", lambda: hand.post(lease.json), {"wavetune-server": serves})
        assert posted.status == 200, posted

        server = bench.server(options=harness.UNHURRIED)
        agent = bench.agent(server)
        harness.wait_until(lambda: "agent: enrolled" in agent.messages, 60, "the agent to enrol")
        kernel = harness.small_kernel(bench.folder / "kernel")
        count("b: the agent's thread that posts", lambda: harness.wavetune(
            server, "submit", kernel, "--key", "n=4096", "--wait"), {"wavetune-agent": {"results_post"}})
        agent.stop()
        harness.wavetune(server, "publish", "--channel", "stable")
        count("c: fetch", lambda: harness.wavetune(server, "fetch", "--to", bench.folder / "cache", "--channel", "stable"),
              {"wavetune-server": serves, "wavetune": set()})


if __name__ == "__main__":
    try:
        main()
    finally:
        shutil.rmtree(WORK, ignore_errors=True)
