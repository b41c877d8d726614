/* One device's thread: requests a lease, gets the kernel's sources, executes the lease, spools its
 * measurements. */
#include <time.h>

#include "agent/compile/sources.h"
#include "agent/run/agent.h"
#include "common/base/file.h"
#include "common/base/log.h"
#include "common/cache/signatures.h"
#include "common/lease/lease_cause.h"

#define LEASE_WAIT_S 20
#define LEASE_ANSWER_MS 15000 /* beyond the wait */
#define BLOB_MS 60000
#define IDLE_LEAST_MS 1000 /* between two requests for leases without result */
#define BACKOFF_LEAST_MS 250
#define BACKOFF_MOST_MS 10000
/* after a lease without a measurement: it had ended, or all its configs had been given away */
#define EMPTY_LEAST_MS 20
#define EMPTY_MOST_MS 10000
/* after a lease that could not be executed: another agent may be able to execute it */
#define FAILED_LEAST_MS 1000
#define FAILED_MOST_MS 60000
#define QUARANTINE_LEAST_MS 1000
#define QUARANTINE_MOST_MS 60000
#define SETTLE_STEP_MS 1

/* A record that is not spooled before a later look has found the device free (yield.h). */
struct pending_record {
  int64_t made_ns;
  json_t *record;
};

/* A granted lease. */
struct granted {
  struct device_thread *thread;
  const struct lease_terms *terms;
  size_t n_measured; /* configs */
  size_t n_pending, pending_capacity;
  struct pending_record *pending;
  bool has_failed;    /* a record could not be spooled */
  bool is_unreadable; /* the lease, perhaps because the server is newer */
  struct backoff backoff;
};

static bool record_spool(const struct granted *granted, const json_t *record) {
  struct error error;
  uint64_t number;
  bool ok = spool_append(granted->thread->agent->spool, record, &number, &error);
  if (!ok)
    log_error("%s", error.message);
  return ok;
}

/* Spools the records that were made before a look that found the device free. */
static void pending_spool(struct granted *granted) {
  int64_t clean_ns = device_clean_ns(granted->thread);
  size_t n = 0;
  while (n < granted->n_pending && granted->pending[n].made_ns < clean_ns && !granted->has_failed) {
    granted->has_failed = !record_spool(granted, granted->pending[n].record);
    json_decref(granted->pending[n++].record);
  }
  granted->n_pending -= n;
  if (n)
    memmove(granted->pending, granted->pending + n, granted->n_pending * sizeof *granted->pending);
}

static bool granted_stopped(void *context) {
  struct granted *granted = context;
  struct agent *agent = granted->thread->agent;
  pending_spool(granted);
  return agent_is_stopping(agent) || granted->has_failed || device_is_yielded(granted->thread) ||
         !held_is_alive(agent->held, granted->terms->id, granted->terms->epoch);
}

/* Waits until the last records are spooled, and drops them where the device was not free. Returns
 * how many it dropped. */
static size_t pending_settle(struct granted *granted) {
  const struct timespec pause = {.tv_nsec = SETTLE_STEP_MS * 1000000};
  struct agent *agent = granted->thread->agent;
  if (granted->n_pending)
    agent_signal(agent, &agent->must_look);
  for (pending_spool(granted); granted->n_pending && !granted->has_failed; pending_spool(granted)) {
    if (device_is_yielded(granted->thread) ||
        !held_is_alive(agent->held, granted->terms->id, granted->terms->epoch))
      break;
    nanosleep(&pause, NULL);
  }

  for (size_t i = 0; i < granted->n_pending; i++)
    json_decref(granted->pending[i].record);
  free(TAKE(granted->pending));
  return granted->n_pending;
}

static bool granted_is_ours(void *context, uint64_t config) {
  const struct granted *granted = context;
  return held_has(granted->thread->agent->held, granted->terms->id, granted->terms->epoch, config);
}

/* `object`: the file of the code that a measurement names; NULL: none. Each record has the time of
 * opening the kernel so far: the server uses the greatest that it got, in any order. */
