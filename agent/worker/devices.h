/* The devices of this machine, as a worker reports them: the supervisor never loads a GPU runtime.
 * And which torch and triton a Python interpreter has.
 *
 * Memory: devices and versions own their texts and JSON. Threads: any but the main one
 * (agent/worker/supervise.h). */
#ifndef WAVETUNE_AGENT_WORKER_DEVICES_H
#define WAVETUNE_AGENT_WORKER_DEVICES_H

#include "agent/worker/supervise.h"
#include "common/node/environment.h"

struct device_seen {
  const char *name;    /* "cpu0"; borrowed from json */
  const char *backend; /* "cpu" */
  struct environment environment;
  json_t *runs; /* an array of strings (run_of_regime); borrowed from json */
  json_t *json; /* as the worker reported it, with the Python versions */
};

struct devices {
  size_t n;
  struct device_seen *seen;
  json_t *absent; /* back ends without a device: [{"backend", "reason"}]; may be NULL */
};

/* The packages of a Python interpreter, read from their files without importing them: an import
 * takes seconds and touches the GPU. */
struct python_versions {
  char *torch, *triton; /* torch.__version__ and triton.__version__; NULL: not installed */
  char *torch_hip;      /* torch.version.hip; NULL: none */
};

/* `interpreter` is a path or a name in $PATH. */
must_check bool python_versions_read(const char *interpreter, struct python_versions *ret_versions,
                                     struct error *error);
void python_versions_release(struct python_versions *versions);
#define cleanup_python_versions __attribute__((cleanup(python_versions_release)))

/* Probes the devices in a worker. Incomplete environments are refused. `python` (NULL: none) is the
 * interpreter that runs kernels on this machine: the environments of GPUs state its torch and
 * triton. */
must_check bool devices_query(struct spawner *spawner, const char *python,
                              struct devices *ret_devices, struct error *error);

/* The option of all commands that probe devices. */
#define OPTION_PYTHON                                                                              \
  {"python", OPTION_TEXT, "PROGRAM",                                                               \
   .help = "the Python whose torch and triton GPU environments state"}

/* Sets torch and triton in the environments of all devices but CPUs. */
void devices_set_python(struct devices *devices, const struct python_versions *versions);
void devices_release(struct devices *devices);
#define cleanup_devices __attribute__((cleanup(devices_release)))

/* Why back ends have no device: "no hip: the HIP runtime is not installed; no cuda: …"; "" when all
 * have one. Owned by the caller. */
must_check char *devices_absent(const struct devices *devices);

/* The device with this name, or the first where it is NULL; the error for an unknown name lists the
 * known ones. */
must_check bool devices_find(const struct devices *devices, const char *name,
                             const struct device_seen **ret_device, struct error *error);

#endif
