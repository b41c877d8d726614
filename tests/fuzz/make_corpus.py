#!/usr/bin/env python3
"""Writes the first inputs of the targets whose inputs are whole documents or begin with a parser's name: fuzz/corpus/{agent_server,
agent_worker,agent_reference,agent_files,documents,fetch,server_documents}. Files of the same name are overwritten; other files stay.

    tests/fuzz/make_corpus.py [OPENAPI]   with a server's /openapi.json also an example of each record"""

import base64
import copy
import hashlib
import json
import pathlib
import struct
import sys

FUZZ = pathlib.Path(__file__).resolve().parent
DIGEST = "sha256:" + "a" * 64
PUBLIC_KEY = bytes.fromhex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a")  # of RFC 8032's first test


def put(target, name, data):
    folder = FUZZ / "corpus" / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)


def text(value):
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def answer(name, status, body):
    put("agent_server", name, b"%d\n" % status + (body if isinstance(body, bytes) else text(body)))


def server_answers():
    job = json.loads((FUZZ / "corpus/kernel/c_job.json").read_text())
    triton = json.loads((FUZZ / "corpus/kernel/triton_build.json").read_text())
    lease = {"lease": "91-ab_c.d", "epoch": 3, "job": "12", "kernel": DIGEST, "manifest": job["manifest"], "key": job["key"],
             "space": job["space"], "build": None, "configs": [[0, 1], [2, 1]], "likely": [1, 7], "best_ratio": 0.75,
             "device_us": 500000, "baseline": 0, "stage": "screen", "round": 0, "process": 1, "seed": -7, "regime": "cold",
             "expires_in_ms": 30000, "renew_every_ms": 10000}
    answer("lease", 200, lease)
    answer("lease_triton", 200, {**lease, "manifest": triton["manifest"], "key": triton["key"], "space": triton["space"],
                                 "build": DIGEST, "configs": [[0, 2]], "stage": "final"})
    answer("lease_dead", 200, {**lease, "expires_in_ms": 1, "renew_every_ms": 1})
    answer("lease_nowhere", 200, {**lease, "configs": [[2**62, 2**62]], "baseline": 2**63 - 1})
    answer("lease_path", 200, {**lease, "lease": "../../v1/gc?x"})
    answer("enrolled", 200, {"agent": "ab12", "heartbeat_every_ms": 5000, "lease_ms": 30000, "reclaimed": 0})
    answer("enrolled_token", 201, {"agent": "ab12", "token": "wt_abc-DEF_9", "rotate_in_ms": 86400000, "reclaimed": 2})
    answer("rotated", 200, {"token": "wt_new", "rotate_in_ms": 2**63 - 1})
    answer("rotated_never", 200, {"token": "wt_new", "rotate_in_ms": None})
    answer("beaten", 200, {"draining": True, "heartbeat_every_ms": 1})
    answer("renewed", 200, {"expires_in_ms": 30000, "configs": [[0, 2], [5, 1]]})
    answer("renewed_for_ever", 200, {"expires_in_ms": 2**63 - 1, "configs": [[5, 1], [0, 2]]})
    answer("lost", 409, {"detail": "another holds it", "pointer": "/epoch", "epoch": 4})
    answer("anothers", 403, {"detail": "not yours", "lease": "91"})
    answer("unknown", 404, {"detail": "no such lease", "pointer": "nowhere"})
    answer("proxy", 404, b"<html>not found</html>")
    answer("moved", 302, b"")
    answer("empty", 200, b"")
    answer("nested", 200, b"[" * 600 + b"]" * 600)


