/* Requests of programs at their first launch: which config to use for a key (GET and POST
 * /v1/choices), and what their own autotuner measured (POST /v1/evidence).
 *
 * A choice comes from a release (common/formats/choices.c), or is one that containers agree on.
 * Evidence is what a container's own autotuner found. It is not trusted: it becomes a choice for
 * others only under the operator's rule --agreed NODES/MEASURED: at least MEASURED nodes of exactly
 * that environment measured the key within EVIDENCE_DAYS, and at least NODES of them found the
 * config best, or within 2 % of their best. Overrides (function_overrides.h) hold for it as for a
 * release. Each token's nodes are counted by the names that the containers state, so one container
 * with the token can invent nodes. A wrong choice costs a program time but does not change its
 * results: a program uses only configs of its own.
 *
 * Memory: a report owns what it holds. Threads: reading is pure; the rest belongs to a worker. */
#ifndef WAVETUNE_SERVER_CHOICE_CHOICES_H
#define WAVETUNE_SERVER_CHOICE_CHOICES_H

#include "common/node/environment.h"
#include "common/record/record.h"
#include "server/server.h"

#define CHOICES_FUNCTIONS_MAX 1000 /* of a request */
#define CHOICES_KEYS_MAX 1000      /* of each */
#define EVIDENCE_ITEMS_MAX 1000
#define EVIDENCE_NEAR_MAX 16        /* configs of an item */
#define EVIDENCE_CONFIG_MAX 1024    /* bytes of a config's canonical JSON */
#define EVIDENCE_KEY_MAX 256        /* texts of a key */
#define EVIDENCE_KEY_BYTES_MAX 4096 /* of these texts together */
#define EVIDENCE_NAME_MAX 1024      /* bytes of a function's name */
#define EVIDENCE_NODE_MAX 200       /* bytes of a node's name */
#define EVIDENCE_MS_MAX 1e9
#define EVIDENCE_COUNT_MAX 100000 /* of each counter of a report */
#define EVIDENCE_POSTS_PER_MINUTE 60
#define COUNTERS_POSTS_PER_MINUTE 6000 /* of reports without evidence */
#define EVIDENCE_ROWS_MAX 100000       /* kept; beyond them new rows are dropped */
#define EVIDENCE_TOKEN_ROWS_MAX 50000  /* the same of one token: one cannot take all rows */
#define EVIDENCE_AT_ONCE 10000         /* rows that are removed in one statement */
#define EVIDENCE_DAYS 30

struct evidence_item {
  struct digest function; /* its closure */
  char *name;
  RECORD_ARRAY(char *, n_key, key); /* Python's repr of each value of the autotuner's key */
  json_t *near;                     /* configs, the best first */
  int64_t configs;                  /* how many were measured */
  double ms, tuning_ms; /* of the best config; of the whole autotuning. NaN: not known */
};
/* What a program counted since its last report; they are added to /metrics. */
struct evidence_counters {
  int64_t hits, misses, unfit, failures;
  double saved_ms;
};
struct evidence_report {
  struct environment environment;
  char *tag, *node;
  enum regime regime;
  RECORD_ARRAY(struct evidence_item, n_items, items);
  struct evidence_counters counters;
};
extern const struct record evidence_report_record;
must_check bool evidence_report_parse(const json_t *json, struct evidence_report *ret,
                                      struct error *error);
void evidence_report_release(struct evidence_report *report);
#define cleanup_evidence_report __attribute__((cleanup(evidence_report_release)))

struct token_rates *server_evidence_rates(const struct server *server);
struct token_rates *server_counters_rates(const struct server *server); /* without evidence */
/* Removes old evidence. The housekeeper's. */
void evidence_housekeep(struct worker *worker);

/* "3/4": at least 3 nodes of at least 4. "off": 0 and 0. */
must_check bool agreed_parse(const char *text, int64_t *ret_nodes, int64_t *ret_measured);

/* What containers agree on for an environment, the third line of GET /v1/choices: {"functions":
 * {closure: {"name", "choices": [{"config", "key", "measured", "nodes", "override", "tuning_ms"}],
 * "banned": [{"config", "key", "override"}]}}}. A choice with the id of an override, and without
 * "nodes", is its pin, for a key that enough nodes measured. "banned" has what would be a choice
 * but for the override; the best config that is not banned takes its place. Give the document back
 * with document_put; NULL: the rule is off, or there is no evidence. */
struct document;
must_check bool evidence_agreed(struct worker *worker, const struct environment *environment,
                                const char *tag, enum regime regime, struct document **ret,
                                struct error *error);
/* Counts again where evidence came in the last `seconds`; 0: where there is evidence, and drops
 * what was counted elsewhere, whose evidence is too old. Forgets answers with other choices than
 * that. */
must_check bool agreed_prepare(struct worker *worker, double seconds, struct error *error);

/* {"digest": "sha256:…", "signatures": [{"key", "signature"}]}: the digest of a release's choices,
 * and the signatures over it; a new reference. */
struct db;
must_check bool choices_signatures_load(struct db *db, const struct digest *release,
                                        const struct digest *choices, json_t **ret,
                                        struct error *error);

#endif
