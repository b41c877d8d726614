/* The ledger of poison: judging losses, finding what concerns a job, and giving it up. */
#include "server/poison/poison.h"

#include "common/base/log.h"
#include "server/audit/audit.h"
#include "server/counters.h"
#include "server/db/db_record.h"
#include "server/measurement/leases.h"
#include "server/poison/poison.sql.h"

#define JUDGED_AT_ONCE 200
#define EVIDENCE_MAX 32 /* losses that an entry names */
#define RELEASE_IT "`wavetune poison release %lld --reason TEXT` releases it"

/* Judging */

/* A loss that is to be judged, or a part of the evidence against a subject. */
struct evidence {
  struct poison_loss loss;
  int64_t id, lease, epoch, ordinal;
  char *at;
};
#define LOSS(name, type, member) RECORD_FIELD_AS(name, type, struct evidence, loss.member)
static const struct field evidence_fields[] = {
    LOSS("job", INTEGER, job),
    LOSS("agent", TEXT, agent),
    LOSS("device", TEXT, device),
    LOSS("config", DIGEST, config),
    LOSS("at_ms", INTEGER, at_ms),
    LOSS("same", INTEGER, same),
    LOSS("others", INTEGER, others),
    LOSS("is_excused", BOOL, is_excused),
    RECORD_FIELD(INTEGER, struct evidence, id),
    RECORD_FIELD(INTEGER, struct evidence, lease),
    RECORD_FIELD(INTEGER, struct evidence, epoch),
    RECORD_FIELD(INTEGER, struct evidence, ordinal),
    RECORD_FIELD(TEXT, struct evidence, at),
};
#undef LOSS
static const struct record evidence_record = RECORD(NULL, struct evidence, evidence_fields);

/* An unjudged loss: what was measured, and what an entry about it would have. */
struct suspect {
  int64_t id, environment;
  struct digest kernel, build, device_class, object; /* all zeros: none */
  struct digest subjects[POISON_SCOPE_COUNT];        /* all zeros: not known */
  json_t *config; /* its values; NULL: this version cannot read the space */
};
#define RECORD_OF struct suspect
static const struct field judged_fields[] = {
    MEMBER(INTEGER, id),
    MEMBER_AS("of_config", DIGEST, subjects[POISON_CONFIG]),
    MEMBER_AS("of_kernel", DIGEST, subjects[POISON_KERNEL]),
    MEMBER_AS("of_object", DIGEST, subjects[POISON_OBJECT]),
};
#undef RECORD_OF
static const struct record judged_record = RECORD(NULL, struct suspect, judged_fields);

static struct digest subject_of(enum poison_scope scope, const struct suspect *suspect) {
  struct digest_stream *stream = digest_stream_new();
  digest_stream_add(stream, poison_scope_names[scope], strlen(poison_scope_names[scope]) + 1);
  digest_stream_add(stream, &suspect->device_class, sizeof suspect->device_class);
  if (scope == POISON_OBJECT) {
    digest_stream_add(stream, &suspect->object, sizeof suspect->object);
  } else {
    digest_stream_add(stream, &suspect->kernel, sizeof suspect->kernel);
    digest_stream_add(stream, &suspect->build, sizeof suspect->build);
  }
  if (scope == POISON_CONFIG) {
    cleanup_free char *values = json_canonical(suspect->config);
    digest_stream_add(stream, values, strlen(values));
  }
  return digest_stream_finish(stream);
}

/* Reads what was measured when a lease was lost. */
static bool suspect_read(struct db *db, const struct db_rows *rows, int row, struct suspect *ret,
                         struct error *error) {
  struct suspect suspect = {.id = db_get_integer(rows, row, "id"),
                            .environment = db_get_integer(rows, row, "environment_id"),
                            .kernel = db_get_digest(rows, row, "kernel"),
                            .device_class = db_get_digest(rows, row, "device_class")};
  if (!db_is_null(rows, row, "build"))
    suspect.build = db_get_digest(rows, row, "build");
  *ret = suspect;

  cleanup_json json_t *space_json = db_get_json(rows, row, "space"),
                      *key_json = db_get_json(rows, row, "key");
  cleanup_space struct space *space = NULL;
  cleanup_key struct key key = {0};
  cleanup_variant struct poison_variant *variant = NULL;
  struct error unread;
  uint64_t config = (uint64_t)db_get_integer(rows, row, "config");
  if (!space_parse(space_json, &space, &unread) || !key_parse(key_json, NULL, 0, &key, &unread) ||
      config >= space->raw_count) {
    log_warning("poison: loss=%lld cannot be judged: the config is not known",
                (long long)suspect.id);
    return true;
  }

  const struct poison_place place = {suspect.kernel, suspect.build, suspect.device_class, &key,
                                     space};
  if (!poison_variant_load(db, &place, &variant, error))
    return false;
  ret->config = space_config_to_json(space, config);
  ret->subjects[POISON_CONFIG] = subject_of(POISON_CONFIG, ret);
  ret->subjects[POISON_KERNEL] = subject_of(POISON_KERNEL, ret);
  if (variant && poison_object_of(variant, ret->config, &ret->object))
    ret->subjects[POISON_OBJECT] = subject_of(POISON_OBJECT, ret);
  return true;
}

