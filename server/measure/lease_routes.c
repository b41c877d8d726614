/* Answering grants of leases of configs, renewing them and taking them back.
 *
 * Memory: a handler frees what it makes when it returns. Threads: database workers. */
#include <math.h>

#include "common/base/log.h"
#include "common/campaign/campaign.h"
#include "common/measurement/measurement.h"
#include "common/node/environment.h"
#include "common/task/task_cause.h"
#include "server/counters.h"
#include "server/db/db_record.h"
#include "server/http/request.h"
#include "server/job/jobs.h"
#include "server/lease/identity.h"
#include "server/lease/lease_kind.h"
#include "server/lease/shares.h"
#include "server/measure/grants.h"
#include "server/measure/lease_losses.sql.h"
#include "server/measurement/lease_plan.h"
#include "server/measurement/leases.h"
#include "server/records.h"

#define RENEWALS_PER_LEASE 3

/* Sets what the lease may spend: its share, by its number of configs, of what its stage has left of
 * the job's budget. The time for opening the kernel is bounded by the rest of the whole stage,
 * because a device opens it once for many leases; in a final, each process opens it and pays for it
 * from its own share. */
static void bounds_set(struct measure_granted *granted) {
  struct lease_grant *grant = &granted->grant;
  grant->device_us = grant->budget_us = FIELD_NONE;
  if (granted->budget.total_us == 0)
    return;

  int64_t left_us =
      grant->stage == STAGE_FINAL
          ? budget_process_us(&granted->budget, 1)
          : budget_screen_left_us(&granted->budget, final_processes(granted->final_devices));
  double share = (double)config_ranges_count(&grant->configs) /
                 (double)(granted->configs_left ? granted->configs_left : 1);
  int64_t device_us = (int64_t)((double)left_us * (share < 1 ? share : 1));
  int64_t budget_us = grant->stage == STAGE_FINAL ? device_us : left_us;
  grant->device_us = device_us > 0 ? device_us : 1;
  grant->budget_us = budget_us > 0 ? budget_us : 1;
}

void measure_grant_answer(struct worker *worker, struct request *request, void *context) {
  struct measure_granted *granted = context;
  struct lease_grant *grant = &granted->grant;
  char id[LEASE_ID_SIZE];
  lease_id_format(server_lease_secret(worker->server), "", granted->to.lease, grant->task.epoch,
                  request->token_agent, id);
  free(grant->task.lease);
  grant->task.lease = xstrdup(id);
  free(grant->task.kind);
  grant->task.kind = xstrdup(task_kind_name(TASK_MEASURE));

  grant->likely = json_array();
  for (size_t i = 0; i < granted->n_warm_starts && grant->stage != STAGE_FINAL; i++)
    if (config_ranges_contain(&grant->configs, granted->warm_starts[i]))
      json_push(grant->likely, json_integer((json_int_t)granted->warm_starts[i]));
  bounds_set(granted);

  /* The holder of a lease that may be split renews it often, to learn which configs remain. */
  grant->task.renew_every_ms = server_options(worker->server)->lease_ms / RENEWALS_PER_LEASE;
  if (granted->may_be_split && grant->task.renew_every_ms > RENEW_SPLITTABLE_MS)
    grant->task.renew_every_ms = RENEW_SPLITTABLE_MS;
  const struct json_text large[] = {{"manifest", granted->manifest}, {"space", granted->space}};
  request_answer_json_with(request, 200, record_write(&lease_grant_record, grant), large,
                           ARRAY_LENGTH(large));
}

struct renewal {
  int64_t epoch, config;
};
static const struct field renewal_fields[] = {
    RECORD_FIELD(INTEGER, struct renewal, epoch, FIELD_REQUIRED, .least = 1, .most = INT64_MAX),
    RECORD_FIELD(INTEGER, struct renewal, config, .least = 0, .most = INT64_MAX - 1,
                 .about = "that is being measured"),
};
const struct record renewal_record = RECORD("RenewRequest", struct renewal, renewal_fields);

/* `configs`: the remaining ones, set only for a lease that was split. */
struct renewed {
  int64_t expires_in_ms;
  json_t *configs;
};
static const struct field renewed_fields[] = {
    RECORD_FIELD(INTEGER, struct renewed, expires_in_ms, FIELD_ANSWER),
    RECORD_FIELD(JSON, struct renewed, configs, FIELD_ANSWER | FIELD_OMITTED,
                 .schema = SCHEMA_RANGES),
};
const struct record renewed_record = RECORD("RenewAnswer", struct renewed, renewed_fields);

void measure_renew(struct worker *worker, struct request *request, int64_t lease) {
  struct renewal renewal;
  struct renewed renewed = {.expires_in_ms = server_options(worker->server)->lease_ms};
  struct error error;
  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters progress = {0};
  record_init(&renewal_record, &renewal);
  bool ok = record_read(&renewal_record, request->json, "", &renewal, &error);
  const struct lease_hold hold = {lease, renewal.epoch};
  bind_integers(&progress, "config", &renewal.config, 1);
  if (!ok || !lease_renew(worker->db, &measure_kind, &hold, 1, renewed.expires_in_ms, &progress,
                          &rows, &error)) {
    answer_failure(request, &error);
    return;
  }

  if (db_count(rows) == 0) {
    lease_answer_gone(worker, request, lease);
    return;
  }

  counter_add(COUNTER_leases_renewed, 1);
  if (!db_is_null(rows, 0, "remaining")) {
    cleanup_config_ranges struct config_ranges remaining =
        multirange_parse(db_get(rows, 0, "remaining"));
    renewed.configs = config_ranges_to_json(&remaining);
  }

  request_answer_json(request, 200, record_write(&renewed_record, &renewed));
  json_decref(renewed.configs);
}

