/* Environments and the agents and devices that have them.
 *
 * Memory: results are the caller's. Threads: a db's own. */
#ifndef WAVETUNE_SERVER_AGENT_ENVIRONMENTS_H
#define WAVETUNE_SERVER_AGENT_ENVIRONMENTS_H

#include "common/node/environment.h"
#include "server/agent/agents.h"
#include "server/audit/audit.h"
#include "server/cache/match.h"

/* Makes sure that they are stored. Any number of equal ones. */
must_check bool environments_store(struct db *db, const struct environment *const *environments, size_t n,
                                   struct error *error);

/* All that an enrolled device has, with the agents seen within `live_ms` that are not draining. */
must_check bool environments_known(struct db *db, int64_t live_ms, struct known_environments *ret, struct error *error);

/* Items of GET /v1/environments after environment id `after`, oldest first; *ret_next is 0 at the end. */
must_check bool environments_list(struct db *db, int64_t live_ms, int64_t after, int64_t limit, json_t **ret_items,
                                  int64_t *ret_next, struct error *error);

struct device_row {
  const char *device, *backend;
  const struct environment *environment;
  const char *facts; /* JSON text or NULL */
};
struct agent_row {
  const char *id, *boot, *name, *version;
  const char *machine;   /* NULL: not said */
  int64_t token;         /* that it belongs to; 0: to whom it did before, or nobody */
  size_t n_trusted_keys; /* 0: it takes what is not signed, too */
  const struct digest *trusted_keys;
  size_t n_devices;
  const struct device_row *devices;
};
/* Enrols: stores the agent with exactly these devices, in the caller's transaction. *ret_boot_before is what it was
 * enrolled with before, "" for a new one; the caller's. */
must_check bool agent_enrol(struct db *db, const struct agent_row *agent, char **ret_boot_before, struct error *error);

/* Sets or, with NULL, ends the draining of an agent. */
must_check bool agent_set_drain(struct db *db, const char *agent, const char *reason, const struct author *author,
                                bool *ret_known, struct error *error);

must_check bool agents_list(struct db *db, int64_t live_ms, const char *after, int64_t limit, json_t **ret_items,
                            char **ret_next, struct error *error);

/* Flushes heartbeats: agent i was seen ages_ms[i] ago. */
must_check bool agents_seen(struct db *db, const char *const *agents, const int64_t *ages_ms, size_t n,
                            struct error *error);

/* How many agents beat within `live_ms`, those that drain too. */
must_check bool agents_live(struct db *db, int64_t live_ms, int64_t *ret_n, struct error *error);

/* What the table in memory needs to know of agents: those of `ids`, or all that drain. */
struct agent_brief {
  char *id, *boot;
  bool is_draining;
  struct agent_owner owner;
};
must_check bool agents_brief(struct db *db, const char *const *ids, size_t n, struct agent_brief **ret_agents,
                             size_t *ret_n, struct error *error);
must_check bool agents_brief_draining(struct db *db, struct agent_brief **ret_agents, size_t *ret_n,
                                      struct error *error);
void agents_brief_free(struct agent_brief *agents, size_t n);

#endif
