/* Who lives: heartbeats in memory, answered by the event threads, flushed to the database in bulk
 * by the housekeeper (housekeep.h). And agents as the API lists and drains them.
 *
 * An agent that enrolled with another server is unknown here at first: its first heartbeat is
 * answered "try again", and the housekeeper looks it up. What the database does not know either is
 * remembered as absent for a while. Memory: the table owns its entries; lists are the caller's.
 * Threads: the table any, with a lock that is never held over a call elsewhere; functions that take
 * a db, its own. */
#ifndef WAVETUNE_SERVER_AGENT_AGENTS_H
#define WAVETUNE_SERVER_AGENT_AGENTS_H

#include "common/base/json.h"
#include "server/db/author.h"
#include "server/server.h"

#define AGENT_ID_SIZE 33 /* 32 hex digits and a NUL */
/* ids that are being looked up or known to be absent; beyond, unknown is absent */
#define AGENTS_ASKED_MAX 4096
#define AGENT_ABSENT_MS 10000

bool agent_id_is_valid(const char *id);

must_check struct agent_table *agent_table_new(void);
void agent_table_free(struct agent_table *table);

enum agent_beat {
  AGENT_BEATS,  /* noted */
  AGENT_ABSENT, /* no such agent, or another process has enrolled under its id: enrol again */
  AGENT_ASKED,  /* not known here yet; it is being looked up: try again */
};
enum agent_beat agent_table_beat(struct agent_table *table, const char *id, const char *boot,
                                 int64_t now_ms, bool *ret_draining);

/* Whose an agent is. */
struct agent_owner {
  int64_t token;  /* that enrolled it; 0: nobody's */
  bool has_token; /* it has a token of its own */
};
/* It enrolled just now. */
void agent_table_put(struct agent_table *table, const char *id, const char *boot, bool is_draining,
                     struct agent_owner owner, int64_t now_ms);
/* It was looked up, and this was in the database. One that has enrolled since then is newer, and
 * stays as it is. */
void agent_table_found(struct agent_table *table, const char *id, const char *boot,
                       bool is_draining, struct agent_owner owner, int64_t now_ms);
/* Nobody's while it is not known here. */
struct agent_owner agent_table_owner(struct agent_table *table, const char *id);
void agent_table_drain(struct agent_table *table, const char *id, bool is_draining);

/* For the housekeeper. Takes at most `most` ids that were seen since they were taken last, with how
 * long ago. The texts are copied to `ret_ids`. */
size_t agent_table_take_seen(struct agent_table *table, int64_t now_ms, size_t most,
                             char (*ret_ids)[AGENT_ID_SIZE], int64_t *ret_ages_ms);
/* Undoes a take whose flush failed. */
void agent_table_untake(struct agent_table *table, char (*ids)[AGENT_ID_SIZE], size_t n);
/* The ids that are to be looked up. They stay asked until put, found or, by agent_table_absent,
 * given up. */
size_t agent_table_asked(struct agent_table *table, size_t most, char (*ret_ids)[AGENT_ID_SIZE]);
void agent_table_absent(struct agent_table *table, const char *id, int64_t now_ms);
/* Exactly these drain. */
void agent_table_set_draining(struct agent_table *table, const char *const *ids, size_t n);
/* Forgets who was not seen for `age_ms`. */
void agent_table_forget(struct agent_table *table, int64_t now_ms, int64_t age_ms);

/* A request to drain an agent, or one device of it; `reason` NULL ends the draining. Owns its
 * texts. */
struct drain_request {
  char *device; /* NULL: the whole agent */
  char *reason;
};
/* In one transaction. Fails with ERROR_MISSING when there is no such agent or device. */
must_check bool agent_drain(struct db *db, const char *agent, const struct drain_request *drain,
                            const struct author *author, struct error *error);

/* Items of GET /v1/agents after id `after`, by id, those seen within `live_ms` as live; *ret_next,
 * the caller's, is NULL at the end. */
must_check bool agents_list(struct db *db, int64_t live_ms, const char *after, int64_t limit,
                            json_t **ret_items, char **ret_next, struct error *error);

#endif
