/* Reading reports, keeping them, and queueing jobs for what is missed most. Memory and threads: as the header says. */
#include "server/demand/demand.h"

#include "common/base/log.h"
#include "server/demand/demand_rate.h"
#include "server/demand/demand_store.h"
#include "server/housekeep.h"
#include "server/job/submit.h"
#include "server/server_private.h"

#define QUEUE_EVERY_MS 10000
#define QUEUE_AT_ONCE 16

static const char *const policy_names[] = {"off", "suggest", "automatic"};

const char *demand_policy_name(enum demand_policy policy) { return policy_names[policy]; }

bool demand_policy_parse(const char *name, enum demand_policy *ret_policy) {
  for (size_t i = 0; i < ARRAY_LENGTH(policy_names); i++)
    if (strcmp(name, policy_names[i]) == 0) {
      *ret_policy = (enum demand_policy)i;
      return true;
    }
  return false;
}

static bool milliseconds_read(const json_t *json, const char *at, const char *name, double *ret, struct error *error) {
  *ret = 0;
  if (!json_get_number(json, at, name, JSON_OPTIONAL, ret, error))
    return false;
  char pointer[JSON_POINTER_SIZE];
  if (*ret < 0 || *ret > DEMAND_MS_MAX)
    return error_at(error, json_pointer_member(pointer, sizeof pointer, at, name), "%s is 0 to %.0f milliseconds", name,
                    DEMAND_MS_MAX);
  if (*ret < DEMAND_MS_MIN)
    *ret = 0;
  return true;
}

static bool item_parse(const json_t *json, const char *at, struct demand_item *ret, struct error *error) {
  static const char *const members[] = {"kernel", "key", "hits", "misses", "tuning_ms", "kernel_ms", NULL};
  json_t *key;
  *ret = (struct demand_item){0};
  if (!json_only_members(json, at, members, error) ||
      !json_get_string(json, at, "kernel", JSON_REQUIRED, &ret->name, error) ||
      !json_get_object(json, at, "key", JSON_REQUIRED, &key, error) ||
      !json_get_integer(json, at, "hits", JSON_NOT_NULL, 0, DEMAND_COUNT_MAX, &ret->hits, error) ||
      !json_get_integer(json, at, "misses", JSON_NOT_NULL, 0, DEMAND_COUNT_MAX, &ret->misses, error) ||
      !milliseconds_read(json, at, "tuning_ms", &ret->tuning_ms, error) ||
      !milliseconds_read(json, at, "kernel_ms", &ret->kernel_ms, error))
    return false;
  ret->key = key;
  ret->has_hash = digest_parse(ret->name, &ret->kernel);
  return true;
}

bool demand_report_parse(const json_t *json, struct demand_report *ret, struct error *error) {
  static const char *const members[] = {"environment", "image", "tag", "regime", "items", NULL};
  json_t *environment, *items;
  const char *image = "";
  *ret = (struct demand_report){.tag = "default"};
  if (!json_only_members(json, "", members, error) ||
      !json_get_object(json, "", "environment", JSON_REQUIRED, &environment, error) ||
      !json_get_string(json, "", "image", JSON_OPTIONAL, &image, error) ||
      !json_get_string(json, "", "tag", JSON_NOT_NULL, &ret->tag, error) ||
      !regime_get(json, "", &ret->regime, error) || !json_get_array(json, "", "items", JSON_REQUIRED, &items, error))
    return false;
  size_t n = json_array_size(items);
  if (!*ret->tag || strlen(ret->tag) > JOB_TEXT_MAX)
    return error_at(error, "/tag", "a tag has 1 to %d bytes", JOB_TEXT_MAX);
  if (n == 0 || n > DEMAND_ITEMS_MAX)
    return error_at(error, "/items", "%zu items; a report has 1 to %d", n, DEMAND_ITEMS_MAX);
  struct demand_item *parsed = xcalloc(n, sizeof *parsed);
  bool ok = true;
  for (size_t i = 0; ok && i < n; i++) {
    char at[JSON_POINTER_SIZE];
    ok = item_parse(json_array_get(items, i), json_pointer_index(at, sizeof at, "/items", i), &parsed[i], error);
  }
  if (ok && !environment_parse(environment, &ret->environment, error))
    ok = error_pointer_prefix(error, "/environment");
  if (!ok) {
    free(parsed);
    return false;
  }
  ret->items = parsed;
  ret->n = n;
  return true;
}

void demand_report_release(struct demand_report *report) {
  environment_release(&report->environment);
  free(report->items);
}

/* The item as the kernel's key is written, or false: it says nothing of a kernel that can be tuned. */
static bool row_make(const struct demand_item *item, const struct kernel *kernel, struct demand_row *ret) {
  struct key key;
  struct error why;
  if (!kernel || kernel->language == LANGUAGE_EXTERNAL ||
      !key_parse(item->key, (const char *const *)kernel->key_names, kernel->n_key_names, &key, &why))
    return false;
  cleanup_json json_t *ordered = key_to_json(&key);
  *ret = (struct demand_row){.kernel = kernel->hash,
                             .key_digest = key_digest(&key),
                             .key = json_dumps(ordered, JSON_COMPACT),
                             .hits = item->hits,
                             .misses = item->misses,
                             .tuning_ms = item->tuning_ms,
                             .kernel_ms = item->kernel_ms};
  key_release(&key);
  return true;
}

