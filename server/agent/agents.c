/* Keeping the database's view of who lives up to date, and the memory's view of who drains.
 *
 * Memory: the table's. Threads: the housekeeper's. */
#include "server/agent/agents.h"

#include "common/base/log.h"
#include "server/agent/environments.h"
#include "server/housekeep.h"

#define FORGET_MS (60 * 60 * 1000)
#define FLUSH_MAX 20000 /* agents in one statement */

static bool seen_flush(struct worker *worker, struct agent_table *table, struct error *error) {
  cleanup_free char(*ids)[AGENT_ID_SIZE] = xcalloc(FLUSH_MAX, sizeof *ids);
  cleanup_free int64_t *ages_ms = xcalloc(FLUSH_MAX, sizeof *ages_ms);
  cleanup_free const char **texts = xcalloc(FLUSH_MAX, sizeof *texts);
  size_t n = agent_table_take_seen(table, clock_monotonic_ms(), FLUSH_MAX, ids, ages_ms);
  for (size_t i = 0; i < n; i++)
    texts[i] = ids[i];
  if (n == 0 || agents_seen(worker->db, texts, ages_ms, n, error))
    return true;
  agent_table_untake(table, ids, n);
  return false;
}

static bool asked_look_up(struct worker *worker, struct agent_table *table, struct error *error) {
  cleanup_free char(*ids)[AGENT_ID_SIZE] = xcalloc(AGENTS_ASKED_MAX, sizeof *ids);
  cleanup_free const char **texts = xcalloc(AGENTS_ASKED_MAX, sizeof *texts);
  size_t n = agent_table_asked(table, AGENTS_ASKED_MAX, ids), n_found;
  struct agent_brief *found;
  if (n == 0)
    return true;
  for (size_t i = 0; i < n; i++)
    texts[i] = ids[i];
  if (!agents_brief(worker->db, texts, n, &found, &n_found, error))
    return false;
  int64_t now_ms = clock_monotonic_ms();
  for (size_t i = 0; i < n_found; i++)
    agent_table_put(table, found[i].id, found[i].boot, found[i].is_draining, found[i].owner, now_ms);
  for (size_t i = 0; i < n; i++)
    agent_table_absent(table, ids[i], now_ms);
  agents_brief_free(found, n_found);
  return true;
}

static bool draining_refresh(struct worker *worker, struct agent_table *table, struct error *error) {
  struct agent_brief *draining;
  size_t n;
  if (!agents_brief_draining(worker->db, &draining, &n, error))
    return false;
  cleanup_free const char **ids = xcalloc(n + 1, sizeof *ids);
  for (size_t i = 0; i < n; i++)
    ids[i] = draining[i].id;
  agent_table_set_draining(table, ids, n);
  agents_brief_free(draining, n);
  return true;
}

/* From the database, which knows the heartbeats of all servers: a sum of what each server saw would count an agent that a
 * balancer sends here and there more than once. */
static bool live_count(struct worker *worker, struct error *error) {
  int64_t n;
  if (!agents_live(worker->db, agent_live_ms(server_options(worker->server)), &n, error))
    return false;
  server_set_live_agents(worker->server, (size_t)n);
  return true;
}

void agents_look_up(struct worker *worker) {
  struct error error;
  if (!asked_look_up(worker, server_agents(worker->server), &error))
    log_warning("agents: %s", error.message);
}

void agents_housekeep(struct worker *worker) {
  struct agent_table *table = server_agents(worker->server);
  struct error error;
  agent_table_forget(table, clock_monotonic_ms(), FORGET_MS);
  if (!seen_flush(worker, table, &error) || !draining_refresh(worker, table, &error) || !live_count(worker, &error))
    log_warning("agents: %s", error.message);
}
