/* The fields of a granted lease. */
#include "common/lease/lease_grant.h"

#include "common/node/environment.h"

#define SCHEMA_SIGNATURES "{\"type\": \"array\", \"items\": " SCHEMA("CodeSignature") "}"

/* The server copies the texts of manifest and space without parsing them. */
#define FIELD_AS_TEXT (FIELD_NO_COLUMN | FIELD_OMITTED | FIELD_ANSWER)

/* Fields that the server computes have no column. */
#define GRANT(type, member, ...) RECORD_FIELD(type, struct lease_grant, member, __VA_ARGS__)
static const struct field grant_fields[] = {
    TASK_GRANT_FIELDS(struct lease_grant, task),
    GRANT(ID, job, FIELD_REQUIRED | FIELD_ANSWER, .schema = SCHEMA("Id")),
    GRANT(DIGEST, kernel, FIELD_REQUIRED),
    GRANT(JSON, manifest, FIELD_REQUIRED | FIELD_AS_TEXT, .schema = SCHEMA("Manifest")),
    GRANT(JSON, key, FIELD_REQUIRED | FIELD_ANSWER, .schema = SCHEMA("Key")),
    GRANT(JSON, space, FIELD_REQUIRED | FIELD_AS_TEXT, .schema = SCHEMA("Space")),
    GRANT(DIGEST, build, FIELD_ANSWER),
    GRANT(RANGES, configs, FIELD_REQUIRED | FIELD_ANSWER, .schema = SCHEMA("Ranges")),
    GRANT(JSON, signatures, FIELD_OMITTED | FIELD_ANSWER, .schema = SCHEMA_SIGNATURES,
          .about = "of the kernel, for an agent with trusted keys"),
    GRANT(JSON, build_signatures, FIELD_OMITTED | FIELD_ANSWER, .schema = SCHEMA_SIGNATURES),
    GRANT(JSON, likely, FIELD_NO_COLUMN | FIELD_ANSWER,
          .schema = "{\"type\": \"array\", \"items\": {\"type\": \"integer\"}}"),
    GRANT(NUMBER, best_ratio, FIELD_ANSWER),
    GRANT(INTEGER, device_us, FIELD_NO_COLUMN | FIELD_ANSWER),
    GRANT(INTEGER, budget_us, FIELD_NO_COLUMN | FIELD_ANSWER),
    GRANT(INTEGER, baseline, FIELD_REQUIRED | FIELD_ANSWER, .least = 0, .most = INT64_MAX),
    GRANT(ENUM, stage, FIELD_REQUIRED | FIELD_ANSWER, .names = stage_names,
          .schema = SCHEMA("Stage")),
    GRANT(INTEGER, round, FIELD_REQUIRED | FIELD_ANSWER, .least = 0, .most = INT32_MAX),
    GRANT(INTEGER, process, FIELD_REQUIRED | FIELD_ANSWER, .least = 0, .most = INT32_MAX),
    GRANT(INTEGER, seed, FIELD_REQUIRED),
    GRANT(ENUM, regime, FIELD_ANSWER, .names = regime_names, .schema = SCHEMA("Regime")),
};
const struct record lease_grant_record = RECORD("Lease", struct lease_grant, grant_fields);