def worker_answers():
    correct = {"config": 3, "outcome": "correct", "timer": "clock_monotonic_raw", "samples_us": [1.5, 2.25],
               "baseline_us": [3.0, 4.0], "end": "decided", "clock_mhz": 2100, "device_us": 41234, "occupancy": 2,
               "lds_bytes": 8192, "conditions": {"governor": "performance", "sandbox": "landlock"}}
    wrong = {"config": 64, "outcome": "correctness", "detail": "y[0] is 1", "device_us": 7}
    done = {"done": True, "over_budget": False, "spent": {"load_us": 1, "check_us": 2, "warm_up_us": 3, "timing_us": 4}}

    def race(name, *lines, piece=255, stage=0):
        put("agent_worker", name, bytes([piece, stage]) + b"".join(text(line) + b"\n" for line in lines))

    race("screen", correct, wrong, {**correct, "config": 0}, done)
    race("final", correct, {**correct, "config": 0}, wrong, {**correct, "config": 2**63 - 2}, done, stage=1)
    race("in_pieces", wrong, correct, done, piece=0)
    race("twice", correct, correct, {**wrong, "config": 3}, done)
    race("over_budget", correct, {**done, "over_budget": True}, stage=1)
    race("not_the_kernels_fault", {"error": "no memory"}, stage=2)
    race("baseline_wrong", {"baseline_wrong": "y[7] is 1, the reference has 2"}, stage=4)
    race("too_many", *[wrong] * 7)
    race("huge", {**correct, "device_us": 2**63 - 1, "occupancy": -1}, {**correct, "config": 0, "samples_us": [1e308, 1e-300]},
         {"done": True, "spent": {"load_us": 2**63 - 1, "check_us": 2**63 - 1, "timing_us": -2**63}})
    race("long", {**wrong, "detail": "ä" * 9000}, {**correct, "timer": "t" * 65}, {**correct, "conditions": {"a": "b" * 4096}}, done)
    race("types", {**correct, "samples_us": [None, True]}, {"config": "3"}, {**wrong, "detail": 5, "outcome": "fine"}, done)
    for name, forged in {"device_us": {"device_us": 2**63 - 1}, "device_us_below": {"device_us": -1}, "occupancy": {"occupancy": -5},
                         "lds_bytes": {"lds_bytes": 2**40}, "clock": {"clock_mhz": 1e300}, "timer": {"timer": "t" * 65},
                         "end": {"end": "e" * 65}, "conditions": {"conditions": {"a": "b" * 4096}},
                         "sample": {"samples_us": [1e-300, 1]}, "samples": {"samples_us": [1] * 10001, "baseline_us": [1] * 10001},
                         "spent": {"done": True, "spent": {"load_us": 2**63 - 1, "check_us": 2**63 - 1}}}.items():
        race(f"forged_{name}", {**correct, **forged}, done)
    put("agent_worker", "no_json", b"\xff\x00" + b'{"config": NaN}\n')
    put("agent_worker", "a_nul", b"\xff\x00" + b'{"done": true}\0garbage\n')
    put("agent_worker", "no_end", b"\x01\x00" + b'{"config": 3, "detail": "' + b"x" * 300)


def reference_values():
    inf, nan = float("inf"), float("nan")
    for name, values in {"numbers": (0.0, -0.0, 1.5, -2.0, 65504.0), "ends": (2.0**63, -2.0**63, 2.0**64, 1e308, -1e308),
                         "none": (nan, inf, -inf, 5e-324)}.items():
        put("agent_reference", name, bytes([len(values) - 1]) + struct.pack(f"<{len(values)}d", *values))
    put("agent_reference", "short", b"\x04" + struct.pack("<2d", 1, 2) + b"\x01\x02")
    put("agent_reference", "more", b"\x00" + struct.pack("<3d", 1, 2, 3))


