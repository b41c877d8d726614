/* The table of routes: the router, roles, limits, /openapi.json, metrics and tests use it. A path
 * of words comes before one with a parameter that would fit it, too.
 *
 * ROUTE(id, method, path, roles that may call it, where it runs, body limit, summary)
 * The handler of a route is `bool route_<id>(struct worker *worker, struct request *request, struct
 * error *error)` for ROUTE_DATABASE, run on a database worker, and `void route_<id>(struct server
 * *server, struct request *request)` for ROUTE_EVENT_THREAD, where it may not block. A handler must
 * answer its request (request_answer… or request_park) or return false, after which *error is the
 * answer (answer_failure). Those with ROUTE_ANSWERING answer errors, too, and return nothing. */
#ifndef WAVETUNE_SERVER_HTTP_ROUTE_H
#define WAVETUNE_SERVER_HTTP_ROUTE_H

#include "common/base/base.h"

/* The roles of tokens, as bits. A token has one or several roles; agent, enrol and admin are not
 * combined with others. */
#define TOKEN_ROLES(ROLE)                                                                          \
  ROLE(READER, "reader")                                                                           \
  ROLE(DEMAND, "demand")                                                                           \
  ROLE(CACHE_WRITER, "cache-writer")                                                               \
  ROLE(SUBMITTER, "submitter")                                                                     \
  ROLE(BUILDER, "builder")                                                                         \
  ROLE(PUBLISHER, "publisher")                                                                     \
  ROLE(AGENT, "agent")                                                                             \
  ROLE(ENROL, "enrol")                                                                             \
  ROLE(OPERATOR, "operator")                                                                       \
  ROLE(ADMIN, "admin")

#define TOKEN_NAME_SIZE 201

enum token_role_bit {
#define X(id, name) TOKEN_##id##_BIT,
  TOKEN_ROLES(X)
#undef X
      TOKEN_ROLE_COUNT
};
enum token_role {
  TOKEN_ANYONE = 0, /* of a request: it has no token. Of a route: it needs none */
#define X(id, name) TOKEN_##id = 1 << TOKEN_##id##_BIT,
  TOKEN_ROLES(X)
#undef X
};

/* Sets of roles that may call a route; a token needs one of them. A token may also be bound to an
 * agent or, with the role publisher, to channels. */
#define MAY_READ                                                                                   \
  (TOKEN_READER | TOKEN_CACHE_WRITER | TOKEN_SUBMITTER | TOKEN_BUILDER | TOKEN_PUBLISHER |         \
   TOKEN_OPERATOR | TOKEN_ADMIN)
#define MAY_READ_CODE (MAY_READ | TOKEN_AGENT)
#define MAY_STORE (TOKEN_SUBMITTER | TOKEN_BUILDER | TOKEN_AGENT | TOKEN_ADMIN)
#define MAY_BUILD (TOKEN_SUBMITTER | TOKEN_BUILDER | TOKEN_ADMIN)
#define MAY_REGISTER (TOKEN_SUBMITTER | TOKEN_BUILDER | TOKEN_ADMIN)
#define MAY_SUBMIT (TOKEN_SUBMITTER | TOKEN_OPERATOR | TOKEN_ADMIN)
#define MAY_IMPORT (TOKEN_SUBMITTER | TOKEN_CACHE_WRITER | TOKEN_ADMIN)
#define MAY_RELEASE (TOKEN_SUBMITTER | TOKEN_PUBLISHER | TOKEN_ADMIN)
#define MAY_PUBLISH (TOKEN_PUBLISHER | TOKEN_ADMIN)
#define MAY_REPORT (TOKEN_DEMAND | TOKEN_ADMIN)
#define MAY_READ_CAPTURE (MAY_READ | TOKEN_DEMAND)
#define MAY_REMOVE_CAPTURE (TOKEN_DEMAND | TOKEN_OPERATOR | TOKEN_ADMIN)
#define MAY_BUILD_CAPTURES (TOKEN_BUILDER | TOKEN_ADMIN)
#define MAY_WORK (TOKEN_AGENT | TOKEN_ADMIN)
#define MAY_ENROL (TOKEN_AGENT | TOKEN_ENROL | TOKEN_ADMIN)
#define MAY_OPERATE (TOKEN_OPERATOR | TOKEN_ADMIN)
#define MAY_OVERRIDE (TOKEN_PUBLISHER | TOKEN_OPERATOR | TOKEN_ADMIN)
#define MAY_ASK_ITSELF ((1u << TOKEN_ROLE_COUNT) - 1) /* every token */

