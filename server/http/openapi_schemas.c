/* The hand-written part of the contract for programs. Static texts. */
#include "server/http/openapi_schemas.h"

#define JSON_TYPE "application/json"
#define JSON(...) #__VA_ARGS__

/* clang-format off */
const struct openapi_operation openapi_operations[ROUTE_COUNT] = {
  [ROUTE_blob_put] = {"", "Bytes", "application/octet-stream", "200 201", "BlobAnswer", JSON_TYPE},
  [ROUTE_blob_get] = {"", NULL, NULL, "200 206 304", "Bytes", "application/octet-stream"},
  [ROUTE_kernel_post] = {"", "Manifest", JSON_TYPE, "200 201", "KernelAnswer", JSON_TYPE},
  [ROUTE_kernel_list] = {"limit after name", NULL, NULL, "200", "KernelList", JSON_TYPE},
  [ROUTE_kernel_get] = {"", NULL, NULL, "200", "Kernel", JSON_TYPE},
  [ROUTE_build_put] = {"", "Build", JSON_TYPE, "200 201", "BuildAnswer", JSON_TYPE},
  [ROUTE_build_get] = {"", NULL, NULL, "200 304", "Build", JSON_TYPE},
  [ROUTE_build_list] = {"limit after", NULL, NULL, "200", "BuildList", JSON_TYPE},
  [ROUTE_job_post] = {"", "JobRequests", JSON_TYPE, "200 201", "JobAnswers", JSON_TYPE},
  [ROUTE_kernel_signature_post] = {"", "CodeSignatureRequest", JSON_TYPE, "200", "CodeSignatures", JSON_TYPE},
  [ROUTE_build_signature_post] = {"", "CodeSignatureRequest", JSON_TYPE, "200", "CodeSignatures", JSON_TYPE},
  [ROUTE_job_list] = {"limit after state tag kernel", NULL, NULL, "200", "JobList", JSON_TYPE},
  [ROUTE_job_get] = {"", NULL, NULL, "200", "Job", JSON_TYPE},
  [ROUTE_job_measurements] = {"limit after", NULL, NULL, "200", "MeasurementList", JSON_TYPE},
  [ROUTE_job_events] = {"limit after wait", NULL, NULL, "200", "EventList", JSON_TYPE},
  [ROUTE_job_delete] = {"", NULL, NULL, "200", "Job", JSON_TYPE},
  [ROUTE_environment_list] = {"limit after", NULL, NULL, "200", "EnvironmentList", JSON_TYPE},
  [ROUTE_agent_post] = {"", "AgentRequest", JSON_TYPE, "200 201", "AgentAnswer", JSON_TYPE},
  [ROUTE_agent_heartbeat] = {"", "HeartbeatRequest", JSON_TYPE, "200", "HeartbeatAnswer", JSON_TYPE},
  [ROUTE_agent_token] = {"", "Object", JSON_TYPE, "201", "AgentTokenAnswer", JSON_TYPE},
  [ROUTE_agent_drain] = {"", "DrainRequest", JSON_TYPE, "200", "Object", JSON_TYPE},
  [ROUTE_agent_list] = {"limit after", NULL, NULL, "200", "AgentList", JSON_TYPE},
  [ROUTE_lease_post] = {"", "LeaseRequest", JSON_TYPE, "200 204", "Lease", JSON_TYPE},
  [ROUTE_lease_renew] = {"", "RenewRequest", JSON_TYPE, "200", "RenewAnswer", JSON_TYPE},
  [ROUTE_lease_results] = {"", "ResultsRequest", JSON_TYPE, "200", "ResultsAnswer", JSON_TYPE},
  [ROUTE_lease_release] = {"", "HandBackRequest", JSON_TYPE, "200", "Object", JSON_TYPE},
  [ROUTE_release_post] = {"", "ReleaseRequest", JSON_TYPE, "200 201", "ReleaseAnswer", JSON_TYPE},
  [ROUTE_release_list] = {"limit after", NULL, NULL, "200", "ReleaseList", JSON_TYPE},
  [ROUTE_release_get] = {"", NULL, NULL, "200 304", "Release", JSON_TYPE},
  [ROUTE_release_export] = {"identity", NULL, NULL, "200 304", "Bytes", "*/*"},
  [ROUTE_channel_put] = {"", "ChannelRequest", JSON_TYPE, "200", "ChannelEntry", JSON_TYPE},
  [ROUTE_channel_list] = {"limit after", NULL, NULL, "200", "ChannelList", JSON_TYPE},
  [ROUTE_channel_get] = {"rocm cuda cpu torch triton gpu arch compute_units partition tag regime release", NULL, NULL, "200 304",
                         "ChannelEntry", JSON_TYPE},
  [ROUTE_channel_entries] = {"rocm cuda cpu torch triton gpu arch compute_units partition tag regime limit after", NULL, NULL, "200",
                             "ChannelList", JSON_TYPE},
  [ROUTE_channel_signature_post] = {"", "SignatureRequest", JSON_TYPE, "200", "ChannelEntry", JSON_TYPE},
  [ROUTE_cache_get] = {"rocm cuda cpu torch triton gpu arch compute_units partition tag regime channel match", NULL, NULL, "200 304",
                       "ChannelEntry", JSON_TYPE},
  [ROUTE_import_post] = {"", "ImportRequest", JSON_TYPE, "200 201", "ImportAnswer", JSON_TYPE},
  [ROUTE_import_list] = {"limit after kernel format tag", NULL, NULL, "200", "ImportList", JSON_TYPE},
  [ROUTE_image_put] = {"", "Identity", JSON_TYPE, "200 201", "ImageAnswer", JSON_TYPE},
  [ROUTE_image_get] = {"", NULL, NULL, "200 304", "Identity", JSON_TYPE},
  [ROUTE_compatibility_post] = {"", "CompatibilityRequest", JSON_TYPE, "201", "Object", JSON_TYPE},
  [ROUTE_compatibility_list] = {"limit after", NULL, NULL, "200", "CompatibilityList", JSON_TYPE},
  [ROUTE_compatibility_delete] = {"", NULL, NULL, "204", NULL, NULL},
  [ROUTE_demand_post] = {"", "DemandReport", JSON_TYPE, "202", "DemandAnswer", JSON_TYPE},
  [ROUTE_demand_get] = {"limit", NULL, NULL, "200", "DemandList", JSON_TYPE},
  [ROUTE_demand_queue] = {"", "DemandQueueRequest", JSON_TYPE, "200", "DemandQueueAnswer", JSON_TYPE},
  [ROUTE_gc_post] = {"", "GcRequest", JSON_TYPE, "200", "GcAnswer", JSON_TYPE},
  [ROUTE_audit_get] = {"limit after since token action object", NULL, NULL, "200", "AuditList", JSON_TYPE},
  [ROUTE_token_post] = {"", "TokenRequest", JSON_TYPE, "201", "TokenAnswer", JSON_TYPE},
  [ROUTE_token_list] = {"limit after", NULL, NULL, "200", "TokenList", JSON_TYPE},
  [ROUTE_token_delete] = {"", NULL, NULL, "204", NULL, NULL},
  [ROUTE_metrics_get] = {"", NULL, NULL, "200", "Text", "text/plain"},
  [ROUTE_healthz_get] = {"", NULL, NULL, "200", "Status", JSON_TYPE},
  [ROUTE_readyz_get] = {"", NULL, NULL, "200", "Status", JSON_TYPE},
  [ROUTE_openapi_get] = {"", NULL, NULL, "200", "Object", JSON_TYPE},
};