def fetch_documents():
    environment = {"compute_units": 304, "gpu": "AMD Instinct MI300X", "rocm": "6.4.1", "torch": "2.9.0", "triton": "3.6.0"}
    function = {"module": "m", "name": "add", "qualname": "add", "signature": "JITFunction(m:add)", "cache_key": "cc",
                "source_sha256": "55"}
    configs = [f"BLOCK: {block}, waves_per_eu: 0, num_warps: {warps}, num_ctas: 1, num_stages: 2, maxnreg: None"
               for block, warps in ((64, 4), (128, 8))]
    record = {"name": "add", "triton": {"version": "3.6.0", "key": "3.6.0k", "backend_hash": "GPUTarget(gfx942)"},
              "function": function, "key_names": ["n"], "tuning_key": ["n"], "argument_dtypes": ["torch.float16"],
              "configs": configs, "autotune": {"decorator": "triton"},
              "dejavu": {"layout": "dejavu_0.7", "autotune_config": "a" * 64, "code_version": "b" * 64}}
    identity = {"version": 1, "torch": "2.9.0", "triton": record["triton"], "gpu": "AMD Instinct MI300X",
                "functions": [{"kernel": DIGEST, **record}],
                "dejavu": {"layout": "dejavu_0.7", "triton": "3.6.0", "runtime": "rocm_6.4.1", "gpu": "AMD_Instinct_MI300X"}}
    pointer = {"name": "x", "dtype": "float16", "shape": ["n"], "access": "readwrite"}
    manifest = {"name": "add", "language": "triton", "entry": "add", "key": ["n"], "arguments": [pointer],
                "sources": [{"path": "add.py", "digest": DIGEST}], "launch": {"grid": ["n"]}}
    config = {"BLOCK": 64, "num_warps": 4}
    metadata = {"cache": {"folder": "AAAADJI2OBMAZKYNPTGZ7GWDEXQ2H6345JVO4N5ZD6MLTWYCLTIQ",
                          "files": {"add.json": DIGEST, "add.hsaco": DIGEST}}}
    build = {"toolchain": {"triton": "3.6.0"}, "arch": "gfx942", "warp_size": 64, "record": record,
             "variants": [{"objects": [{"config": config, "digest": DIGEST, "metadata": metadata}]}]}
    blob = json.dumps({"hash": "h", "name": "add", "target": {"backend": "hip"},
                       "extern_libs": [["ocml", "/usr/lib/python3/triton/backends/amd/lib/ocml.bc"]]})
    release = {"environment": environment, "tag": "default", "version": 2,
               "kernels": [{"configs": [{"values": config}], "kernel": DIGEST, "key": ["n"], "name": "add",
                            "provenance": [{"origin": "tuned"}], "winners": [[[4096], 0, 0, [0.5], 1]]}]}
    entry = {"channel": "stable", "counter": 7, "environment": environment, "release": DIGEST, "tag": "default",
             "updated_at": "2026-01-01T00:00:00Z"}
    whole = {"entry": entry, "release": release, "kernels": [manifest], "builds": [build], "blob": blob,
             "identity": identity, "state": {}}

    def changed(name, change):
        document = copy.deepcopy(whole)
        change(document)
        put("fetch", name, text(document))

    def external(document, name, key, values, configs, exports, form):
        document["kernels"] = [{"name": name, "language": "external", "key": key, "exports": {form: exports}}]
        document["builds"] = []
        document["release"]["kernels"][0].update(
            name=name, key=key, configs=[{"values": configs}], winners=[[values, 0, 0, [], 0]],
            provenance=[{"origin": "imported", "format": form, "source": "../x"}])

    def moe(document, dtype="fp8_w8a8"):
        external(document, "fused_moe", ["E", "N", "M", "dtype"], [8, 1024, 16, dtype],
                 {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 32, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 1},
                 {"E": "E", "N": "N", "M": "M", "dtype": "dtype"}, "vllm-moe")

    def tunableop(document):
        validators = [["PT_VERSION", "2.9.0"], ["GCN_ARCH_NAME", "gfx942:sramecc+:xnack-"]]
        external(document, "tunableop", ["op", "params"], ["GemmTunableOp_float_NN", "nn_1_2_3"],
                 {"solution": "Gemm_Hipblaslt_1"}, {"validators": validators}, "tunableop")

    def inductor(document, file=f"ab/{'c' * 64}.best_config"):
        external(document, "inductor", ["file", "configs_hash"], [file, "c" * 64], {"XBLOCK": 64, "num_warps": 4}, {}, "inductor")

    changed("triton", lambda d: None)
    changed("moe", moe)
    changed("moe_path", lambda d: moe(d, "../../x"))
    changed("tunableop", tunableop)
    changed("inductor", inductor)
    changed("inductor_path", lambda d: inductor(d, "../../x.best_config"))
    changed("path_in_names", lambda d: (d["release"]["kernels"][0].update(name="../../../etc/cron.d/x"),
                                        d["kernels"][0].update(name="../../../etc/cron.d/x")))
    changed("path_in_files", lambda d: d["builds"][0]["variants"][0]["objects"][0]["metadata"]["cache"].update(
        files={"../../x": DIGEST, "/etc/passwd": DIGEST}))
    changed("path_in_folder", lambda d: d["builds"][0]["variants"][0]["objects"][0]["metadata"]["cache"].update(folder="../.."))
    changed("path_in_function", lambda d: d["builds"][0]["record"]["function"].update(name="../../x"))
    changed("path_in_dejavu", lambda d: d["builds"][0]["record"]["dejavu"].update(autotune_config="../../x"))
    changed("older", lambda d: d["state"].update(seen=[{**entry, "counter": 9, "keys": [], "regime": "cold"}]))
    changed("anothers", lambda d: d["entry"].update(channel="canary"))
    changed("another_gpu", lambda d: d["entry"].update(environment={**environment, "gpu": "AMD Instinct MI250"}))
    changed("warm", lambda d: (d["entry"].update(regime="warm"), d["release"].update(regime="warm")))
    changed("expired", lambda d: d["entry"].update(expires="2001-01-01T00:00:00Z"))
    changed("signed", lambda d: d["entry"].update(signatures=[{"key": DIGEST, "signature": "A" * 86 + "=="}]))


