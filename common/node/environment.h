/* Environments: the hardware and software for which a measurement is valid, identified by the
 * members below that are stated.
 *
 * A full environment states exactly one of rocm, cuda, cpu. On the CPU back end `cpu` is the
 * compiler with its version, `gpu` the CPU's model name, `arch` the machine (x86_64),
 * `compute_units` its CPUs, `partition` "". Texts have 1 to 200 bytes (partition may be "") without
 * control characters; nodes and builds report them, none is guessed. compute_units is 1 to
 * 1,000,000.
 *
 * Memory: owns its strings; NULL means not stated. Threads: plain value. */
#ifndef WAVETUNE_COMMON_NODE_ENVIRONMENT_H
#define WAVETUNE_COMMON_NODE_ENVIRONMENT_H

#include "common/base/json.h"

/* The text members: X(member, whether it belongs to the hardware or platform, not to the build) */
#define ENVIRONMENT_TEXTS(X)                                                                       \
  X(rocm, true)                                                                                    \
  X(cuda, true)                                                                                    \
  X(cpu, true)                                                                                     \
  X(torch, false)                                                                                  \
  X(triton, false)                                                                                 \
  X(gpu, true)                                                                                     \
  X(arch, true)                                                                                    \
  X(partition, true)

struct environment {
#define X(member, hardware) char *member;
  ENVIRONMENT_TEXTS(X)
#undef X
  int64_t compute_units; /* 0: not stated */
};

/* From a JSON object; unknown members and two platforms are refused. A partial environment is
 * accepted. Errors have pointers relative to the object. */
must_check bool environment_parse(const json_t *json, struct environment *ret, struct error *error);
void environment_release(struct environment *environment);
#define cleanup_environment cleanup_by(environment_release)
struct environment environment_copy(const struct environment *environment);

/* Whether an agent may report it: one platform, gpu, arch, compute_units and partition stated. */
must_check bool environment_is_full(const struct environment *environment, struct error *error);

/* Names of the members of a full environment that this one lacks, "rocm or cuda" for the platform;
 * a new reference. */
must_check json_t *environment_missing(const struct environment *environment);

/* A struct environment as a field of a record. */
struct field_custom;
extern const struct field_custom environment_field; /* common/record/record.h */

must_check json_t *
environment_to_json(const struct environment *environment); /* stated members only */
must_check char *
environment_format(const struct environment *environment); /* "rocm 6.4.1, gpu …" for people */
struct digest environment_digest(const struct environment *environment);
/* Digest of the hardware members alone, which a job and the agents that run it have in common. */
struct digest environment_hardware_digest(const struct environment *environment);

/* Whether every member that `partial` states is equal in `full`. */
bool environment_fits(const struct environment *partial, const struct environment *full);

/* Whether `environment` names one model of GPU: its name has a number ("AMD Radeon Graphics" is
 * many models), or arch is stated, too. */
bool environment_names_gpu(const struct environment *environment);

/* Whether a table for `served`, which may be partial, can be used in `requested`: `served` names
 * one model of GPU, and every member that it states is equal in `requested`. A table without
 * compute_units and partition is for a whole GPU, because the parts of a partitioned GPU have its
 * name: `requested` must then state the whole GPU as partition (SPX, or "": not partitionable). */
bool environment_can_use(const struct environment *served, const struct environment *requested);

/* Whether two versions have the same major and minor, like "6.4.1" and "6.4.0-7". Neither is NULL.
 */
bool version_minors_equal(const char *a, const char *b);

/* The members in which `full` differs from what `partial` states, as {"gpu": {"job": …, "agent":
 * …}}, null for what the agent does not state; a new reference. */
must_check json_t *environment_differences(const struct environment *partial,
                                           const struct environment *full, bool hardware_only);

#endif
