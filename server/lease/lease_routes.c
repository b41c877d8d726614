/* The routes of leases, for the kinds of tasks that agents run.
 *
 * Memory: a handler frees what it makes when it returns. Threads: database workers. */
#include "common/base/log.h"
#include "server/db/db_record.h"
#include "server/lease/identity.h"
#include "server/lease/lease.sql.h"
#include "server/lease/lease_grant.h"
#include "server/lease/lease_wake.h"

static void no_lease_answer(struct worker *worker, struct request *request,
                            const struct lease_wish *wish) {
  int64_t deadline_ms =
      request->deadline_passed ? 0 : request->arrived_ms + (int64_t)(wish->wait_s * 1000);
  char key[PARK_KEY_SIZE];

  if (!wish->agent_known)
    answer_refusal(request, ERROR_MISSING, "/agent",
                   "agent \"%.40s\" is not enrolled; enrol it with POST /v1/agents", wish->agent);
  else if (!wish->device_known)
    answer_refusal(request, ERROR_MISSING, "/device",
                   "agent \"%.40s\" has no device \"%.40s\"; enrol it with its devices",
                   wish->agent, wish->device);
  else if (wish->drain_reason && wish->only_device_drains)
    answer_refusal(
        request, ERROR_FORBIDDEN, "/device",
        "device \"%.40s\" is drained and gets no leases until an admin resumes it: %.300s",
        wish->device, wish->drain_reason);
  else if (wish->drain_reason)
    answer_refusal(request, ERROR_FORBIDDEN, "/agent",
                   "agent \"%.40s\" is drained and gets no leases: %.300s", wish->agent,
                   wish->drain_reason);
  else if (clock_monotonic_ms() >= deadline_ms)
    request_answer_empty(request, 204);
  else
    request_park(worker, request, lease_park_key(&wish->hardware_digest, wish->is_selective, key),
                 wish->is_hardware_idle, deadline_ms);
}

/* Tries the kinds in the order of their table. */
void route_lease_post(struct worker *worker, struct request *request) {
  struct lease_wish wish;
  struct error error;
  record_init(&lease_wish_record, &wish);
  if (!identity_may_act(worker, request))
    return;

  wish.wait_s = 0;
  wish.token = request->token_id;
  bool is_answered = true;
  if (!record_read(&lease_wish_record, request->json, "", &wish, &error))
    answer_failure(request, &error);
  else if (request->is_parked_before && !request_client_is_there(request))
    request_answer_empty(request, 204); /* a lease that is granted now would be lost */
  else
    is_answered = false;

  for (size_t i = 0; !is_answered && lease_kinds[i]; i++) {
    const struct lease_grants *how = lease_kinds[i]->grants;
    if (!how)
      continue;
    cleanup_free void *granted = xcalloc(1, how->size);
    is_answered = true;
    if (!lease_grant(worker, lease_kinds[i], &wish, granted, &error))
      answer_failure(request, &error);
    else if (((const struct lease_granted *)granted)->lease)
      how->answer(worker, request, granted);
    else
      is_answered = false;
    how->release(granted);
  }

  if (!is_answered)
    no_lease_answer(worker, request, &wish);
  record_release(&lease_wish_record, &wish);
}

void route_lease_renew(struct worker *worker, struct request *request) {
  if (identity_may_hold(worker, request))
    identity_kind(request)->grants->renew(worker, request, identity_lease(request));
}

void route_lease_release(struct worker *worker, struct request *request) {
  if (identity_may_hold(worker, request))
    identity_kind(request)->grants->hand_back(worker, request, identity_lease(request));
}

void route_lease_results(struct worker *worker, struct request *request) {
  if (identity_may_hold(worker, request))
    identity_kind(request)->grants->results(worker, request, identity_lease(request));
}

/* The holder gets the current epoch, others get null: older agents recognise a lost lease by that
 * member. */
void lease_answer_stale(struct worker *worker, struct request *request, int64_t lease,
                        const char *what) {
  struct error error;
  int64_t epoch = 0;
  log_set_request(request->id);
  if (!identities_held_epoch(worker->db, lease, request->token_agent, request->token_id, &epoch,
                             &error))
    log_warning("lease: cannot read the holder of lease=%lld: %s", (long long)lease, error.message);

  cleanup_free char *current = epoch ? xasprintf("; its epoch is %lld", (long long)epoch) : NULL;
  error_of(&error, ERROR_CONFLICT, "lease %lld is no longer yours at this epoch%s%s",
           (long long)lease, what, current ? current : "");
  answer_failure_extra(
      request, &error,
      json_pack("{s:o}", "epoch", epoch ? json_integer((json_int_t)epoch) : json_null()));
}

void lease_answer_unknown(struct request *request, int64_t lease) {
  answer_refusal(request, ERROR_MISSING, "", "there is no lease %lld", (long long)lease);
}

void lease_answer_gone(struct worker *worker, struct request *request, int64_t lease) {
  struct error error;
  cleanup_rows struct db_rows *rows =
      db_query(worker->db, &sql_lease_exists, &error, BIND("lease", lease));
  if (!rows)
    answer_failure(request, &error);
  else if (!db_count(rows))
    lease_answer_unknown(request, lease);
  else
    lease_answer_stale(worker, request, lease, "");
}