static char *reason_format(enum poison_scope scope, const struct poison_count *count) {
  if (scope == POISON_KERNEL)
    return xasprintf("%lld leases were lost by %lld agents while configs of it were being "
                     "measured, repeatedly with each of %lld configs",
                     (long long)count->losses, (long long)count->agents, (long long)count->configs);
  return xasprintf("%lld leases were lost by %lld agents while it was being measured, repeatedly "
                   "in each of %lld jobs",
                   (long long)count->losses, (long long)count->agents, (long long)count->jobs);
}

/* The newest EVIDENCE_MAX losses that count. */
static json_t *evidence_to_json(const struct evidence *evidence, size_t n, int64_t n_counted) {
  json_t *array = json_array();
  int64_t left_out = n_counted > EVIDENCE_MAX ? n_counted - EVIDENCE_MAX : 0;
  for (size_t i = 0; i < n; i++) {
    const struct evidence *one = &evidence[i];
    if (!poison_loss_counts(&one->loss) || left_out-- > 0)
      continue;
    char job[24], lease[24];
    snprintf(job, sizeof job, "%lld", (long long)one->loss.job);
    snprintf(lease, sizeof lease, "%lld", (long long)one->lease);
    json_push(array,
              json_pack("{s:s, s:s, s:I, s:I, s:s, s:s, s:s}", "job", job, "lease", lease, "epoch",
                        (json_int_t)one->epoch, "config", (json_int_t)one->ordinal, "agent",
                        one->loss.agent, "device", one->loss.device, "at", one->at));
  }
  return array;
}

static bool entry_add(struct db *db, enum poison_scope scope, const struct suspect *suspect,
                      const char *reason, const json_t *evidence, struct error *error) {
  bool is_object = scope == POISON_OBJECT, is_kernel = scope == POISON_KERNEL;
  cleanup_rows struct db_rows *rows = db_query(
      db, &sql_poison_add, error, BIND("scope", poison_scope_names[scope]),
      BIND("subject", &suspect->subjects[scope]), BIND("device_class", &suspect->device_class),
      BIND("environment", suspect->environment), BIND("kernel", &suspect->kernel),
      BIND("build", digest_is_none(&suspect->build) ? NULL : &suspect->build),
      BIND("object", is_object ? &suspect->object : NULL),
      BIND("config_values", is_kernel ? NULL : suspect->config), BIND("reason", reason),
      BIND("evidence", evidence));
  if (!rows)
    return false;
  if (!db_count(rows))
    return true;

  const char *id = db_get(rows, 0, "id");
  log_warning("poison: entry %s: %s: %s", id, poison_scope_names[scope], reason);
  counter_add(COUNTER_poisoned, 1);
  return audit_note(db, &author_server, AUDIT_POISON, id,
                    json_pack("{s:s, s:o, s:s}", "scope", poison_scope_names[scope], "kernel",
                              json_digest_text(&suspect->kernel), "reason", reason),
                    error);
}

/* Judges a subject of a loss by all its losses. */
static bool subject_judge(struct db *db, enum poison_scope scope, const struct suspect *suspect,
                          int64_t moment_ms, struct error *error) {
  cleanup_rows struct db_rows *rows =
      db_query(db, &sql_poison_losses, error, BIND("subject", &suspect->subjects[scope]),
               BIND("moment_ms", moment_ms), BIND("limit", POISON_LOSSES_MAX));
  if (!rows)
    return false;

  size_t n;
  struct evidence *evidence = db_read_all(rows, &evidence_record, &n);
  cleanup_free struct poison_loss *losses = xcalloc(n + 1, sizeof *losses);
  for (size_t i = 0; i < n; i++)
    losses[i] = evidence[i].loss;

  struct poison_count count;
  bool ok = true;
  if (poison_judge(scope, losses, n, moment_ms, &count)) {
    cleanup_free char *reason = reason_format(scope, &count);
    cleanup_json json_t *json = evidence_to_json(evidence, n, count.losses);
    ok = entry_add(db, scope, suspect, reason, json, error);
  }
  db_records_free(&evidence_record, evidence, n);
  return ok;
}