def named(target, parser, name, value):
    data = value if isinstance(value, bytes) else text(value)
    put(target, f"{parser}_{name}" if name else parser, parser.encode() + b"\n" + data)


def shared_documents():
    fetched = json.loads((FUZZ / "corpus/fetch/triton").read_text())
    function = fetched["builds"][0]["record"]
    named("documents", "identity", "", fetched["identity"])
    named("documents", "identity", "tables", {"version": 1, "devices": 8, "moe_device_name": "AMD_Instinct_MI300X", "functions": [],
                                              "variables": {"TRITON_F32_DEFAULT": "ieee"},
                                              "tunableop": {"validators": [["PT_VERSION", "2.9.1"]]}})
    named("documents", "identity", "path", {"version": 1, "moe_device_name": "../x", "functions": [function, function]})
    named("documents", "function", "", function)
    metadata = {"name": "add", "num_warps": 4, "shared": 1024, "warp_size": 64, "global_scratch_size": 0, "profile_scratch_size": 0,
                "cluster_dims": [1, 1, 1], "launch_cooperative_grid": False, "grid": [4, 1, 1]}
    named("documents", "launch", "", {"config": {}, "digest": DIGEST, "metadata": metadata})
    named("documents", "launch", "none", {"metadata": {}})
    named("documents", "launch", "huge", {"metadata": {**metadata, "num_warps": 2**62, "shared": -1, "cluster_dims": [2**31] * 3}})
    key = "sha256:" + hashlib.sha256(PUBLIC_KEY).hexdigest()
    signature = base64.b64encode(b"\1" * 64).decode()
    named("documents", "signatures", "", [{"key": key, "signature": signature}, {"key": DIGEST, "signature": signature},
                                          {"key": key, "signature": signature, "expires": "2099-12-31T23:59:59Z"}, 7])
    named("documents", "signatures", "expires", {"expires": "1970-01-01T00:00:01Z"})
    named("documents", "config", "", b"BLOCK: 256, waves_per_eu: 0, num_warps: 4, num_ctas: 1, num_stages: 2, maxnreg: None")
    named("documents", "config", "odd", b"A: True, B: -1, C: 1.5, D: 1e400, E: nan, A: x: y, F: \xc3\xa4")
    named("documents", "tuple", "", b"('16', 'torch.float16', 'it\\'s', \"a'b\", '\\n\\x07\\u2028')")
    named("documents", "tuple", "one", b"('16',)")
    der = bytes.fromhex("302a300506032b6570032100") + PUBLIC_KEY
    private = bytes.fromhex("302e020100300506032b657004220420") + b"\2" * 32

    def pem(kind, data):
        return b"-----BEGIN %s-----\n%s\n-----END %s-----\n" % (kind, base64.b64encode(data), kind)

    named("documents", "key", "public", pem(b"PUBLIC KEY", der))
    named("documents", "key", "private", pem(b"PRIVATE KEY", private))
    named("documents", "key", "two", pem(b"PUBLIC KEY", der) * 2)
    named("documents", "key", "encrypted", pem(b"ENCRYPTED PRIVATE KEY", private))
    named("documents", "key", "x25519", pem(b"PUBLIC KEY", der.replace(b"\x65\x70", b"\x65\x6e")))
    named("documents", "key", "headers", pem(b"PUBLIC KEY", der).replace(b"-\n", b"-\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES,00\n\n", 1))
    named("documents", "key", "text", base64.b64encode(PUBLIC_KEY))
    named("documents", "key", "signature", signature.encode())
    for name, value in {"time": "2026-11-21T07:05:00.25+02:30", "signed": "9999-12-31T23:59:59Z", "leap": "2024-02-29T23:59:60Z",
                        "duration": "36500d", "digest": DIGEST, "channel": "stable-1.x", "version": "3.3.1+git1",
                        "folder": "A" * 52}.items():
        named("documents", "text", name, value.encode())