static json_t *record_make(const struct granted *granted, const char *member, json_t *taken,
                           const char *object) {
  const struct lease_terms *terms = granted->terms;
  int64_t opening_us = granted->thread->executor.opening_us;
  json_t *record = json_pack("{s:s, s:I, s:o, s:s*}", "lease", terms->id, "epoch",
                             (json_int_t)terms->epoch, member, taken, "object_path", object);
  if (opening_us)
    json_object_set_new(record, "opening_us", json_integer(opening_us));
  return record;
}

/* The code of a final is stored: the measurement names it. The poster uploads it, because here the
 * device would wait. */
static bool granted_measured(void *context, const struct lease *lease,
                             const struct measurement *measurement,
                             const struct lease_object *object) {
  struct granted *granted = context;
  bool is_kept = lease->stage == STAGE_FINAL && measurement->outcome == OUTCOME_CORRECT && object;
  json_t *json = measurement_to_json(lease, measurement, is_kept ? &object->digest : NULL);
  GROW(granted->pending, granted->n_pending, granted->pending_capacity);
  granted->pending[granted->n_pending++] =
      (struct pending_record){clock_monotonic_ns(), record_make(granted, "measurement", json,
                                                                is_kept ? object->path : NULL)};
  granted->n_measured++;
  pending_spool(granted);
  return !granted->has_failed;
}

/* Downloads a part of a lease, and tries again until the lease ends. `what` is for the error. */
static bool bytes_get(struct granted *granted, const char *path, const char *what, char **ret_bytes,
                      size_t *ret_size, struct error *error) {
  struct http_request request = {.method = "GET", .path = path, .timeout_ms = BLOB_MS};
  while (!granted_stopped(granted)) {
    cleanup_http_response struct http_response response = {0};
    if (http_send(granted->thread->client, &request, &response, error)) {
      if (response.status == 200) {
        *ret_bytes = TAKE(response.body);
        *ret_size = response.size;
        return true;
      }
      /* A redirect is not followed, and waiting does not change where it leads. */
      enum error_kind kind = response.status < 400 ? ERROR_MISSING : server_error_kind(&response);
      error_of(error, kind, "the server answered %d to GET %s, %s", response.status, path, what);
      if (!error_is_retryable(kind))
        return false;
    }
    log_warning("lease: lease=%s waits for %s: %s", granted->terms->id, what, error->message);
    device_wait(granted->thread, backoff_next_ms(&granted->backoff, response.retry_after_s));
  }

  return error_set(error, "the lease ended before %s was downloaded", what);
}

static bool blob_read(void *context, const struct source *source, char **ret_bytes,
                      size_t *ret_size, struct error *error) {
  char digest[DIGEST_TEXT_SIZE];
  cleanup_free char *path = xasprintf("/v1/blobs/%s", digest_format(&source->digest, digest));
  cleanup_free char *what = xasprintf("the kernel's file %s", source->path);
  return bytes_get(context, path, what, ret_bytes, ret_size, error);
}

/* Gets the objects of a lease whose kernel was built ahead. The build is cached for the next lease
 * of the same job. */
static bool lease_objects_get(struct granted *granted, struct lease *lease, struct error *error) {
  struct device_thread *thread = granted->thread;
  char kernel[DIGEST_TEXT_SIZE], build[DIGEST_TEXT_SIZE];
  cleanup_free char *bytes = NULL;
  size_t size;
  if (!thread->build || !digest_equal(&thread->build_digest, &lease->build)) {
    cleanup_free char *path =
        xasprintf("/v1/kernels/%s/builds/%s", digest_format(&lease->kernel->hash, kernel),
                  digest_format(&lease->build, build));
    json_t *json;
    if (!bytes_get(granted, path, "the kernel's build", &bytes, &size, error) ||
        !json_parse(bytes, size, &json, error))
      return false;
    json_decref(thread->build);
    thread->build = json;
    thread->build_digest = json_digest(json);
    if (!digest_equal(&thread->build_digest, &lease->build))
      return error_set(error, "the server sent another build in answer to GET %s", path);
  }

  size_t n = (size_t)config_ranges_count(&lease->configs);
  cleanup_free uint64_t *configs = xcalloc(n + 1, sizeof *configs);
  struct build_request request = {
      .kernel = lease->kernel,
      .key = &lease->key,
      .space = lease->space,
      .gpu_name = thread->executor.gpu_name,
      .arch = thread->executor.arch,
      .configs = configs,
  };

  for (size_t i = 0; i < lease->configs.n; i++)
    for (uint64_t k = 0; k < lease->configs.ranges[i].count; k++)
      configs[request.n++] = lease->configs.ranges[i].first + k;
  configs[request.n++] = lease->baseline;
  cleanup_free char *folder = xasprintf("%s/objects", thread->agent->state);
  struct source_reader reader = {blob_read, granted};

  return build_objects_prepare(folder, thread->build, &request, &reader, &lease->objects, error);
}