enum route_place { ROUTE_EVENT_THREAD, ROUTE_DATABASE, ROUTE_ANSWERING = ROUTE_DATABASE };

#define KIB 1024
#define MIB (1024 * 1024)

/* clang-format off */
#define ROUTES(ROUTE) \
  ROUTE(blob_put, "PUT", "/v1/blobs/{digest}", MAY_STORE, ROUTE_DATABASE, 64 * MIB, \
        "Store a content-addressed file") \
  ROUTE(blob_get, "GET", "/v1/blobs/{digest}", MAY_READ_CODE, ROUTE_DATABASE, 0, \
        "Read a file; HEAD, Range, ETag") \
  ROUTE(kernel_post, "POST", "/v1/kernels", MAY_REGISTER, ROUTE_DATABASE, 4 * MIB, \
        "Register a kernel manifest") \
  ROUTE(kernel_list, "GET", "/v1/kernels", MAY_READ_CODE, ROUTE_DATABASE, 0, "List kernels") \
  ROUTE(kernel_get, "GET", "/v1/kernels/{hash}", MAY_READ_CODE, ROUTE_DATABASE, 0, \
        "Read a manifest") \
  ROUTE(build_put, "PUT", "/v1/kernels/{hash}/builds/{digest}", \
        MAY_BUILD, ROUTE_DATABASE, 16 * MIB, \
        "Register compiled code") \
  ROUTE(build_get, "GET", "/v1/kernels/{hash}/builds/{digest}", MAY_READ_CODE, ROUTE_DATABASE, 0, \
        "Read a build's canonical bytes") \
  ROUTE(build_delete, "DELETE", "/v1/kernels/{hash}/builds/{digest}", \
        MAY_OPERATE, ROUTE_DATABASE, 0, \
        "Remove a build that no channel and no open job needs, for good") \
  ROUTE(build_list, "GET", "/v1/kernels/{hash}/builds", MAY_READ_CODE, ROUTE_DATABASE, 0, \
        "List a kernel's builds") \
  ROUTE(kernel_signature_post, "POST", "/v1/kernels/{hash}/signatures", \
        MAY_BUILD, ROUTE_DATABASE, 4 * KIB, "Add a signature to a kernel") \
  ROUTE(build_signature_post, "POST", "/v1/kernels/{hash}/builds/{digest}/signatures", \
        MAY_BUILD, ROUTE_DATABASE, 4 * KIB, "Add a signature to a build") \
  ROUTE(job_post, "POST", "/v1/jobs", MAY_SUBMIT, ROUTE_ANSWERING, 4 * MIB, \
        "Submit a job or a batch of jobs") \
  ROUTE(job_list, "GET", "/v1/jobs", MAY_READ, ROUTE_ANSWERING, 0, "List jobs") \
  ROUTE(job_cancel, "POST", "/v1/jobs/cancel", MAY_SUBMIT, ROUTE_ANSWERING, 512 * KIB, \
        "Cancel many jobs, by their ids, tag, run, kernel or user") \
  ROUTE(job_retry, "POST", "/v1/jobs/retry", MAY_SUBMIT, ROUTE_ANSWERING, 512 * KIB, \
        "Try failed and cancelled jobs again") \
  ROUTE(job_progress, "POST", "/v1/jobs/progress", MAY_READ, ROUTE_ANSWERING, 512 * KIB, \
        "Count what became of the given jobs") \
  ROUTE(job_get, "GET", "/v1/jobs/{id}", MAY_READ, ROUTE_ANSWERING, 0, "Read a job") \
  ROUTE(job_measurements, "GET", "/v1/jobs/{id}/measurements", MAY_READ, ROUTE_ANSWERING, 0, \
        "Read a job's measurements") \
  ROUTE(job_events, "GET", "/v1/jobs/{id}/events", MAY_READ, ROUTE_ANSWERING, 0, \
        "Follow a job (long poll)") \
  ROUTE(job_delete, "DELETE", "/v1/jobs/{id}", MAY_SUBMIT, ROUTE_ANSWERING, 0, "Cancel a job") \
  ROUTE(environment_list, "GET", "/v1/environments", MAY_READ, ROUTE_DATABASE, 0, \
        "List the environments that nodes have") \
  ROUTE(agent_post, "POST", "/v1/agents", MAY_ENROL, ROUTE_DATABASE, 256 * KIB, "Enrol an agent") \
  ROUTE(agent_heartbeat, "POST", "/v1/agents/{id}/heartbeat", \
        MAY_WORK, ROUTE_EVENT_THREAD, 4 * KIB, "Send an agent's heartbeat") \
  ROUTE(agent_end, "POST", "/v1/agents/{id}/end", MAY_WORK, ROUTE_DATABASE, 4 * KIB, \
        "Say that an agent ends") \
  ROUTE(agent_token, "POST", "/v1/agents/{id}/token", MAY_WORK, ROUTE_DATABASE, 4 * KIB, \
        "Replace an agent's own token") \
  ROUTE(agent_drain, "POST", "/v1/agents/{id}/drain", MAY_OPERATE, ROUTE_DATABASE, 4 * KIB, \
        "Drain an agent, with a reason") \
  ROUTE(agent_delete, "DELETE", "/v1/agents/{id}", MAY_OPERATE, ROUTE_DATABASE, 0, \
        "Remove an agent that is gone from the list, and end its tokens") \
  ROUTE(agent_list, "GET", "/v1/agents", MAY_READ, ROUTE_DATABASE, 0, "List agents") \
  ROUTE(agent_baselines, "GET", "/v1/agents/{id}/devices/{device}/baselines", MAY_READ, \
        ROUTE_DATABASE, 0, "Read what baselines took on a device, newest first") \
  ROUTE(lease_post, "POST", "/v1/leases", MAY_WORK, ROUTE_ANSWERING, 4 * KIB, \
        "Pull work (long poll)") \
  ROUTE(lease_renew, "POST", "/v1/leases/{id}/renew", MAY_WORK, ROUTE_ANSWERING, 4 * KIB, \
        "Keep a lease") \
  ROUTE(lease_results, "POST", "/v1/leases/{id}/results", MAY_WORK, ROUTE_ANSWERING, 4 * MIB, \
        "Post measurements") \
  ROUTE(lease_release, "POST", "/v1/leases/{id}/release", MAY_WORK, ROUTE_ANSWERING, 4 * KIB, \
        "Hand a lease back") \
  ROUTE(release_post, "POST", "/v1/releases", MAY_RELEASE, ROUTE_DATABASE, 4 * MIB, \
        "Make a release of the winners") \
  ROUTE(release_list, "GET", "/v1/releases", MAY_READ, ROUTE_DATABASE, 0, "List releases") \
  ROUTE(release_get, "GET", "/v1/releases/{digest}", MAY_READ, ROUTE_DATABASE, 0, \
        "Read a release's canonical bytes") \
  ROUTE(release_export, "GET", "/v1/releases/{digest}/export/{format}", \
        MAY_READ, ROUTE_DATABASE, 0, "Read a release rendered for a consumer") \
  ROUTE(release_fetches, "GET", "/v1/releases/{digest}/fetches", MAY_READ, ROUTE_DATABASE, 0, \
        "List which tokens fetched a release, by which requests and how often") \
  ROUTE(override_post, "POST", "/v1/overrides", MAY_OVERRIDE, ROUTE_DATABASE, 256 * KIB, \
        "Pin or ban a config in all releases from now on, with a reason") \
  ROUTE(override_list, "GET", "/v1/overrides", MAY_READ, ROUTE_DATABASE, 0, \
        "List pins and bans") \
  ROUTE(override_delete, "DELETE", "/v1/overrides/{id}", MAY_OVERRIDE, ROUTE_DATABASE, 0, \
        "Remove a pin or ban") \
  ROUTE(channel_put, "PUT", "/v1/channels/{name}", MAY_PUBLISH, ROUTE_DATABASE, 16 * KIB, \
        "Point a channel at a release") \
  ROUTE(channel_list, "GET", "/v1/channels", MAY_READ, ROUTE_DATABASE, 0, "List channel entries") \
  ROUTE(channel_get, "GET", "/v1/channels/{name}", MAY_READ, ROUTE_DATABASE, 0, \
        "Read a channel entry") \
  ROUTE(channel_entries, "GET", "/v1/channels/{name}/entries", MAY_READ, ROUTE_DATABASE, 0, \
        "Read a channel's history") \
  ROUTE(channel_signature_post, "POST", "/v1/channels/{name}/signatures", \
        MAY_PUBLISH, ROUTE_DATABASE, 16 * KIB, "Add a signature to a channel entry") \
  ROUTE(cache_get, "GET", "/v1/cache", MAY_READ, ROUTE_DATABASE, 0, \
        "Find the release for an environment and a channel") \
  ROUTE(import_post, "POST", "/v1/imports", MAY_IMPORT, ROUTE_DATABASE, 64 * MIB, \
        "Import tables that were tuned elsewhere") \
  ROUTE(import_list, "GET", "/v1/imports", MAY_READ, ROUTE_DATABASE, 0, "List imported entries") \
  ROUTE(image_put, "PUT", "/v1/images/{digest}", MAY_IMPORT, ROUTE_DATABASE, 16 * MIB, \
        "Store the identity of a container image") \
  ROUTE(image_get, "GET", "/v1/images/{digest}", MAY_READ, ROUTE_DATABASE, 0, \
        "Read the identity of a container image") \
  ROUTE(compatibility_post, "POST", "/v1/compatibilities", MAY_OPERATE, ROUTE_DATABASE, 16 * KIB, \
        "Declare that one environment's cache may serve another") \
  ROUTE(compatibility_list, "GET", "/v1/compatibilities", MAY_READ, ROUTE_DATABASE, 0, \
        "List declared compatibilities") \
  ROUTE(compatibility_delete, "DELETE", "/v1/compatibilities/{id}", \
        MAY_OPERATE, ROUTE_DATABASE, 0, \
        "Withdraw a declared compatibility") \
  ROUTE(choices_get, "GET", "/v1/choices", MAY_READ, ROUTE_DATABASE, 0, \
        "Read the configs that programs should use") \
  ROUTE(choices_post, "POST", "/v1/choices", MAY_READ, ROUTE_DATABASE, 1 * MIB, \
        "Read the configs for the given keys") \
  ROUTE(choices_sign, "POST", "/v1/releases/{digest}/signatures", \
        MAY_PUBLISH, ROUTE_DATABASE, 4 * KIB, "Add a signature to the choices of a release") \
  ROUTE(counters_post, "POST", "/v1/counters", MAY_REPORT, ROUTE_DATABASE, 4 * KIB, \
        "Report what a program that starts tuned counted since its last report") \
  ROUTE(remote_group_get, "GET", "/v1/remote/triton/{folder}/group/{file}", \
        MAY_READ, ROUTE_DATABASE, 0, "Read the files of a compiled kernel") \
  ROUTE(remote_group_put, "PUT", "/v1/remote/triton/{folder}/group/{file}", \
        MAY_REPORT, ROUTE_DATABASE, 16 * MIB, \
        "Store the files of a kernel that a container compiled") \
  ROUTE(remote_file_get, "GET", "/v1/remote/triton/{folder}/{file}", \
        MAY_READ, ROUTE_DATABASE, 0, "Read a file of Triton's cache") \
  ROUTE(remote_file_put, "PUT", "/v1/remote/triton/{folder}/{file}", \
        MAY_REPORT, ROUTE_DATABASE, 1 * MIB, "Store a file of a container's Triton cache") \
  ROUTE(remote_inductor_get, "GET", "/v1/remote/inductor/{key}", MAY_READ, ROUTE_DATABASE, 0, \
        "Read the config that Inductor's autotuner found in another container") \
  ROUTE(remote_inductor_put, "PUT", "/v1/remote/inductor/{key}", \
        MAY_REPORT, ROUTE_DATABASE, 16 * KIB, "Store a config that Inductor's autotuner found") \
  ROUTE(remote_helion_list, "GET", "/v1/remote/helion", MAY_READ, ROUTE_DATABASE, 0, \
        "List the newest configs that Helion's autotuner found") \
  ROUTE(remote_helion_get, "GET", "/v1/remote/helion/{key}", MAY_READ, ROUTE_DATABASE, 0, \
        "Read the config that Helion's autotuner found in another container") \
  ROUTE(remote_helion_put, "PUT", "/v1/remote/helion/{key}", \
        MAY_REPORT, ROUTE_DATABASE, 64 * KIB, "Store a config that Helion's autotuner found") \
  ROUTE(demand_post, "POST", "/v1/demand", MAY_REPORT, ROUTE_DATABASE, 1 * MIB, \
        "Report hits and misses of a deployment") \
  ROUTE(demand_get, "GET", "/v1/demand", MAY_READ, ROUTE_DATABASE, 0, \
        "List the untuned keys that deployments request, by the GPU time that tuning saves") \
  ROUTE(demand_queue, "POST", "/v1/demand/queue", MAY_SUBMIT, ROUTE_DATABASE, 4 * KIB, \
        "Queue jobs for the first of these keys") \
  ROUTE(capture_post, "POST", "/v1/captures", MAY_REPORT, ROUTE_DATABASE, 4 * MIB, \
        "Report launches that a program recorded") \
  ROUTE(capture_list, "GET", "/v1/captures", MAY_READ, ROUTE_DATABASE, 0, \
        "List the functions of recorded launches, without their texts") \
  ROUTE(capture_lease, "POST", "/v1/captures/leases", MAY_BUILD_CAPTURES, ROUTE_DATABASE, \
        16 * KIB, "Pull launches to build") \
  ROUTE(capture_results, "POST", "/v1/captures/results", MAY_BUILD_CAPTURES, ROUTE_DATABASE, \
        1 * MIB, "Post what became of leased launches") \
  ROUTE(capture_tune, "POST", "/v1/captures/tune", MAY_SUBMIT, ROUTE_DATABASE, 64 * KIB, \
        "Make jobs of captured keys that have a build") \
  ROUTE(capture_get, "GET", "/v1/captures/{id}", MAY_READ_CAPTURE, ROUTE_DATABASE, 0, \
        "Read a captured function: its owner, builders, operators") \
  ROUTE(capture_delete, "DELETE", "/v1/captures/{id}", MAY_REMOVE_CAPTURE, ROUTE_DATABASE, 0, \
        "Remove a captured function with its launches") \
  ROUTE(policy_get, "GET", "/v1/policy", MAY_SUBMIT, ROUTE_DATABASE, 0, \
        "Read the policy of the caller's token, which makes jobs of captures and demand") \
  ROUTE(policy_put, "PUT", "/v1/policy", MAY_SUBMIT, ROUTE_DATABASE, 64 * KIB, \
        "Replace the policy of the caller's token") \
  ROUTE(policy_list, "GET", "/v1/policies", MAY_SUBMIT, ROUTE_DATABASE, 0, \
        "List the policies: operators those of all tokens, others their own") \
  ROUTE(policy_delete, "DELETE", "/v1/policies/{id}", MAY_SUBMIT, ROUTE_DATABASE, 0, \
        "Remove a policy: operators any, others their own") \
  ROUTE(policy_suggestions, "GET", "/v1/policy/suggestions", MAY_SUBMIT, ROUTE_DATABASE, 0, \
        "List the jobs that the caller's policy would make, with their estimated device time") \
  ROUTE(policy_run, "POST", "/v1/policy/run", MAY_SUBMIT, ROUTE_DATABASE, 4 * KIB, \
        "Make these jobs, as far as the budget of the day allows") \
  ROUTE(proposal_list, "GET", "/v1/proposals", MAY_READ, ROUTE_DATABASE, 0, \
        "List releases that the policy proposed to a channel, newest first") \
  ROUTE(proposal_get, "GET", "/v1/proposals/{id}", MAY_READ, ROUTE_DATABASE, 0, \
        "Read a proposal with what it changes") \
  ROUTE(proposal_promote, "POST", "/v1/proposals/{id}/promote", MAY_PUBLISH, ROUTE_DATABASE, \
        16 * KIB, "Point the channel at a proposal's release") \
  ROUTE(proposal_reject, "POST", "/v1/proposals/{id}/reject", MAY_PUBLISH, ROUTE_DATABASE, \
        4 * KIB, "Reject a proposal, with a reason") \
  ROUTE(poison_list, "GET", "/v1/poison", MAY_READ, ROUTE_DATABASE, 0, \
        "List the configs, objects and kernels that killed leases, newest first") \
  ROUTE(poison_get, "GET", "/v1/poison/{id}", MAY_READ, ROUTE_DATABASE, 0, \
        "Read an entry of the ledger of poison") \
  ROUTE(poison_release, "POST", "/v1/poison/{id}/release", MAY_OPERATE, ROUTE_DATABASE, 4 * KIB, \
        "Release an entry of the ledger of poison, with a reason") \
  ROUTE(share_list, "GET", "/v1/shares", MAY_READ, ROUTE_DATABASE, 0, \
        "List the owners of jobs, their weights and what their leases used") \
  ROUTE(share_put, "PUT", "/v1/shares/{name}", MAY_OPERATE, ROUTE_DATABASE, 4 * KIB, \
        "Set the weight and the quota of an owner of jobs") \
  ROUTE(fleet_get, "GET", "/v1/fleet", MAY_READ, ROUTE_DATABASE, 0, \
        "Read the summary of the fleet: devices by state, queue, rates, time to go") \
  ROUTE(fleet_nodes, "GET", "/v1/fleet/nodes", MAY_READ, ROUTE_DATABASE, 0, \
        "List nodes with what each device does, by host") \
  ROUTE(campaign_list, "GET", "/v1/campaigns", MAY_READ, ROUTE_DATABASE, 0, \
        "List campaigns, the jobs of a tag and run, newest first") \
  ROUTE(cost_get, "GET", "/v1/cost", MAY_READ, ROUTE_DATABASE, 0, \
        "Sum device time by week, day, kernel, tag, run or owner") \
  ROUTE(gc_post, "POST", "/v1/gc", MAY_OPERATE, ROUTE_DATABASE, 4 * KIB, \
        "Remove releases, files and demand that are not needed, or list them") \
  ROUTE(audit_get, "GET", "/v1/audit", MAY_OPERATE, ROUTE_DATABASE, 0, \
        "List which token wrote what, newest first") \
  ROUTE(token_post, "POST", "/v1/tokens", TOKEN_ADMIN, ROUTE_DATABASE, 4 * KIB, "Make a token") \
  ROUTE(token_list, "GET", "/v1/tokens", TOKEN_ADMIN, ROUTE_DATABASE, 0, "List tokens") \
  ROUTE(token_delete, "DELETE", "/v1/tokens/{name}", TOKEN_ADMIN, ROUTE_DATABASE, 0, \
        "Revoke a token") \
  ROUTE(token_own, "GET", "/v1/token", MAY_ASK_ITSELF, ROUTE_DATABASE, 0, \
        "Read what the request's own token may do") \
  ROUTE(sign_in_get, "GET", "/v1/sign-in", TOKEN_ANYONE, ROUTE_EVENT_THREAD, 0, \
        "Read as whom a trusted proxy signed the request's user in") \
  ROUTE(page_get, "GET", "/", TOKEN_ANYONE, ROUTE_EVENT_THREAD, 0, "Read the web page") \
  ROUTE(page_file, "GET", "/web/{file}", TOKEN_ANYONE, ROUTE_EVENT_THREAD, 0, \
        "Read a file of the web page") \
  ROUTE(metrics_get, "GET", "/metrics", MAY_READ, ROUTE_EVENT_THREAD, 0, \
        "Read Prometheus metrics") \
  ROUTE(healthz_get, "GET", "/healthz", TOKEN_ANYONE, ROUTE_EVENT_THREAD, 0, \
        "Check that the process runs") \
  ROUTE(readyz_get, "GET", "/readyz", TOKEN_ANYONE, ROUTE_EVENT_THREAD, 0, \
        "Check that the database answers and is migrated") \
  ROUTE(openapi_get, "GET", "/openapi.json", TOKEN_ANYONE, ROUTE_EVENT_THREAD, 0, \
        "Read this API's OpenAPI document")
/* clang-format on */

enum route_id {
#define X(id, ...) ROUTE_##id,
  ROUTES(X)
#undef X
      ROUTE_COUNT
};

#endif
