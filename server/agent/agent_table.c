/* The table of heartbeats. */
#include <pthread.h>

#include "common/cache/text.h"
#include "server/agent/agents.h"

#define BUCKETS 4096

enum presence { PRESENCE_KNOWN, PRESENCE_LOOKUP, PRESENCE_ABSENT };

struct entry {
  struct entry *next;
  char id[AGENT_ID_SIZE];
  char *boot;    /* NULL unless known */
  char *yielded; /* of the last heartbeat, if it was not taken yet; or NULL */
  enum presence presence;
  bool needs_lookup; /* known, but another process sends heartbeats with its id, which may have
                      enrolled with another server */
  bool is_looked_up; /* agent_table_lookups returned it, and it has not enrolled since */
  bool is_draining;
  bool is_unflushed;
  struct agent_owner owner;
  int64_t seen_ms; /* the last heartbeat; of an absent id, when it was found to be absent */
};

struct agent_table {
  pthread_mutex_t lock;
  struct entry *buckets[BUCKETS];
  size_t n_unknown; /* entries that are not PRESENCE_KNOWN */
};

struct agent_table *agent_table_new(void) {
  struct agent_table *table = xcalloc(1, sizeof *table);
  ALWAYS(pthread_mutex_init(&table->lock, NULL) == 0);
  return table;
}

static void entry_free(struct entry *entry) {
  free(entry->boot);
  free(entry->yielded);
  free(entry);
}

void agent_table_free(struct agent_table *table) {
  if (!table)
    return;

  for (size_t i = 0; i < BUCKETS; i++)
    for (struct entry *entry = table->buckets[i], *next; entry; entry = next) {
      next = entry->next;
      entry_free(entry);
    }

  pthread_mutex_destroy(&table->lock);
  free(table);
}

static void lock(struct agent_table *table) { ALWAYS(pthread_mutex_lock(&table->lock) == 0); }
static void unlock(struct agent_table *table) { ALWAYS(pthread_mutex_unlock(&table->lock) == 0); }

static struct entry **bucket_of(struct agent_table *table, const char *id) {
  return &table->buckets[text_hash(id, strlen(id)) % BUCKETS];
}

static struct entry *find(struct agent_table *table, const char *id) {
  struct entry *entry = *bucket_of(table, id);
  while (entry && strcmp(entry->id, id) != 0)
    entry = entry->next;
  return entry;
}

static struct entry *add(struct agent_table *table, const char *id) {
  struct entry **bucket = bucket_of(table, id), *entry = xcalloc(1, sizeof *entry);
  snprintf(entry->id, sizeof entry->id, "%s", id);
  entry->next = *bucket;
  *bucket = entry;
  return entry;
}

bool agent_id_is_valid(const char *id) {
  return strlen(id) == AGENT_ID_SIZE - 1 && strspn(id, "0123456789abcdef") == AGENT_ID_SIZE - 1;
}

static enum agent_beat beat_unknown(struct agent_table *table, struct entry *entry, const char *id,
                                    int64_t now_ms) {
  if (!entry) {
    if (!agent_id_is_valid(id) || table->n_unknown >= AGENTS_LOOKUP_MAX)
      return AGENT_ABSENT;
    entry = add(table, id);
    entry->presence = PRESENCE_LOOKUP;
    entry->seen_ms = now_ms;
    table->n_unknown++;
    return AGENT_LOOKUP;
  }

  if (entry->presence == PRESENCE_LOOKUP)
    return AGENT_LOOKUP;
  if (now_ms - entry->seen_ms < AGENT_ABSENT_MS)
    return AGENT_ABSENT;

  entry->presence = PRESENCE_LOOKUP;
  return AGENT_LOOKUP;
}

enum agent_beat agent_table_beat(struct agent_table *table, const char *id, const char *boot,
                                 const char *yielded, int64_t now_ms, bool *ret_draining) {
  enum agent_beat answer = AGENT_BEATS;
  lock(table);
  struct entry *entry = find(table, id);

  if (!entry || entry->presence != PRESENCE_KNOWN) {
    answer = beat_unknown(table, entry, id, now_ms);
  } else if (strcmp(entry->boot, boot) != 0) {
    entry->needs_lookup = true;
    answer = AGENT_ABSENT;
  } else {
    entry->seen_ms = now_ms;
    entry->is_unflushed = true;
    if (yielded) {
      free(entry->yielded);
      entry->yielded = xstrdup(yielded);
    }
    *ret_draining = entry->is_draining;
  }

  unlock(table);
  return answer;
}