/* A lease of a captured kernel without the reference, which its hash does not cover, so that nobody
 * signed it: configs are compared with the default instead. A new reference. */
static json_t *lease_of_signed_members(const json_t *json) {
  cleanup_json json_t *manifest = json_copy(json_object_get(json, "manifest"));
  json_t *lease = json_copy((json_t *)json);
  if (json_object_get(manifest, "cases")) {
    json_object_del(manifest, "reference");
    json_object_set(lease, "manifest", manifest);
  }
  return lease;
}

/* Workers start while the sources are fetched and compiled. With four workers to each device the
 * first job was screened after 4.2 s on a host of four H200s, and after 1.6 s with one of them. So
 * each of several devices starts fewer: finals can run on any of the devices. */
static void workers_start(struct device_thread *thread) {
  size_t devices = thread->agent->n_threads;
  if (thread->executor.is_gpu)
    executor_start_workers(&thread->executor, (EXECUTOR_WORKERS + devices - 1) / devices);
}

/* Whether keys that this agent trusts signed what the lease compiles and loads. The server is not
 * trusted: the hash was computed here from the manifest that came with the lease, and names every
 * source and the reference by its digest (but for lease_of_signed_members); the build's digest is
 * compared with its bytes before they are read. So this is checked before anything else is fetched.
 */
static bool lease_is_signed(const json_t *json, const struct trusted_keys *keys,
                            struct lease *lease, struct error *error) {
  struct signed_code kernel = {.kernel = lease->kernel->hash};
  struct signed_code build = {
      .kernel = lease->kernel->hash, .is_build = true, .build = lease->build};
  struct code_signature by;
  int64_t now_s = time(NULL);
  if (!code_signature_find(&kernel, json_object_get(json, "signatures"), keys, now_s, &by, error))
    return false;

  lease->kernel_key = by.key;
  if (lease->has_build) {
    if (!code_signature_find(&build, json_object_get(json, "build_signatures"), keys, now_s, &by,
                             error))
      return false;
    lease->build_key = by.key;
  }

  lease->is_signed = true;
  return true;
}

static bool lease_prepare(struct granted *granted, const json_t *json, struct lease *ret,
                          struct error *error) {
  struct device_thread *thread = granted->thread;
  const struct trusted_keys *trusted = &thread->agent->trusted;
  struct source_reader reader = {blob_read, granted};
  cleanup_free char *root = xasprintf("%s/kernels", thread->agent->state);
  int64_t began_ms = clock_monotonic_ms();
  cleanup_json json_t *read =
      trusted->n ? lease_of_signed_members(json) : json_incref((json_t *)json);
  bool ok = lease_read(read, thread->executor.is_gpu, ret, error);
  granted->is_unreadable = !ok;
  if (ok && trusted->n)
    ok = (lease_is_signed(json, trusted, ret, error) || error_become(error, ERROR_UNTRUSTED)) &&
         kernel_space_is_plain(ret->kernel, ret->space, error);
  if (ok) /* not before: a lease that cannot be read, or is not signed, needs no worker */
    workers_start(thread);
  ok = ok && sources_prepare(root, ret->kernel, &reader, &ret->sources, error) &&
       (!ret->has_build || lease_objects_get(granted, ret, error));
  thread->preparing_ms += clock_monotonic_ms() - began_ms;
  return ok;
}

