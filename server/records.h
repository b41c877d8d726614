/* The list of the server's records, and the OpenAPI document that has their schemas
 * (http/openapi.c).
 *
 * Threads: any. */
#ifndef WAVETUNE_SERVER_RECORDS_H
#define WAVETUNE_SERVER_RECORDS_H

#include "common/record/record.h"

/* RECORD_OF(variable, tables): the tables that have the record's columns, separated by spaces; ""
 * when a column is in no table. tests/system/test_records.py compares them with the database. */
/* clang-format off */
#define SERVER_RECORDS(RECORD_OF) \
  RECORD_OF(audit_entry_record, "audit") \
  RECORD_OF(environment_item_record, "") \
  RECORD_OF(agent_record, "") \
  RECORD_OF(baseline_item_record, "") \
  RECORD_OF(enrolment_record, "") \
  RECORD_OF(agent_answer_record, "") \
  RECORD_OF(agent_token_answer_record, "") \
  RECORD_OF(heartbeat_request_record, "") \
  RECORD_OF(heartbeat_answer_record, "") \
  RECORD_OF(drain_request_record, "") \
  RECORD_OF(token_request_record, "") \
  RECORD_OF(token_answer_record, "") \
  RECORD_OF(token_record, "tokens") \
  RECORD_OF(own_token_record, "tokens") \
  RECORD_OF(channel_signature_record, "") \
  RECORD_OF(channel_entry_record, "") \
  RECORD_OF(channel_move_record, "") \
  RECORD_OF(channel_signing_record, "") \
  RECORD_OF(override_request_record, "") \
  RECORD_OF(override_item_record, "") \
  RECORD_OF(release_request_record, "") \
  RECORD_OF(release_item_record, "") \
  RECORD_OF(release_answer_record, "") \
  RECORD_OF(listed_release_record, "releases") \
  RECORD_OF(listed_fetch_record, "release_fetchers") \
  RECORD_OF(job_request_record, "") \
  RECORD_OF(job_answer_record, "") \
  RECORD_OF(job_selection_record, "") \
  RECORD_OF(job_budget_record, "") \
  RECORD_OF(job_search_record, "jobs") \
  RECORD_OF(job_finals_record, "jobs") \
  RECORD_OF(job_item_record, "") \
  RECORD_OF(job_record, "") \
  RECORD_OF(job_winner_item_record, "") \
  RECORD_OF(job_winner_record, "") \
  RECORD_OF(job_event_record, "job_events") \
  RECORD_OF(space_json_record, "") \
  RECORD_OF(manifest_record, "") \
  RECORD_OF(external_manifest_record, "") \
  RECORD_OF(kernel_record, "") \
  RECORD_OF(kernel_item_record, "") \
  RECORD_OF(build_item_record, "") \
  RECORD_OF(code_signatures_record, "") \
  RECORD_OF(code_signature_request_record, "") \
  RECORD_OF(blob_answer_record, "") \
  RECORD_OF(gc_request_record, "") \
  RECORD_OF(gc_answer_record, "") \
  RECORD_OF(import_post_record, "") \
  RECORD_OF(import_entry_record, "") \
  RECORD_OF(import_answer_record, "") \
  RECORD_OF(import_item_record, "") \
  RECORD_OF(demand_report_record, "") \
  RECORD_OF(demand_answer_record, "") \
  RECORD_OF(demand_item_record, "") \
  RECORD_OF(demand_missed_record, "") \
  RECORD_OF(demand_queue_request_record, "") \
  RECORD_OF(demand_queued_record, "") \
  RECORD_OF(choices_request_record, "") \
  RECORD_OF(choices_signing_record, "") \
  RECORD_OF(counters_report_record, "") \
  RECORD_OF(captured_function_record, "") \
  RECORD_OF(captured_launch_record, "") \
  RECORD_OF(capture_report_record, "") \
  RECORD_OF(capture_item_record, "") \
  RECORD_OF(capture_launch_record, "") \
  RECORD_OF(capture_lease_request_record, "") \
  RECORD_OF(capture_results_record, "") \
  RECORD_OF(capture_tune_record, "") \
  RECORD_OF(tunable_record, "") \
  RECORD_OF(policy_record, "policy_states") \
  RECORD_OF(suggestion_record, "") \
  RECORD_OF(decision_record, "") \
  RECORD_OF(policy_run_record, "") \
  RECORD_OF(proposal_record, "") \
  RECORD_OF(proposal_reject_record, "") \
  RECORD_OF(poison_entry_record, "") \
  RECORD_OF(poison_release_record, "") \
  RECORD_OF(share_record, "") \
  RECORD_OF(compatibility_request_record, "") \
  RECORD_OF(compatibility_item_record, "compatibilities") \
  RECORD_OF(cache_match_record, "") \
  RECORD_OF(fleet_record, "") \
  RECORD_OF(fleet_node_record, "") \
  RECORD_OF(fleet_device_record, "") \
  RECORD_OF(campaign_record, "") \
  RECORD_OF(cost_item_record, "") \
  RECORD_OF(lease_wish_record, "") \
  RECORD_OF(lease_grant_record, "") \
  RECORD_OF(renewal_record, "") \
  RECORD_OF(renewed_record, "") \
  RECORD_OF(handback_record, "") \
  RECORD_OF(measurement_record, "measurements") \
  RECORD_OF(stored_measurement_record, "measurements measurement_objects") \
  RECORD_OF(results_record, "")
/* clang-format on */

#define X(variable, table) extern const struct record variable;
SERVER_RECORDS(X)
#undef X

struct server_record {
  const struct record *record;
  const char *table;
};
extern const struct server_record server_records[]; /* the last record is NULL */

/* The OpenAPI 3.1 document, made from ROUTES, the records and openapi.json; a new reference. */
must_check json_t *openapi_document(void);
must_check char *openapi_text(void); /* the caller's */
/* What openapi.json says of each operation, by the names of routes. */
must_check json_t *openapi_operations(void);

/* References to the named schemas of openapi.json. */
#define SCHEMA_BY SCHEMA("By")
#define SCHEMA_BY_ID SCHEMA("ById")
#define SCHEMA_ENVIRONMENT SCHEMA("Environment")
#define SCHEMA_ROLE SCHEMA("Role")
#define SCHEMA_DIGESTS                                                                             \
  "{\"type\": \"array\", \"items\": {\"$ref\": \"#/components/schemas/Digest\"}}"
#define SCHEMA_RANGES SCHEMA("Ranges")

#endif
