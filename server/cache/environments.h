/* Environments: those that enrolled devices have, with their agents; and which of them a job means,
 * the build that it runs, the agents that can run it, and the differences where none can.
 *
 * Memory: results are the caller's; everything else is borrowed. Threads: match_… are pure
 * functions; the rest has its thread's db. */
#ifndef WAVETUNE_SERVER_CACHE_ENVIRONMENTS_H
#define WAVETUNE_SERVER_CACHE_ENVIRONMENTS_H

#include "common/builds/build.h"
#include "common/node/environment.h"
#include "server/db/db.h"

/* An environment that enrolled devices have. Owns its members. */
struct known_environment {
  struct environment environment;
  struct digest hardware_digest;
  int64_t agents;           /* live ones that are not draining, with such a device */
  int64_t devices;          /* such devices of theirs */
  bool is_selective;        /* some of them take only kernels that their trusted keys signed, or do
                               not run every regime */
  char *agent, *agent_name; /* an agent that has it, if possible one that is counted in agents */
};
struct known_environments {
  size_t n;
  struct known_environment *all;
};
void known_environments_release(struct known_environments *known);
#define cleanup_known_environments __attribute__((cleanup(known_environments_release)))

/* The builds of a job's kernel, and which devices its language runs on. */
struct match_builds {
  size_t n;
  struct build **builds; /* newest first, perhaps heads (build_head) */
  bool required;         /* a triton kernel runs builds only; other kernels have none */
  bool is_captured;      /* the kernel: a build is made of what a program captures */
  enum { RUNS_ANYWHERE, RUNS_ON_CPU, RUNS_ON_GPU } runs_on;
};

/* Finds the one environment that `partial` means: one that equals it; else the only known one that
 * it fits (a device's, or where a build is required a device's hardware with a build's toolchain);
 * else itself when it is full, with the builds' toolchain where they have only one. Devices that
 * the kernel does not run on are not considered. Otherwise refuses; *ret_fitting is then an array
 * of those that fit, the caller's. */
must_check bool match_environment(const struct environment *partial,
                                  const struct known_environments *known,
                                  const struct match_builds *builds,
                                  struct environment *ret_environment, json_t **ret_fitting,
                                  struct error *error);

/* Refuses a job that needs a build of a kernel that has none at all, with the commands that make
 * one. */
must_check bool match_has_build(const struct key *key, const struct match_builds *builds,
                                struct error *error);

/* The newest build for the environment's arch and toolchain with a variant for the key. *ret_build
 * is NULL when the job needs none. Refuses a job that needs one where there is none, with the
 * commands that make one. `environment` is full, and there is a build where one is required. */
must_check bool match_build(const struct environment *environment, const struct key *key,
                            const struct match_builds *builds, const struct build **ret_build,
                            struct error *error);

/* Live devices with the environment's hardware: what must be equal between a job and a device. */
int64_t match_devices(const struct environment *environment,
                      const struct known_environments *known);

/* Whether a live device with the environment's hardware does not take every job. */
bool match_is_selective(const struct environment *environment,
                        const struct known_environments *known);

/* {"matching": n, "nearest": null or {"agent", "name", "differences"}}: the answer's "agents"; a
 * new reference. `refusing` of those that match would not be given the job: they are not counted as
 * matching, but as "refusing": {"agents": n, "reason": text}. */
must_check json_t *match_agents(const struct environment *environment,
                                const struct known_environments *known, int64_t refusing,
                                const char *reason);

/* Stores those that are not stored yet; some may be equal. */
must_check bool environments_store(struct db *db, const struct environment *const *environments,
                                   size_t n, struct error *error);

/* The environments of all enrolled devices, with the agents seen within `live_ms` that are not
 * draining. */
must_check bool environments_known(struct db *db, int64_t live_ms, struct known_environments *ret,
                                   struct error *error);

#endif