struct handback {
  int64_t epoch, opening_us;
  enum task_cause cause;
  char *reason;
};
static const struct field handback_fields[] = {
    RECORD_FIELD(INTEGER, struct handback, epoch, FIELD_REQUIRED, .least = 1, .most = INT64_MAX),
    RECORD_FIELD(ENUM, struct handback, cause, .names = task_cause_names),
    RECORD_FIELD(TEXT, struct handback, reason, .about = "for people"),
    RECORD_FIELD(INTEGER, struct handback, opening_us, FIELD_NOT_NULL, .least = 0,
                 .most = OPENING_US_MAX,
                 .about = "what opening the kernel took of the device in this epoch"),
};
const struct record handback_record = RECORD("HandBackRequest", struct handback, handback_fields);

/* Opens the lease again or, when it has spent its share of the job's budget, cancels it and adds
 * the event. Adds the time that opening the kernel took. The grant does not count as fruitless when
 * the agent trusts no key that signed the code, or gave its device back; any other reason is kept.
 * Grants to agents that cannot read the lease count as one: a newer agent may read it.
 * A device that failed is a loss of the config that it measured. *ret_state: LEASE_STATE_COUNT when
 * the lease was not held at this epoch. */
static bool lease_hand_back(struct db *db, int64_t id, const struct handback *handback,
                            struct lease *lease, bool *ret_known, enum lease_state *ret_state,
                            struct error *error) {
  enum task_cause cause = handback->cause;
  bool is_innocent = cause == TASK_CAUSE_UNSIGNED || cause == TASK_CAUSE_YIELDED;
  *ret_state = LEASE_STATE_COUNT;

  if (!lease_lock(db, id, lease, ret_known, error))
    return false;
  if (!*ret_known || lease->state != LEASE_HELD || lease->epoch != handback->epoch)
    return true;

  bool is_over = cause == TASK_CAUSE_SPENT && lease->has_budget && lease->stage != STAGE_FINAL;
  int64_t more_us = handback->opening_us - lease->epoch_opening_us; /* 0 for a repeated request */
  bool is_uncounted = is_innocent || (cause == TASK_CAUSE_UNREADABLE && lease->fruitless > 1);
  struct measure_change change = {.lease = lease->id,
                                  .from = LEASE_HELD,
                                  .to = is_over ? LEASE_CANCELLED : LEASE_OPEN,
                                  .fruitless_less = is_uncounted,
                                  .opening_us = more_us > 0 ? more_us : 0};
  lease->fruitless -= is_uncounted && lease->fruitless > 0;

  bool has_reason =
      handback->reason && handback->reason[0] && cause != TASK_CAUSE_SPENT && !is_innocent;
  *ret_state = change.to;
  return (cause != TASK_CAUSE_DEVICE ||
          db_execute(db, &sql_lease_note_failed_device, error, BIND("lease", lease->id))) &&
         (!has_reason || db_execute(db, &sql_lease_note_handed_back, error,
                                    BIND("lease", lease->id), BIND("reason", handback->reason))) &&
         measure_change_state(db, &change, 1, error) &&
         (!is_over || lease_note_cancelled(db, lease->job, 1, error));
}

/* After the commit. Opening the kernel may have spent the rest of the job's budget. */
static void handback_settle(struct worker *worker, const struct lease *lease,
                            enum lease_state state) {
  bool is_spent = false;
  struct error error;
  if (lease->has_budget && !lease_settle_budget(worker, lease->job, &is_spent, &error))
    log_warning("lease: after a hand-back: %s", error.message);
  if (is_spent)
    jobs_advance(worker, &lease->job, 1);

  if (state == LEASE_OPEN) {
    lease_settle_open(worker, lease->id, lease->job, lease->fruitless, &lease->hardware_digest);
    return;
  }
  jobs_advance(worker, &lease->job, 1);
  job_announce(worker, lease->job);
}

void measure_hand_back(struct worker *worker, struct request *request, int64_t id) {
  struct handback handback;
  cleanup_lease struct lease lease = {0};
  struct error error;
  record_init(&handback_record, &handback);
  handback.opening_us = 0;
  if (!record_read(&handback_record, request->json, "", &handback, &error)) {
    record_release(&handback_record, &handback);
    answer_failure(request, &error);
    return;
  }

  if ((int)handback.cause < 0)
    handback.cause = task_cause_of_reason(handback.reason);
  const char *cause = task_cause_names[handback.cause];
  log_info("lease: handed back lease=%lld epoch=%lld cause=%s reason=%.200s", (long long)id,
           (long long)handback.epoch, cause ? cause : "unknown",
           handback.reason ? handback.reason : "none given");

  bool is_known = false;
  enum lease_state state = LEASE_STATE_COUNT;
  bool ok =
      db_begin(worker->db, &error) &&
      db_end(worker->db,
             lease_hand_back(worker->db, id, &handback, &lease, &is_known, &state, &error), &error);
  int64_t opening_us = handback.opening_us - lease.epoch_opening_us;
  record_release(&handback_record, &handback);

  if (!ok) {
    answer_failure(request, &error);
  } else if (!is_known) {
    lease_answer_unknown(request, id);
  } else if (state == LEASE_STATE_COUNT) {
    lease_answer_stale(worker, request, id, "");
  } else {
    shares_charge(worker->db, lease.owner_id, opening_us, 1);
    handback_settle(worker, &lease, state);
    request_answer_json(request, 200, json_pack("{s:s}", "state", lease_state_name(state)));
  }
}