static enum lease_end lease_work(struct granted *granted, const json_t *json, struct error *error) {
  __attribute__((cleanup(lease_release))) struct lease lease = {0};
  struct executor *executor = &granted->thread->executor;
  struct lease_hooks hooks = {.context = granted,
                              .measured = granted_measured,
                              .stopped = granted_stopped,
                              .is_ours = granted_is_ours};

  if (!lease_prepare(granted, json, &lease, error))
    return LEASE_FAILED;

  log_info("lease: began lease=%s epoch=%lld job=%s kernel=%s stage=%s configs=%llu device=%s",
           lease.id, (long long)lease.epoch, lease.job, lease.kernel->name, stage_name(lease.stage),
           (unsigned long long)config_ranges_count(&lease.configs), executor->device);
  return lease_execute(executor, &lease, &hooks, error);
}

/* Spools how the lease ended, so that the server is informed after its last measurement. */
static bool end_append(struct granted *granted, enum lease_end end, const struct error *error) {
  if (end == LEASE_DONE) {
    cleanup_json json_t *done = record_make(granted, "done", json_true(), NULL);
    return record_spool(granted, done);
  }

  enum lease_cause cause = LEASE_CAUSE_EXPIRED;
  const char *reason = "the agent could not renew it in time";
  cleanup_free char *who = device_yield_reason(granted->thread);
  if (end == LEASE_FAILED) {
    cause = granted->is_unreadable                 ? LEASE_CAUSE_UNREADABLE
            : error->kind == ERROR_UNTRUSTED       ? LEASE_CAUSE_UNSIGNED
            : granted->thread->executor.is_suspect ? LEASE_CAUSE_DEVICE
                                                   : LEASE_CAUSE_FAILED;
    reason = error->message;
  } else if (end == LEASE_SPENT) {
    cause = LEASE_CAUSE_SPENT;
    reason = "its device time is spent";
  } else if (agent_is_stopping(granted->thread->agent)) {
    cause = LEASE_CAUSE_STOPPED;
    reason = "the agent ends";
  } else if (device_is_yielded(granted->thread)) {
    cause = LEASE_CAUSE_YIELDED;
    reason = who;
  } else if (granted->has_failed) {
    cause = LEASE_CAUSE_UNSTORED;
    reason = "the agent could not store a measurement";
  }

  cleanup_json json_t *record = record_make(granted, "release", text_to_json(reason), NULL);
  json_put(record, "cause", json_string(lease_cause_names[cause]));
  return record_spool(granted, record);
}

/* Executes a lease. False: it could not be executed here, or its end not be spooled.
 * *ret_n_measured: configs, in either case. */
static bool lease_granted(struct device_thread *thread, const json_t *json, int64_t requested_ms,
                          size_t *ret_n_measured) {
  struct agent *agent = thread->agent;
  struct lease_terms terms;
  struct error error;
  *ret_n_measured = 0;
  if (!lease_terms_read(json, &terms, &error)) {
    log_error("lease: the server granted an invalid lease: %s", error.message);
    return false;
  }

  struct granted granted = {
      .thread = thread, .terms = &terms, .backoff = backoff_new(BACKOFF_LEAST_MS, BACKOFF_MOST_MS)};
  held_add(agent->held, &(struct held_grant){.lease = terms.id,
                                             .epoch = terms.epoch,
                                             .requested_ms = requested_ms,
                                             .expires_in_ms = terms.expires_in_ms,
                                             .renew_every_ms = terms.renew_every_ms,
                                             .current = &thread->executor.current});
  agent_signal(agent, &agent->must_renew);
  thread->executor.opening_us = 0; /* this lease may end before it is executed */
  enum lease_end end = lease_work(&granted, json, &error);

  /* What failed since another process came may have failed because of it. */
  size_t n_dropped = pending_settle(&granted);
  bool is_whole = (end == LEASE_DONE || end == LEASE_SPENT) && !n_dropped && !granted.has_failed;
  if (!is_whole && (device_is_yielded(thread) || n_dropped || granted.has_failed)) {
    end = LEASE_STOPPED;
    thread->executor.is_suspect = thread->executor.is_suspect && !device_is_yielded(thread);
  }
  if (n_dropped)
    log_info("lease: lease=%s epoch=%lld: %zu measurements are thrown away: since the last look "
             "that found %s free",
             terms.id, (long long)terms.epoch, n_dropped, thread->executor.device);
  granted.n_measured -= n_dropped;

  if (end == LEASE_FAILED)
    log_error("lease: failed lease=%s epoch=%lld: %s", terms.id, (long long)terms.epoch,
              error.message);
  else
    log_info("lease: %s lease=%s epoch=%lld measured=%zu",
             end == LEASE_DONE    ? "done"
             : end == LEASE_SPENT ? "spent"
                                  : "stopped",
             terms.id, (long long)terms.epoch, granted.n_measured);
  *ret_n_measured = granted.n_measured;
  bool is_spooled = end_append(&granted, end, &error);
  held_end(agent->held, terms.id, terms.epoch);
  if (!is_spooled)
    held_drop(agent->held, terms.id, terms.epoch); /* it expires */
  agent_signal(agent, &agent->must_post);

  return is_spooled && end != LEASE_FAILED;
}