struct agent_owner agent_table_owner(struct agent_table *table, const char *id) {
  lock(table);
  const struct entry *entry = find(table, id);
  struct agent_owner owner = entry ? entry->owner : (struct agent_owner){0};
  unlock(table);
  return owner;
}

/* Makes the agent known. `entry`: its entry, or NULL. */
static void know(struct agent_table *table, struct entry *entry, const struct agent_brief *agent,
                 int64_t now_ms) {
  if (!entry)
    entry = add(table, agent->id);
  else if (entry->presence != PRESENCE_KNOWN)
    table->n_unknown--;

  free(entry->boot);
  entry->boot = xstrdup(agent->boot);
  free(TAKE(entry->yielded)); /* of a former process */
  entry->presence = PRESENCE_KNOWN;
  entry->needs_lookup = entry->is_looked_up = false;
  entry->is_draining = agent->is_draining;
  entry->owner = agent->owner;
  entry->seen_ms = now_ms;
}

void agent_table_put(struct agent_table *table, const struct agent_brief *agent, int64_t now_ms) {
  lock(table);
  know(table, find(table, agent->id), agent, now_ms);
  unlock(table);
}

void agent_table_found(struct agent_table *table, const struct agent_brief *agent, int64_t now_ms) {
  lock(table);
  struct entry *entry = find(table, agent->id);
  if (entry && entry->is_looked_up)
    know(table, entry, agent, now_ms);
  unlock(table);
}

void agent_table_drain(struct agent_table *table, const char *id, bool is_draining) {
  lock(table);
  struct entry *entry = find(table, id);
  if (entry)
    entry->is_draining = is_draining;
  unlock(table);
}

size_t agent_table_take_seen(struct agent_table *table, int64_t now_ms, size_t most,
                             char (*ret_ids)[AGENT_ID_SIZE], int64_t *ret_ages_ms,
                             char **ret_yielded) {
  size_t n = 0;
  lock(table);
  for (size_t i = 0; i < BUCKETS && n < most; i++)
    for (struct entry *entry = table->buckets[i]; entry && n < most; entry = entry->next)
      if (entry->is_unflushed) {
        entry->is_unflushed = false;
        memcpy(ret_ids[n], entry->id, AGENT_ID_SIZE);
        ret_yielded[n] = TAKE(entry->yielded);
        ret_ages_ms[n++] = now_ms - entry->seen_ms;
      }

  unlock(table);
  return n;
}

void agent_table_untake(struct agent_table *table, char (*ids)[AGENT_ID_SIZE], size_t n) {
  lock(table);
  for (size_t i = 0; i < n; i++) {
    struct entry *entry = find(table, ids[i]);
    if (entry)
      entry->is_unflushed = true;
  }
  unlock(table);
}

size_t agent_table_lookups(struct agent_table *table, size_t most, char (*ret_ids)[AGENT_ID_SIZE]) {
  size_t n = 0;
  lock(table);
  for (size_t i = 0; i < BUCKETS && n < most; i++)
    for (struct entry *entry = table->buckets[i]; entry && n < most; entry = entry->next)
      if (entry->presence == PRESENCE_LOOKUP || entry->needs_lookup) {
        entry->is_looked_up = true;
        memcpy(ret_ids[n++], entry->id, AGENT_ID_SIZE);
      }

  unlock(table);
  return n;
}

void agent_table_absent(struct agent_table *table, const char *id, int64_t now_ms) {
  lock(table);
  struct entry *entry = find(table, id);
  if (entry && entry->presence == PRESENCE_LOOKUP) {
    entry->presence = PRESENCE_ABSENT;
    entry->seen_ms = now_ms;
  }
  unlock(table);
}

void agent_table_set_draining(struct agent_table *table, const char *const *ids, size_t n) {
  lock(table);
  for (size_t i = 0; i < BUCKETS; i++)
    for (struct entry *entry = table->buckets[i]; entry; entry = entry->next)
      entry->is_draining = false;

  for (size_t i = 0; i < n; i++) {
    struct entry *entry = find(table, ids[i]);
    if (entry)
      entry->is_draining = true;
  }

  unlock(table);
}

void agent_table_forget(struct agent_table *table, int64_t now_ms, int64_t age_ms) {
  lock(table);
  for (size_t i = 0; i < BUCKETS; i++)
    for (struct entry **link = &table->buckets[i]; *link;) {
      struct entry *entry = *link;
      if (entry->presence == PRESENCE_LOOKUP || now_ms - entry->seen_ms < age_ms) {
        link = &entry->next;
        continue;
      }

      if (entry->presence != PRESENCE_KNOWN)
        table->n_unknown--;
      *link = entry->next;
      entry_free(entry);
    }

  unlock(table);
}