def agent_files():
    named("agent_files", "launch", "", {
        "entry": "add", "arguments": ["a", "b"], "scratch": 2, "threads": 256, "shared_bytes": 8192, "grid": [64, 1, 1],
        "cooperative": True, "cluster": 2, "resources": {"vgprs": 128, "agprs": 64, "sgprs": 32, "spills": 0, "lds_bytes": 4096}})
    named("agent_files", "launch", "none", {})
    tensormap = {"base": "a", "type": 6, "shape": [128, 64], "strides": [128], "box": [64, 64],
                 "swizzle": 3, "fill": 0}
    named("agent_files", "launch", "passed", {
        "arguments": ["a", {"i1": 1}, {"i32": -7}, {"i64": 2**40}, {"tensormap": tensormap}],
        "fills": [["a", 4096, 2**32 - 1]]})
    named("agent_files", "launch", "ends", {"threads": 2**20 + 1, "grid": [2**31, 0.5, -1], "cluster": 17, "scratch": -1})

    def record(value, number=0):
        data = text(value)
        return struct.pack("<IIQ8x", 0x57545350, len(data), number) + data

    two = record({"seq": 1, "lease": "7"}) + record({"seq": 2})
    for name, data in {"": b"0\n" + two, "acknowledged": b"1\n" + two, "torn": b"0\n" + two + record([1])[:30],
                       "ahead": b"99\n" + two, "wrong": b"x\n" + two, "no_json": b"0\n" + struct.pack("<IIQ8x", 0, 3, 0) + b"{a}"}.items():
        named("agent_files", "records", name, data)
        named("agent_files", "spool", name, data)