static void leases_count(struct agent *agent, int change) {
  pthread_mutex_lock(&agent->mutex);
  agent->n_leases += (size_t)change;
  agent->worked_ms = clock_monotonic_ms();
  pthread_mutex_unlock(&agent->mutex);
}

/* Ends an agent after --idle-exit without work. */
static void idle_end(struct agent *agent) {
  int64_t exit_s = option_integer(agent->options, "idle-exit"), now_ms = clock_monotonic_ms();
  pthread_mutex_lock(&agent->mutex);
  bool is_idle = agent->n_leases == 0 && exit_s && now_ms - agent->worked_ms >= exit_s * 1000;
  pthread_mutex_unlock(&agent->mutex);
  if (!is_idle || !spool_is_empty(agent->spool))
    return;
  log_info("agent: no work for %lld s; it ends", (long long)exit_s);
  agent_stop(agent);
}

static bool device_stopped(void *context) {
  struct device_thread *thread = context;
  return agent_is_stopping(thread->agent) || device_is_yielded(thread);
}

/* Gives the device back until others have left it for long enough. */
static void device_yield(struct device_thread *thread) {
  executor_kill_workers(&thread->executor);
  while (!agent_is_stopping(thread->agent) && !device_settle(thread)) {
    idle_end(thread->agent);
    agent_wait(thread->agent, YIELD_LOOK_MS, NULL);
  }
  http_client_resume(thread->client);
}

/* Waits until the device passes its sentinel in a fresh worker; no lease is requested meanwhile. */
static void device_quarantine(struct device_thread *thread) {
  struct agent *agent = thread->agent;
  struct backoff backoff = backoff_new(QUARANTINE_LEAST_MS, QUARANTINE_MOST_MS);
  struct error error;

  for (int tries = 1; !device_stopped(thread); tries++) {
    if (executor_sentinel(&thread->executor, device_stopped, thread, &error)) {
      log_info("device: %s passed its sentinel at try %d; it works again", thread->executor.device,
               tries);
      thread->executor.is_suspect = false;
      return;
    }
    if (device_stopped(thread))
      return;
    log_error("device: %s is in quarantine after try %d: %s", thread->executor.device, tries,
              error.message);
    idle_end(agent);
    device_wait(thread, backoff_next_ms(&backoff, 0));
  }
}

struct requesting {
  char nonce[33]; /* sent again if an answer may be lost: the server then grants the same lease */
  struct backoff backoff, failed, empty;
};

