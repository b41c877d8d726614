/* The supervisor's child: one disposable process that loads a device runtime and kernels, and
 * measures.
 *
 * The supervisor starts `wavetune-agent worker` (fork and exec, own process group, killed with its
 * parent) with a stream socket as fd 3 and a shared page as fd 4. Messages are one JSON object a
 * line, at most WORKER_LINE_MAX bytes. One request is in flight; the worker answers in order. When
 * the socket closes, the worker exits.
 *
 *   {"do": "probe"}
 *     -> {"devices": [{"backend": "cpu", "device": "cpu0", "name": "…", "environment": {…},
 *                      "facts": {…}, "runs": ["measure:cold", …]}],
 *         "absent": [{"backend": "hip", "reason": "…"}]}
 *   {"do": "look", "devices": [{"device": "hip0", "facts": {…}}]}
 *     finds processes on the devices other than the agent's workers, and opens none of them
 *     -> {"users": {"hip0": "process 4711 (python3)"}}, without the devices that have none,
 *        or {"error": "…"} (they cannot be seen)
 *   {"do": "sentinel", "device": "cuda0"}
 *     opens the device, which stays open, and runs work on it whose result is known and checked
 *     -> {"passed": true} or {"passed": false, "error": "…"}
 *   {"do": "open", "device": "cpu0", "kernel": {manifest}, "key": {…}, "space": {…}, "seed": 7,
 *    "regime": "cold", "reference": true,
 *    "baseline": {"config": 0, "object": "/path/baseline.so",
 *                 "launch": {agent/compile/launch_spec.h}}}
 *     For a captured kernel also "case": {…} (common/kernel/kernel_case.h), with "blobs":
 *     {"sha256:…": "/path"} where it passes bytes; "reference" has them too.
 *     With "reference", a socket to the process of the reference comes with the request.
 *     "expected": "/path" has the values of Triton's interpreter (common/builds/expected.h).
 *     Opens the device unless this process has it open already, runs the sentinel, allocates and
 *     fills the buffers, loads the baseline and checks its outputs against the reference.
 *     -> {"opened": true,
 *         "spent": {"device_us": …, "inputs_us": …, "reference_us": …, "baseline_us": …}}
 *        or {"outcome": "runtime" | "correctness" | "constraints", "detail": "…",
 *            "misinterpreted": false} (the baseline's; true: Triton's interpreter has other values)
 *        or {"passed": false, "error": "…"} (the device does not pass its sentinel)
 *        or {"error": "…"} (nothing can be measured here)
 *        or {"reference": "lost"} (its process has ended)
 *   {"do": "reference", "kernel": {manifest}, "key": {…}, "space": {…}, "seed": 7,
 *    "gpu_name": "…", "arch": "…", "config": 0, "reference_object": "/path/reference.so"}
 *     A socket comes with it; the process serves elements of the kernel's reference there
 *     (agent/measure/reference.h) until it is closed, and exits. It answers only {"error": "…"}.
 *   {"do": "measure", "configs": [{"config": 17, "object": "/path/17.so", "launch": {…}}, …],
 *    "rounds_min": 2, "rounds_max": 16, "margin": 0.03 or null, "precision": 0.015,
 *    "device_us": null, "best_ratio": null, "serial": false, "whole": false}
 *     Loads and checks the configs in this order, then races them (agent/measure/race.h; with a
 *     null margin none leaves early). On a device that runs asynchronously a block of configs is
 *     enqueued at once, and the page names no config meanwhile, unless "serial". With "whole",
 *     every config gets rounds_min rounds, whatever device_us is.
 *     -> one line for each config, as soon as its sampling has ended:
 *        {"config": 17, "outcome": "correct", "timer": "clock_monotonic_raw", "samples_us": […],
 *         "baseline_us": […], "end": "behind", "clock_mhz": 3600 or null, "device_us": 41234,
 *         "occupancy": 2 or null, "lds_bytes": 8192 or null, "conditions": {…}}
 *        or {"config": 17, "outcome": "correctness", "detail": "…", "device_us": …}
 *        A config without a sample because of the budget has no line.
 *     -> {"done": true, "over_budget": false,
 *         "spent": {"load_us": …, "check_us": …, "warm_up_us": …, "timing_us": …}}
 *     -> or, in place of "done", {"baseline_wrong": "…"}: a comparison with another config's output
 *        showed that the baseline's output is wrong, in an element that its check had not compared
 *        (agent/measure/problem.h)
 *   {"do": "close"}    frees what "open" allocated and keeps the device
 *     -> {"closed": true}
 *
 * After a config that makes the device unusable for this process (a fault that does not end the
 * process; a write outside of the buffers), its result is reported and the worker exits: the others
 * have no answer. When the device was unusable before the config was launched (it was reset), the
 * worker exits without an answer for it, and the page names no config.
 *
 * A request that names objects has one more member, "bundle", and a file descriptor with the
 * objects themselves, whose digests were checked (agent/worker/worker_bundle.h). Nothing is loaded
 * from a path of the request.
 *
 * The shared page shows what the worker is doing. From it the supervisor learns which config ran
 * when the worker crashed or hung, and which config to report when it renews the lease.
 *
 * Threads: the worker is single-threaded but for what a device runtime starts. */
#ifndef WAVETUNE_AGENT_WORKER_WORKER_H
#define WAVETUNE_AGENT_WORKER_WORKER_H

#include <stdatomic.h>

#include "common/base/base.h"

#define WORKER_SOCKET_FD 3
#define WORKER_STATUS_FD 4
#define WORKER_LINE_MAX (16 << 20)
#define WORKER_REQUEST_FDS 2 /* the bundle and a socket */
#define WORKER_CONFIG_NONE UINT64_MAX

enum worker_phase { WORKER_IDLE, WORKER_OPENING, WORKER_LOADING, WORKER_CHECKING, WORKER_TIMING };

/* Written by the worker, read by the supervisor at any time. */
struct worker_status {
  _Atomic uint64_t config;  /* that is running; WORKER_CONFIG_NONE: none */
  _Atomic int phase;        /* enum worker_phase */
  _Atomic int64_t since_ns; /* clock_monotonic_ns when config or phase changed last, or the last
                               turn of timing began */
};

/* Runs the child: serves requests on WORKER_SOCKET_FD until it closes. Returns the exit code. */
int worker_main(void);

#endif