/* In a transaction. *ret_n: how many losses were judged. */
static bool losses_judge(struct db *db, int64_t moment_ms, int *ret_n, struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  if (!db_execute(db, &sql_poison_lock, error) ||
      !(rows = db_query(db, &sql_poison_unjudged, error, BIND("moment_ms", moment_ms),
                        BIND("limit", JUDGED_AT_ONCE))))
    return false;

  size_t n = (size_t)db_count(rows);
  struct suspect *suspects = xcalloc(n + 1, sizeof *suspects);
  bool ok = true;
  for (size_t i = 0; ok && i < n; i++)
    ok = suspect_read(db, rows, (int)i, &suspects[i], error);
  ok = ok && db_execute(db, &sql_poison_judged, error, BIND_RECORDS(&judged_record, suspects, n));

  /* When all of them have their subjects: one loss is evidence about the moment of another. An
   * entry names what was lost last. */
  for (size_t i = n; ok && i-- > 0;)
    for (enum poison_scope scope = 0; ok && scope < POISON_SCOPE_COUNT; scope++) {
      bool is_new = !digest_is_none(&suspects[i].subjects[scope]);
      for (size_t k = i + 1; is_new && k < n; k++)
        is_new = !digest_equal(&suspects[k].subjects[scope], &suspects[i].subjects[scope]);
      ok = !is_new || subject_judge(db, scope, &suspects[i], moment_ms, error);
    }

  for (size_t i = 0; i < n; i++)
    json_decref(suspects[i].config);
  free(suspects);
  *ret_n = (int)n;
  return ok;
}

bool poison_judge_losses(struct worker *worker, struct error *error) {
  struct db *db = worker->db;
  int64_t moment_ms = server_options(worker->server)->lease_ms / 2;
  for (int n = JUDGED_AT_ONCE; n == JUDGED_AT_ONCE;) {
    cleanup_rows struct db_rows *rows =
        db_query(db, &sql_poison_is_due, error, BIND("moment_ms", moment_ms));
    if (!rows)
      return false;
    if (!db_get_bool(rows, 0, "is_due"))
      return true;
    if (!db_begin(db, error) || !db_end(db, losses_judge(db, moment_ms, &n, error), error))
      return false;
  }
  return true;
}

/* What concerns a job */

void poison_hits_release(struct poison_hits *hits) {
  for (size_t i = 0; i < hits->n; i++)
    free(hits->all[i].reason);
  free(hits->all);
  free(hits->kernel_reason);
  *hits = (struct poison_hits){0};
}

void poison_hit_add(struct poison_hits *hits, int64_t entry, uint64_t config, const char *reason) {
  if (poison_hit_of(hits, config))
    return;
  GROW(hits->all, hits->n, hits->capacity);
  size_t at = hits->n++;
  for (; at > 0 && hits->all[at - 1].config > config; at--)
    hits->all[at] = hits->all[at - 1];
  hits->all[at] = (struct poison_hit){entry, config, xstrdup(reason)};
}

const struct poison_hit *poison_hit_of(const struct poison_hits *hits, uint64_t config) {
  for (size_t i = 0; i < hits->n; i++)
    if (hits->all[i].config == config)
      return &hits->all[i];
  return NULL;
}

/* Adds what an entry has of a job. */
static bool entry_apply(struct db *db, const struct db_rows *rows, int row,
                        const struct poison_place *place, struct poison_variant **variant,
                        struct poison_hits *hits, struct error *error) {
  const char *scope = db_get(rows, row, "scope"), *reason = db_get(rows, row, "reason");
  int64_t entry = db_get_integer(rows, row, "id");
  if (string_equal(scope, poison_scope_names[POISON_KERNEL])) {
    if (!hits->kernel_entry) {
      hits->kernel_entry = entry;
      hits->kernel_reason = xstrdup(reason);
    }
    return true;
  }

  if (string_equal(scope, poison_scope_names[POISON_OBJECT])) {
    struct digest object = db_get_digest(rows, row, "object");
    if (!*variant && !poison_variant_load(db, place, variant, error))
      return false;
    if (*variant)
      poison_object_add(*variant, &object, place->space, entry, reason, hits);
    return true;
  }

  cleanup_json json_t *values = db_get_json(rows, row, "config_values");
  struct error absent; /* the space does not have it */
  uint64_t config;
  if (space_config_from_json(place->space, values, &config, &absent))
    poison_hit_add(hits, entry, config, reason);
  return true;
}