/* Requests a lease, and executes it. */
static void device_step(struct device_thread *thread, struct requesting *requesting) {
  struct agent *agent = thread->agent;
  cleanup_free char *id = agent_id(agent);
  int64_t began_ms = clock_monotonic_ms(), requested_ms = held_clock_ms();
  int64_t idle_s = option_integer(agent->options, "idle-exit");
  int64_t wait_s = idle_s && idle_s < LEASE_WAIT_S ? idle_s : LEASE_WAIT_S;
  cleanup_json json_t *body =
      json_pack("{s:s, s:s, s:s, s:I}", "agent", id, "device", thread->executor.device, "nonce",
                requesting->nonce, "wait", (json_int_t)wait_s);
  cleanup_server_answer struct server_answer answer =
      server_ask(thread->client, "POST", "/v1/leases", body, wait_s * 1000 + LEASE_ANSWER_MS);

  if (!answer.is_ok) {
    if (device_stopped(thread))
      return;
    log_warning("lease: %s gets no lease: %s", thread->executor.device, answer.error.message);
    if (answer_is(&answer, ERROR_MISSING)) {
      agent_signal(agent, &agent->must_enrol);
      agent_signal(agent, &agent->must_renew);
    }
    if (!answer_is_for_later(&answer))
      random_hex(requesting->nonce, 16);
    device_wait(thread, backoff_next_ms(&requesting->backoff, answer.retry_after_s));
    return;
  }

  backoff_reset(&requesting->backoff);
  random_hex(requesting->nonce, 16);
  if (!answer.json) { /* there is no work */
    executor_drop_workers(&thread->executor);
    idle_end(agent);
    int64_t left_ms = IDLE_LEAST_MS - (clock_monotonic_ms() - began_ms);
    if (left_ms > 0)
      device_wait(thread, left_ms);
    return;
  }

  thread->n_leases++;
  thread->asking_ms += clock_monotonic_ms() - began_ms;
  leases_count(agent, 1);
  size_t n_measured;
  bool ok = lease_granted(thread, answer.json, requested_ms, &n_measured);
  leases_count(agent, -1);

  if (ok)
    backoff_reset(&requesting->failed);
  if (n_measured)
    backoff_reset(&requesting->empty);
  if (device_is_yielded(thread))
    return;
  if (ok && !n_measured)
    device_wait(thread, backoff_next_ms(&requesting->empty, 0));
  else if (!ok && !thread->executor.is_suspect)
    device_wait(thread, backoff_next_ms(&requesting->failed, 0));
}

/* Logs how long the thread did what. */
static void times_log(const struct device_thread *thread, int64_t began_ms) {
  cleanup_json json_t *spent = executor_spent_to_json(&thread->executor.spent);
  cleanup_free char *text = NULL;
  size_t size;
  const char *name;
  json_t *seconds;
  FILE *out = open_memstream(&text, &size);
  ALWAYS(out != NULL);

  json_object_foreach (spent, name, seconds)
    fprintf(out, " %s=%.2f", name, json_real_value(seconds));
  ALWAYS(fclose(out) == 0);
  log_info("device: %s ends after %.2f s and %lld leases; seconds that it spent: asking=%.2f "
           "preparing=%.2f%s",
           thread->executor.device, (double)(clock_monotonic_ms() - began_ms) / 1000,
           (long long)thread->n_leases, (double)thread->asking_ms / 1000,
           (double)thread->preparing_ms / 1000, text);
}

void *device_thread_run(void *context) {
  struct device_thread *thread = context;
  struct agent *agent = thread->agent;
  MAGIC_CHECK(agent, AGENT_MAGIC);
  struct requesting requesting = {
      .backoff = backoff_new(BACKOFF_LEAST_MS, BACKOFF_MOST_MS),
      .failed = backoff_new(FAILED_LEAST_MS, FAILED_MOST_MS),
      .empty = backoff_new(EMPTY_LEAST_MS, EMPTY_MOST_MS),
  };
  int64_t began_ms = clock_monotonic_ms();
  random_hex(requesting.nonce, 16);

  while (!agent_is_stopping(agent)) {
    if (device_is_yielded(thread))
      device_yield(thread);
    else if (thread->executor.is_suspect)
      device_quarantine(thread);
    else
      device_step(thread, &requesting);
  }

  executor_drop_workers(&thread->executor);
  times_log(thread, began_ms);
  json_decref(thread->build);
  pthread_mutex_lock(&agent->mutex);
  agent->is_measured = --agent->n_measuring == 0;
  pthread_mutex_unlock(&agent->mutex);
  spool_wake(agent->spool);
  agent_signal(agent, &agent->must_post);

  return NULL;
}