const char openapi_queries[] = JSON({
  "limit": {"description": "how many items at most", "schema": {"type": "integer", "minimum": 1, "maximum": 1000, "default": 100}},
  "after": {"description": "next of the page before", "schema": {"type": "string"}},
  "since": {"description": "a time, or how long ago, such as 12h or 7d", "schema": {"type": "string"}},
  "token": {"description": "only what the token of this name wrote", "schema": {"type": "string"}},
  "action": {"description": "only this action", "schema": {"type": "string"}},
  "object": {"description": "only what was written of this", "schema": {"type": "string"}},
  "wait": {"description": "seconds to wait for the first item", "schema": {"type": "integer", "minimum": 0, "maximum": 60, "default": 0}},
  "name": {"description": "only kernels of this name", "schema": {"type": "string"}},
  "state": {"description": "only jobs in this state", "schema": {"$ref": "#/components/schemas/JobState"}},
  "kernel": {"description": "only those of this kernel", "schema": {"$ref": "#/components/schemas/Digest"}},
  "format": {"description": "only those of this cache format", "schema": {"type": "string"}},
  "tag": {"description": "the deployment scenario", "schema": {"type": "string"}},
  "regime": {"description": "whether calls find their operands in the caches", "schema": {"$ref": "#/components/schemas/Regime"}},
  "identity": {"description": "digest of an image that PUT /v1/images keeps: the formats whose paths it decides are rendered for it",
    "schema": {"$ref": "#/components/schemas/Digest"}},
  "release": {"description": "a release's digest: the entry that a move to it follows", "schema": {"type": "string"}},
  "match": {"description": "how far the rules by which an entry is chosen may go: exact alone; unstated, what the entry does not state is not compared; minor, ROCm's patch level may differ too; compatible, what an operator declared too",
    "schema": {"$ref": "#/components/schemas/CacheMatch/properties/rule", "default": "unstated"}},
  "channel": {"description": "the channel's name", "schema": {"type": "string", "default": "stable"}},
  "rocm": {"description": "ROCm's version", "schema": {"type": "string"}},
  "cuda": {"description": "CUDA's version", "schema": {"type": "string"}},
  "cpu": {"description": "the C compiler with its version", "schema": {"type": "string"}},
  "torch": {"description": "torch's version", "schema": {"type": "string"}},
  "triton": {"description": "Triton's version", "schema": {"type": "string"}},
  "gpu": {"description": "the GPU's (or CPU's) model name", "schema": {"type": "string"}},
  "arch": {"description": "such as gfx942", "schema": {"type": "string"}},
  "compute_units": {"description": "how many the device has", "schema": {"type": "integer", "minimum": 1}},
  "partition": {"description": "such as SPX/NPS1", "schema": {"type": "string"}}
});