bool demand_keep(struct worker *worker, const struct demand_report *report, const struct author *author,
                 size_t *ret_accepted, struct error *error) {
  cleanup_free struct digest *hashes = xcalloc(report->n, sizeof *hashes);
  cleanup_free bool *known = xcalloc(report->n, sizeof *known);
  cleanup_free const char **names = xcalloc(report->n, sizeof *names);
  for (size_t i = 0; i < report->n; i++) {
    known[i] = report->items[i].has_hash;
    hashes[i] = report->items[i].kernel;
    names[i] = report->items[i].has_hash ? NULL : report->items[i].name;
  }
  cleanup_catalog struct catalog catalog = {0};
  if (!demand_kernels_find(worker->db, names, report->n, hashes, known, error) ||
      !catalog_load(worker, hashes, report->n, &catalog, error))
    return false;
  cleanup_free struct demand_row *rows = xcalloc(report->n, sizeof *rows);
  size_t n = 0;
  for (size_t i = 0; i < report->n; i++)
    n += known[i] && row_make(&report->items[i], catalog_find(&catalog, &hashes[i])->kernel, &rows[n]);
  cleanup_json json_t *environment = environment_to_json(&report->environment);
  cleanup_free char *environment_text = json_canonical(environment);
  struct digest digest = environment_digest(&report->environment);
  bool ok =
      n == 0 || demand_add(worker->db, rows, n, &digest, environment_text, report->tag, report->regime, author, error);
  for (size_t i = 0; i < n; i++)
    free(rows[i].key);
  *ret_accepted = n;
  return ok;
}

/* The job that a person would submit for it, from the kernel's newest one. */
static json_t *job_body(const struct demand_wanted *wanted) {
  json_t *body = json_pack("{s:o, s:O, s:O, s:O, s:s, s:s, s:i}", "kernel", json_digest_text(&wanted->kernel), "key",
                           wanted->key, "space", wanted->space, "environment", wanted->environment, "tag", wanted->tag,
                           "regime", wanted->regime, "priority", DEMAND_PRIORITY);
  ALWAYS(body != NULL);
  if (wanted->budget_ms)
    json_object_set_new(body, "budget", json_pack("{s:f}", "device_seconds", (double)wanted->budget_ms / 1000));
  return body;
}

/* Queues one; refused, with a sentence that is kept, is an answer too. False: the database. */
static bool wanted_queue(struct worker *worker, const struct demand_wanted *wanted, const struct author *author,
                         int64_t *ret_job, struct error *refused, struct error *error) {
  struct submission submission = {0};
  *ret_job = 0;
  if (!wanted->space) {
    error_set(refused, "no job of this kernel is done yet, so nothing shows which space to tune: submit one");
    return true;
  }
  cleanup_json json_t *body = job_body(wanted);
  if (!job_request_parse(body, &submission.request, refused))
    return true;
  cleanup_catalog struct catalog catalog = {0};
  struct job_row *row = &submission.row;
  json_t *extra = NULL;
  bool ok = catalog_load(worker, &wanted->kernel, 1, &catalog, error);
  bool is_right = ok && submission_check(worker, &catalog, &submission, &extra, refused);
  json_decref(extra);
  if (ok && !is_right && refused->kind != ERROR_INVALID) {
    *error = *refused;
    ok = false;
  }
  if (is_right && json_integer_value(json_object_get(submission.agents, "matching")) == 0)
    error_set(refused, "no live agent matches its environment, so a job would only wait");
  else if (is_right) {
    submission.stored = row;
    ok = jobs_find(worker->db, &row, 1, error) && jobs_incumbents(worker->db, &row, 1, error);
    bool is_planned = ok && (row->known.id || submission_plan(&submission, JOB_POINTS_MAX, refused));
    if (is_planned) {
      ok = row->known.id || submissions_store(worker, &row, 1, author, error);
      *ret_job = ok ? row->known.id : 0;
    }
  }
  submission_release(&submission);
  return ok;
}

bool demand_queue(struct worker *worker, int64_t top, const struct author *author, json_t **ret_answers,
                  struct error *error) {
  cleanup_demand_list struct demand_list list = {0};
  if (!demand_wanted_load(worker->db, top, &list, error))
    return false;
  cleanup_json json_t *answers = json_array();
  for (size_t i = 0; i < list.n; i++) {
    const struct demand_wanted *wanted = &list.all[i];
    struct error refused = {0};
    int64_t job;
    if (!wanted_queue(worker, wanted, author, &job, &refused, error) ||
        !demand_decided(worker->db, wanted->id, job, job ? NULL : refused.message, error))
      return false;
    json_t *answer = json_pack("{s:o, s:s, s:O}", "kernel", json_digest_text(&wanted->kernel), "name", wanted->name,
                               "key", wanted->key);
    if (job) {
      char text[24];
      snprintf(text, sizeof text, "%lld", (long long)job);
      json_object_set_new(answer, "job", json_string(text));
    } else {
      json_object_set_new(answer, "refused", json_string(refused.message));
    }
    ALWAYS(json_array_append_new(answers, answer) == 0);
  }
  *ret_answers = TAKE(answers);
  return true;
}

void demand_housekeep(struct worker *worker) {
  struct error error;
  int64_t queued;
  const struct server_options *options = server_options(worker->server);
  if (options->demand != DEMAND_AUTOMATIC ||
      !demand_rate_is_due(worker->server->demand_rate, QUEUE_EVERY_MS, clock_monotonic_ms()))
    return;

  if (!demand_queued_lately(worker->db, &queued, &error)) {
    log_warning("demand: %s", error.message);
    return;
  }
  int64_t room = options->demand_per_hour - queued;
  cleanup_json json_t *answers = NULL;
  if (room > 0 && !demand_queue(worker, room < QUEUE_AT_ONCE ? room : QUEUE_AT_ONCE, &author_server, &answers, &error))
    log_warning("demand: %s", error.message);
  else if (answers && json_array_size(answers))
    log_info("demand: %zu keys that deployments missed were looked at for jobs", json_array_size(answers));
}