#define RECORD_OF struct poison_place
static const struct field place_fields[] = {
    MEMBER(DIGEST, kernel),
    MEMBER(DIGEST, build),
    MEMBER(DIGEST, device_class),
};
#undef RECORD_OF
static const struct record place_record = RECORD(NULL, struct poison_place, place_fields);

bool poison_find(struct db *db, const struct poison_place *places, size_t n,
                 struct poison_hits *ret_hits, struct error *error) {
  for (size_t i = 0; i < n; i++)
    ret_hits[i] = (struct poison_hits){0};
  cleanup_rows struct db_rows *rows =
      db_query(db, &sql_poison_of_code, error, BIND_RECORDS(&place_record, places, n));
  if (!rows)
    return false;

  int row = 0;
  for (size_t i = 0; i < n; i++) {
    cleanup_variant struct poison_variant *variant = NULL;
    for (; row < db_count(rows) && db_get_integer(rows, row, "n") == (int64_t)i + 1; row++)
      if (!entry_apply(db, rows, row, &places[i], &variant, &ret_hits[i], error)) {
        for (size_t k = 0; k <= i; k++)
          poison_hits_release(&ret_hits[k]);
        return false;
      }
  }
  return true;
}

bool poison_allows(const struct poison_hits *hits, uint64_t default_config, struct error *error) {
  if (hits->kernel_entry)
    return error_of_at(error, ERROR_CONFLICT, "/kernel",
                       "the kernel is poisoned on this hardware, by entry %lld of the ledger: %s; "
                       "no job of it runs there until " RELEASE_IT,
                       (long long)hits->kernel_entry, hits->kernel_reason,
                       (long long)hits->kernel_entry);

  const struct poison_hit *hit =
      (int64_t)default_config == FIELD_NONE ? NULL : poison_hit_of(hits, default_config);
  if (hit)
    return error_of_at(error, ERROR_CONFLICT, "/space/default",
                       "the default config is poisoned on this hardware, by entry %lld of the "
                       "ledger: %s; choose another default, or " RELEASE_IT,
                       (long long)hit->entry, hit->reason, (long long)hit->entry);
  return true;
}

/* Gives up those of the configs that a lease has. */
static bool lease_hits_give_up(struct db *db, int64_t lease, const struct poison_hits *hits,
                               struct error *error) {
  for (size_t i = 0; i < hits->n; i++) {
    const struct poison_hit *hit = &hits->all[i];
    cleanup_free char *detail = xasprintf(
        "skipped: poisoned on this hardware, by entry %lld of the ledger: %s; " RELEASE_IT,
        (long long)hit->entry, hit->reason, (long long)hit->entry);
    const struct given_up given = {
        .lease = lease, .config = (int64_t)hit->config, .poison = hit->entry, .detail = detail};
    if (!lease_give_up(db, &given, error))
      return false;
  }
  return true;
}

bool poison_give_up(struct db *db, int64_t job, const struct poison_round *round,
                    const struct poison_hits *hits, size_t *ret_n, struct error *error) {
  cleanup_config_ranges struct config_ranges configs = {0};
  *ret_n = 0;
  if (hits->n == 0)
    return true;

  for (size_t i = 0; i < hits->n; i++)
    config_ranges_add(&configs, hits->all[i].config);
  cleanup_rows struct db_rows *rows =
      db_query(db, &sql_poison_leases, error, BIND("job", job), BIND("configs", &configs),
               BIND("stage", round ? stage_name(round->stage) : NULL),
               BIND("round", round ? round->round : 0));
  if (!rows)
    return false;

  for (int row = 0; row < db_count(rows); row++)
    if (!lease_hits_give_up(db, db_get_integer(rows, row, "id"), hits, error))
      return false;
  *ret_n = (size_t)db_count(rows);
  return true;
}