const char openapi_schemas[] = JSON({
  "Object": {"type": "object"},
  "Text": {"type": "string"},
  "Bytes": {"type": "string", "format": "binary"},
  "Status": {"type": "object", "required": ["status"], "properties": {"status": {"type": "string"}, "version": {"type": "string"}}},
  "Digest": {"type": "string", "pattern": "^sha256:[0-9a-f]{64}$"},
  "Time": {"type": "string", "format": "date-time"},
  "Id": {"type": "string", "pattern": "^[0-9]+$"},
  "Next": {"type": ["string", "null"], "description": "the value of the query argument after for the next page; null at the end"},
  "By": {"type": ["string", "null"], "description": "the name of the token that did it, (server) or (command line); null: it is not known"},
  "ById": {"type": ["string", "null"], "description": "its id"},
  "Role": {"type": "string", "description": "one role, or several with a comma between",
    "pattern": "^(reader|demand|cache-writer|submitter|builder|publisher|agent|enrol|operator|admin)(,(reader|demand|cache-writer|submitter|builder|publisher|operator))*$"},
  "JobState": {"type": "string", "enum": ["queued", "running", "done", "failed", "cancelled"]},
  "Regime": {"type": "string", "enum": ["cold", "warm"], "default": "cold"},
  "Stage": {"type": "string", "enum": ["screen", "halving", "final"]},
  "Problem": {"type": "object", "required": ["type", "title", "status", "kind", "detail", "pointer", "request"], "properties": {
    "type": {"type": "string"}, "title": {"type": "string"}, "status": {"type": "integer"},
    "kind": {"type": "string", "enum": ["invalid", "missing", "conflict", "precondition", "unauthenticated", "forbidden", "too_large",
      "rate", "contention", "unavailable", "deadline", "damaged", "internal"], "description": "what a program may do about it; more may come"},
    "detail": {"type": "string"},
    "pointer": {"type": "string", "description": "JSON Pointer into the request body"},
    "request": {"type": "string", "pattern": "^[A-Za-z0-9._:-]{1,64}$", "description": "X-Request-Id of the answer; the server's log has it"},
    "missing": {"type": "array", "items": {"$ref": "#/components/schemas/Digest"}},
    "environments": {"type": "array", "items": {"$ref": "#/components/schemas/Environment"}},
    "epoch": {"type": ["integer", "null"]}, "lease": {"type": "string"}}},
  "Environment": {"type": "object", "additionalProperties": false, "properties": {
    "rocm": {"type": "string"}, "cuda": {"type": "string"}, "cpu": {"type": "string"}, "torch": {"type": "string"},
    "triton": {"type": "string"}, "gpu": {"type": "string"}, "arch": {"type": "string"},
    "compute_units": {"type": "integer", "minimum": 1, "maximum": 1000000}, "partition": {"type": "string"}}},
  "Key": {"type": "object", "description": "the names and values that the tuning decision depends on, in the kernel's order",
    "additionalProperties": {"type": ["integer", "number", "string", "boolean", "null"]}},
  "Config": {"type": "object", "additionalProperties": {"type": ["integer", "string", "boolean", "null"]}},
  "Manifest": {"oneOf": [{"$ref": "#/components/schemas/CodeManifest"}, {"$ref": "#/components/schemas/ExternalManifest"}]},
  "KernelAnswer": {"type": "object", "required": ["kernel", "name"], "properties": {
    "kernel": {"$ref": "#/components/schemas/Digest"}, "name": {"type": "string"}}},
  "CodeSignature": {"type": "object", "required": ["key", "signature"], "properties": {
    "key": {"$ref": "#/components/schemas/Digest"}, "expires": {"type": "string"},
    "signature": {"type": "string", "pattern": "^[A-Za-z0-9+/]{86}==$"}}},
  "KernelList": {"type": "object", "required": ["items", "next"], "properties": {
    "items": {"type": "array", "items": {"$ref": "#/components/schemas/KernelItem"}}, "next": {"$ref": "#/components/schemas/Next"}}},
  "Build": {"type": "object", "required": ["kernel", "toolchain", "arch", "warp_size", "variants"], "properties": {
    "kernel": {"$ref": "#/components/schemas/Digest"}, "toolchain": {"type": "object"}, "arch": {"type": "string"},
    "warp_size": {"type": "integer"}, "variants": {"type": "array", "items": {"type": "object", "required": ["objects"], "properties": {
      "when": {"type": ["string", "null"]}, "signature": {"type": ["object", "null"]}, "constexprs": {"type": ["object", "null"]},
      "objects": {"type": "array", "minItems": 1, "items": {"type": "object", "required": ["config", "digest"], "properties": {
        "config": {"$ref": "#/components/schemas/Config"}, "digest": {"$ref": "#/components/schemas/Digest"},
        "metadata": {"type": ["object", "null"], "properties": {"files": {"type": ["object", "null"],
          "additionalProperties": {"$ref": "#/components/schemas/Digest"}}}}}}},
      "failed": {"type": ["array", "null"], "items": {"type": "object", "required": ["config", "error"], "properties": {
        "config": {"$ref": "#/components/schemas/Config"}, "error": {"type": "string"}}}}}}}}},
  "BuildAnswer": {"type": "object", "required": ["build"], "properties": {"build": {"$ref": "#/components/schemas/Digest"}}},
  "BuildList": {"type": "object", "required": ["items", "next"], "properties": {
    "items": {"type": "array", "items": {"$ref": "#/components/schemas/BuildItem"}}, "next": {"$ref": "#/components/schemas/Next"}}},
  "BaselineFrom": {"type": "string", "enum": ["incumbent", "imported", "default", "first"]},
  "Ranges": {"type": "array", "description": "[first, count] pairs of ordinals", "items": {"type": "array",
    "items": {"type": "integer"}, "minItems": 2, "maxItems": 2}},
  "JobRequests": {"oneOf": [{"$ref": "#/components/schemas/JobRequest"}, {"type": "object", "required": ["jobs"], "properties": {
    "jobs": {"type": "array", "minItems": 1, "maxItems": 1000, "items": {"$ref": "#/components/schemas/JobRequest"}}}}]},
  "MatchingAgents": {"type": "object", "required": ["matching", "nearest"], "properties": {
    "matching": {"type": "integer"}, "refusing": {"type": "object", "description": "agents that would match, but take only what a key that they trust signed",
      "properties": {"agents": {"type": "integer"}, "reason": {"type": "string"}}},
    "nearest": {"type": ["object", "null"]}}},
  "JobAnswers": {"oneOf": [{"$ref": "#/components/schemas/JobAnswer"}, {"type": "object", "required": ["jobs"], "properties": {
    "jobs": {"type": "array", "items": {"$ref": "#/components/schemas/JobAnswer"}}}}]},
  "Resources": {"type": "object", "description": "what a finalist's code takes of a device", "required": ["config"], "properties": {
    "config": {"type": "integer"}, "vgprs": {"type": ["integer", "null"]}, "agprs": {"type": ["integer", "null"]},
    "spills": {"type": ["integer", "null"]}, "lds_bytes": {"type": ["integer", "null"]},
    "occupancy": {"type": ["integer", "null"]}, "object": {"type": ["string", "null"]},
    "conditions": {"type": ["object", "null"]}}},
  "Flagged": {"type": "object", "description": "the job in which the winner was the baseline or a finalist, and another config was significantly faster", "properties": {
    "job": {"$ref": "#/components/schemas/Id"}, "ratio": {"type": "number"}, "lower": {"type": "number"},
    "upper": {"type": "number"}, "at": {"$ref": "#/components/schemas/Time"}}},
  "JobList": {"type": "object", "required": ["items", "next"], "properties": {
    "items": {"type": "array", "items": {"$ref": "#/components/schemas/JobItem"}}, "next": {"$ref": "#/components/schemas/Next"}}},
  "MeasurementList": {"type": "object", "required": ["items", "next"], "properties": {
    "items": {"type": "array", "items": {"$ref": "#/components/schemas/Measurement"}}, "next": {"$ref": "#/components/schemas/Next"}}},
  "EventList": {"type": "object", "required": ["items", "next"], "properties": {
    "items": {"type": "array", "items": {"$ref": "#/components/schemas/JobEvent"}},
    "next": {"$ref": "#/components/schemas/Next"}}},
  "EnvironmentList": {"type": "object", "required": ["items", "next"], "properties": {
    "items": {"type": "array", "items": {"$ref": "#/components/schemas/EnvironmentItem"}},
    "next": {"$ref": "#/components/schemas/Next"}}},
  "AgentList": {"type": "object", "required": ["items", "next"], "properties": {
    "items": {"type": "array", "items": {"$ref": "#/components/schemas/Agent"}},
    "next": {"$ref": "#/components/schemas/Next"}}},
  "ResultsAnswer": {"type": "object", "required": ["accepted", "late", "known", "state"], "properties": {
    "accepted": {"type": "integer"}, "late": {"type": "integer"}, "known": {"type": "integer"}, "state": {"type": "string", "enum": ["held", "done", "open"]}}},
  "Release": {"type": "object", "description": "the canonical bytes, whose SHA-256 is the digest"},
  "ReleaseList": {"type": "object", "required": ["items", "next"], "properties": {
    "items": {"type": "array", "items": {"$ref": "#/components/schemas/ListedRelease"}},
    "next": {"$ref": "#/components/schemas/Next"}}},
  "ChannelList": {"type": "object", "required": ["items", "next"], "properties": {
    "items": {"type": "array", "items": {"$ref": "#/components/schemas/ChannelEntry"}}, "next": {"$ref": "#/components/schemas/Next"}}},
  "CompatibilityList": {"type": "object", "required": ["items", "next"], "properties": {
    "items": {"type": "array", "items": {"$ref": "#/components/schemas/CompatibilityItem"}}, "next": {"$ref": "#/components/schemas/Next"}}},
  "DemandList": {"type": "object", "required": ["items", "next", "policy"], "properties": {
    "items": {"type": "array", "items": {"$ref": "#/components/schemas/DemandItem"}},
    "next": {"type": "null"}, "policy": {"$ref": "#/components/schemas/DemandAnswer/properties/policy"}}},
  "DemandQueueAnswer": {"type": "object", "required": ["items"], "properties": {"items": {"type": "array",
    "items": {"$ref": "#/components/schemas/DemandQueued"}}}},
  "Flat": {"type": "object", "additionalProperties": {"type": ["integer", "number", "string", "boolean", "null"]}},
  "ImportList": {"type": "object", "required": ["items", "next"], "properties": {
    "items": {"type": "array", "items": {"$ref": "#/components/schemas/ImportItem"}}, "next": {"$ref": "#/components/schemas/Next"}}},
  "Identity": {"type": "object", "description": "what the paths of an image's caches are made of; its digest is that of its canonical JSON"},
  "ImageAnswer": {"type": "object", "required": ["image"], "properties": {"image": {"$ref": "#/components/schemas/Digest"}}},
  "AuditList": {"type": "object", "required": ["items", "next"], "properties": {
    "items": {"type": "array", "items": {"$ref": "#/components/schemas/AuditEntry"}},
    "next": {"$ref": "#/components/schemas/Next"}}},
  "TokenList": {"type": "object", "required": ["items", "next"], "properties": {
    "items": {"type": "array", "items": {"$ref": "#/components/schemas/Token"}},
    "next": {"$ref": "#/components/schemas/Next"}}}
});
/* clang-format on */
