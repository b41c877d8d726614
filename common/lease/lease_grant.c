/* The fields of a granted lease. */
#include "common/lease/lease_grant.h"

#include "common/node/environment.h"

#define LEASE_MS_MAX (24 * 3600 * 1000)
#define SCHEMA(name) "{\"$ref\": \"#/components/schemas/" name "\"}"
#define SCHEMA_SIGNATURES "{\"type\": \"array\", \"items\": " SCHEMA("CodeSignature") "}"

/* The server passes the texts of manifest and space on without reading them. */
#define FIELD_AS_TEXT (FIELD_NO_COLUMN | FIELD_OMITTED | FIELD_ANSWER)

/* What the server computes has no column. */
static const struct field grant_fields[] = {
    {"lease", FIELD_TEXT, offsetof(struct lease_grant, lease), FIELD_REQUIRED | FIELD_ANSWER,
     .least = 1, .most = 128},
    {"epoch", FIELD_INTEGER, offsetof(struct lease_grant, epoch), FIELD_REQUIRED | FIELD_ANSWER,
     .least = 0, .most = INT64_MAX},
    {"job", FIELD_ID, offsetof(struct lease_grant, job), FIELD_REQUIRED | FIELD_ANSWER,
     .schema = SCHEMA("Id")},
    {"kernel", FIELD_DIGEST, offsetof(struct lease_grant, kernel), FIELD_REQUIRED},
    {"manifest", FIELD_JSON, offsetof(struct lease_grant, manifest), FIELD_REQUIRED | FIELD_AS_TEXT,
     .schema = SCHEMA("Manifest")},
    {"key", FIELD_JSON, offsetof(struct lease_grant, key), FIELD_REQUIRED | FIELD_ANSWER,
     .schema = SCHEMA("Key")},
    {"space", FIELD_JSON, offsetof(struct lease_grant, space), FIELD_REQUIRED | FIELD_AS_TEXT,
     .schema = SCHEMA("Space")},
    {"build", FIELD_DIGEST, offsetof(struct lease_grant, build), FIELD_ANSWER},
    {"configs", FIELD_RANGES, offsetof(struct lease_grant, configs), FIELD_REQUIRED | FIELD_ANSWER,
     .schema = SCHEMA("Ranges")},
    {"signatures", FIELD_JSON, offsetof(struct lease_grant, signatures),
     FIELD_OMITTED | FIELD_ANSWER, .schema = SCHEMA_SIGNATURES,
     .about = "of the kernel, for an agent with trusted keys"},
    {"build_signatures", FIELD_JSON, offsetof(struct lease_grant, build_signatures),
     FIELD_OMITTED | FIELD_ANSWER, .schema = SCHEMA_SIGNATURES},
    {"likely", FIELD_JSON, offsetof(struct lease_grant, likely), FIELD_NO_COLUMN | FIELD_ANSWER,
     .schema = "{\"type\": \"array\", \"items\": {\"type\": \"integer\"}}"},
    {"best_ratio", FIELD_NUMBER, offsetof(struct lease_grant, best_ratio), FIELD_ANSWER},
    {"device_us", FIELD_INTEGER, offsetof(struct lease_grant, device_us),
     FIELD_NO_COLUMN | FIELD_ANSWER},
    {"budget_us", FIELD_INTEGER, offsetof(struct lease_grant, budget_us),
     FIELD_NO_COLUMN | FIELD_ANSWER},
    {"baseline", FIELD_INTEGER, offsetof(struct lease_grant, baseline),
     FIELD_REQUIRED | FIELD_ANSWER, .least = 0, .most = INT64_MAX},
    {"stage", FIELD_ENUM, offsetof(struct lease_grant, stage), FIELD_REQUIRED | FIELD_ANSWER,
     .names = stage_names, .schema = SCHEMA("Stage")},
    {"round", FIELD_INTEGER, offsetof(struct lease_grant, round), FIELD_REQUIRED | FIELD_ANSWER,
     .least = 0, .most = INT32_MAX},
    {"process", FIELD_INTEGER, offsetof(struct lease_grant, process), FIELD_REQUIRED | FIELD_ANSWER,
     .least = 0, .most = INT32_MAX},
    {"seed", FIELD_INTEGER, offsetof(struct lease_grant, seed), FIELD_REQUIRED},
    {"regime", FIELD_ENUM, offsetof(struct lease_grant, regime), FIELD_ANSWER,
     .names = regime_names, .schema = SCHEMA("Regime")},
    {"expires_in_ms", FIELD_INTEGER, offsetof(struct lease_grant, expires_in_ms),
     FIELD_REQUIRED | FIELD_ANSWER, .least = 1, .most = LEASE_MS_MAX},
    {"renew_every_ms", FIELD_INTEGER, offsetof(struct lease_grant, renew_every_ms),
     FIELD_REQUIRED | FIELD_NO_COLUMN | FIELD_ANSWER, .least = 1, .most = LEASE_MS_MAX},
};
const struct record lease_grant_record = RECORD("Lease", struct lease_grant, grant_fields);