def server_documents():
    environment = {"gpu": "AMD Instinct MI300X", "arch": "gfx942", "compute_units": 304, "rocm": "6.4.1", "partition": "SPX/NPS1"}
    named("server_documents", "token", "publisher", {"name": "ci", "role": "publisher,submitter", "channels": ["stable", "test-*"],
                                                     "expires": "7d"})
    named("server_documents", "token", "enrol", {"name": "node", "role": "enrol", "uses": 3, "agent_name": "n*",
                                                 "environment": {"gpu": "x"}, "expires": "2099-01-31T12:00:00Z"})
    named("server_documents", "token", "certificate", {"name": "node", "role": "agent", "certificate": "DNS:node-17.example"})
    pins = [{"kernel": DIGEST, "key": {"n": n}, "config": {"A": 1, "B": "x"}} for n in (2, 1)]
    named("server_documents", "release", "", {
        "environment": environment, "tag": "t", "regime": "warm", "kernels": [DIGEST], "as_of": "2026-01-31T12:00:00.5Z", "pins": pins,
        "replaces": {"channel": "stable", "min_gain": 0.1}, "refuse_self_timed": True, "require_agreement": "bitwise"})
    named("server_documents", "release", "twice", {"environment": environment, "pins": [pins[0], pins[0]]})
    items = [{"name": "moe", "key": {"n": 1, "d": 0.5}, "hits": 1, "misses": 10**9, "tuning_ms": 1e-9, "kernel_ms": 0.25},
             {"name": DIGEST, "key": {"n": 2}, "hits": 0, "misses": 1}]
    named("server_documents", "demand", "", {"environment": environment, "image": "a/b:c", "tag": "t", "items": items})
    config = {"kwargs": {"BLOCK": 64}, "num_warps": 4}
    named("server_documents", "compatibility", "", {"asked": {"rocm": "6.4.1"}, "served": {"rocm": "6.4.0"}, "reason": "same code"})
    named("server_documents", "group", "", b'[["add.json", 2], ["add.hsaco", 3]]\n{}abc')
    named("server_documents", "group", "short", b'[["add.json", 2]]\n{')
    named("server_documents", "group", "huge", b'[["a", 9223372036854775807], ["b", 9223372036854775807]]\n{}')
    named("server_documents", "group", "path", b'[["../x.so", 0], ["a", 0], ["a", 0]]\n')
    for name, value in {"lease": "17", "lease_mac": "17.AAAAAAAAAAAAAAAAAAAAAA", "network": "2001:db8::/32",
                        "forwarded": "192.0.2.7, [::1]:80, 127.0.0.1", "mapped": "::ffff:192.0.2.7",
                        "der": base64.b64encode(b"0\x82\x01\x00" + b"x" * 300).decode(),
                        "pem": "-----BEGIN%20CERTIFICATE-----%0AMAA%3D%0A-----END%20CERTIFICATE-----%0A",
                        "hex": "a" * 64, "share": "token/image"}.items():
        named("server_documents", "text", name, value.encode())


def example(schema, document, depth=0):
    """A value that fits a schema of /openapi.json, with all of its members."""
    if "$ref" in schema:
        target = document
        for part in schema["$ref"].split("/")[1:]:
            target = target[part]
        schema = target
    kinds = schema.get("type")
    kind = kinds[0] if isinstance(kinds, list) else kinds
    if "enum" in schema:
        return schema["enum"][0]
    for way in ("anyOf", "oneOf"):
        if way in schema:
            return example(schema[way][0], document, depth)
    if kind == "object":
        members = schema.get("properties", {})
        wanted = members if depth < 4 else schema.get("required", [])
        return {name: example(members[name], document, depth + 1) for name in wanted if name in members} or {"a": 1}
    if kind == "array":
        n = max(schema.get("minItems", 0), int(depth < 4))
        return [example(schema.get("items", {"type": "integer"}), document, depth + 1) for _ in range(n)]
    if kind == "string":
        pattern = schema.get("pattern", "")
        return DIGEST if "sha256" in pattern else "2026-01-31T12:00:00.000Z" if "T" in pattern else "1" * max(1, schema.get("minLength", 1))
    return {"integer": max(1, schema.get("minimum", 1)), "number": max(0.5, schema.get("minimum", 0.5)), "boolean": True}.get(kind)


def records(path):
    """The schemas that are not written by hand are those of records."""
    document = json.loads(pathlib.Path(path).read_text())
    by_hand = json.loads((FUZZ.parents[1] / "server/http/openapi.json").read_text())["schemas"]
    for name, schema in document["components"]["schemas"].items():
        if name not in by_hand:
            named("server_documents", name, "", example(schema, document))


server_answers()
worker_answers()
reference_values()
fetch_documents()
shared_documents()
agent_files()
server_documents()
if len(sys.argv) > 1:
    records(sys.argv[1])
