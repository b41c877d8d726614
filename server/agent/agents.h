/* Agents: the table of heartbeats in memory, which event threads answer from and the housekeeper
 * (server/server.h) writes to the database; and the body of an enrolment.
 *
 * An agent that enrolled with another server is unknown here at first: its first heartbeat is
 * answered "try again", and the housekeeper looks it up. An id that the database does not know is
 * kept as absent for AGENT_ABSENT_MS.
 *
 * Memory: the table owns its entries. Threads: any; the table's lock is never held over a call
 * elsewhere. */
#ifndef WAVETUNE_SERVER_AGENT_AGENTS_H
#define WAVETUNE_SERVER_AGENT_AGENTS_H

#include "common/enrolment/enrolment.h"
#include "server/server.h"

#define AGENT_ID_SIZE 33 /* 32 hex digits and a NUL */
/* most ids that are being looked up or known to be absent; further ids count as absent */
#define AGENTS_LOOKUP_MAX 4096
#define AGENT_ABSENT_MS 10000

bool agent_id_is_valid(const char *id);

struct agent_table;
must_check struct agent_table *agent_table_new(void);
void agent_table_free(struct agent_table *table);
struct agent_table *server_agents(const struct server *server);

enum agent_beat {
  AGENT_BEATS,  /* noted */
  AGENT_ABSENT, /* no such agent, or another process has enrolled under its id: enrol again */
  AGENT_LOOKUP, /* it is being looked up: try again */
};
/* `yielded`: the JSON of the devices that it states to have given back to other processes; NULL: it
 * states nothing of that. */
enum agent_beat agent_table_beat(struct agent_table *table, const char *id, const char *boot,
                                 const char *yielded, int64_t now_ms, bool *ret_draining);

struct agent_owner {
  int64_t token;  /* that enrolled the agent; 0: none */
  bool has_token; /* it has its own token */
};
/* What the table stores of an agent. */
struct agent_brief {
  const char *id, *boot;
  bool is_draining;
  struct agent_owner owner;
};
/* Adds an agent that has just enrolled. */
void agent_table_put(struct agent_table *table, const struct agent_brief *agent, int64_t now_ms);
/* Adds an agent as the database had it when it was looked up. An entry that was put since then is
 * newer, and stays. */
void agent_table_found(struct agent_table *table, const struct agent_brief *agent, int64_t now_ms);
/* {0} for an agent that is not known here. */
struct agent_owner agent_table_owner(struct agent_table *table, const char *id);
void agent_table_drain(struct agent_table *table, const char *id, bool is_draining);

/* For the housekeeper: at most `most` agents that sent a heartbeat since they were taken last, how
 * long ago, and what it stated of yielded devices (the caller's; NULL: nothing). */
size_t agent_table_take_seen(struct agent_table *table, int64_t now_ms, size_t most,
                             char (*ret_ids)[AGENT_ID_SIZE], int64_t *ret_ages_ms,
                             char **ret_yielded);
/* Undoes agent_table_take_seen after storing these heartbeats failed; what they stated of yielded
 * devices is in the next heartbeat, too. */
void agent_table_untake(struct agent_table *table, char (*ids)[AGENT_ID_SIZE], size_t n);
/* The ids to look up. Each is returned again until it is put, found or declared absent. */
size_t agent_table_lookups(struct agent_table *table, size_t most, char (*ret_ids)[AGENT_ID_SIZE]);
void agent_table_absent(struct agent_table *table, const char *id, int64_t now_ms);
/* Marks these agents as draining, and all others as not draining. */
void agent_table_set_draining(struct agent_table *table, const char *const *ids, size_t n);
/* Removes the entries without a heartbeat for `age_ms`. */
void agent_table_forget(struct agent_table *table, int64_t now_ms, int64_t age_ms);

/* Reads agents that enrolled with another server. The housekeeper's. */
void agents_look_up(struct worker *worker);
/* Writes heartbeats, finds lost agents. The housekeeper's. */
void agents_housekeep(struct worker *worker);

/* The body of an enrolment, checked; it owns what it points to. */
must_check bool enrolment_parse(const json_t *json, struct enrolment *ret, struct error *error);
void enrolment_release(struct enrolment *enrolment);
#define cleanup_enrolment __attribute__((cleanup(enrolment_release)))
static inline const struct enrolment_device *enrolment_device(const struct enrolment *enrolment,
                                                              size_t i) {
  return (const struct enrolment_device *)enrolment->devices.all + i;
}

#endif
