/* Launches that programs recorded (docs/capture.md): posted by containers, leased to builders,
 * which make kernels and builds of them.
 *
 * A function is identified by its closure and the token that posted it; a launch by key,
 * environment, image and specialisation: launches of one key that Triton compiles other code for
 * are built together and have one job. The server reads of the documents what it needs and stores
 * them whole: builders check the rest. The first document of a launch is kept, later ones count.
 *
 * A function's text is source that belongs to the owner of the token: it is answered only to that
 * token, to builders, operators and admins. A builder leases the launches of one function, each a
 * task of the kind build: a builder that was slow cannot undo what another did.
 *
 * Where an entry (kernels/tables/README.md) says how the arguments of a function without an
 * autotuner make a key, the builder's result has that key and the entry's space, and they replace
 * the launch's own.
 *
 * Memory: a report owns what it holds. Threads: reading is pure; routes run on database workers. */
#ifndef WAVETUNE_SERVER_CAPTURE_CAPTURES_H
#define WAVETUNE_SERVER_CAPTURE_CAPTURES_H

#include "common/node/environment.h"
#include "common/record/record.h"
#include "server/db/db.h"
#include "server/lease/lease_kind.h"
#include "server/server.h"

#define CAPTURE_VERSION 1
#define CAPTURE_FUNCTIONS_MAX 64 /* of a request */
#define CAPTURE_LAUNCHES_MAX 256 /* of a request */
#define CAPTURE_FUNCTION_BYTES                                                                     \
  (3 << 19)                            /* of a function's canonical JSON: 1 MiB of text, escaped */
#define CAPTURE_LAUNCH_BYTES (1 << 20) /* of a launch's */
#define CAPTURE_NAME_MAX 1024          /* bytes of MODULE:QUALNAME */
#define CAPTURE_TRITON_MAX 64          /* bytes of a version */
#define CAPTURE_IMAGE_MAX 256          /* bytes of an image's name or digest */
#define CAPTURE_TOKEN_FUNCTIONS_MAX 10000 /* kept of a token */
#define CAPTURE_KEYS_MAX 4096             /* launches kept of a function */
#define CAPTURE_POSTS_PER_MINUTE 60
#define CAPTURE_LEASE_S 600
#define CAPTURE_LEASED_MAX 64 /* launches of a lease */
#define CAPTURE_AT_ONCE 1000  /* launches that are removed in one statement */

struct token_rates *server_capture_rates(const struct server *server);
/* Removes old captures. The housekeeper's. */
void captures_housekeep(struct worker *worker);

/* Of both, the first members are of the document and the others columns that are made of it. */
struct captured_function {
  int64_t version;
  struct digest closure;
  char *name;
  json_t *parts;
  char *document;
};
struct captured_launch {
  int64_t version;
  struct digest closure;
  json_t *texts, *key_names, *key_values; /* of the autotuner's key */
  struct environment environment;
  char *triton, *image; /* image: NULL where the program did not know it */
  struct digest digest, key_digest;
  char *key; /* JSON, members in the autotuner's order */
  char *arch;
  char *document;
};
/* The kind build. */
extern const struct lease_kind build_kind;

extern const struct record captured_function_record, captured_launch_record;
struct capture_report {
  RECORD_ARRAY(struct captured_function, n_functions, functions);
  RECORD_ARRAY(struct captured_launch, n_launches, launches);
};
extern const struct record capture_report_record;

/* Reads the body of POST /v1/captures: {"functions": [DOCUMENT…], "launches": [DOCUMENT…]}. */
must_check bool capture_report_parse(const json_t *json, struct capture_report *ret,
                                     struct error *error);
void capture_report_release(struct capture_report *report);
#define cleanup_capture_report __attribute__((cleanup(capture_report_release)))

/* What a builder says of a leased launch. */
struct capture_result {
  int64_t id, epoch;
  struct digest build; /* all zeros: none */
  char *refused;
  json_t *stated_key, *stated_space; /* of an entry's build, else NULL */
  /* Set by capture_spaces_set: */
  struct digest key_digest, space_digest; /* of key: all zeros, and NULL, unless it is stated */
  char *key, *space;
  int64_t configs;
};

/* Sets the spaces of results whose build is there: what jobs of their keys tune. Refuses a build
 * that has no code for the key of its launch. */
must_check bool capture_spaces_set(struct db *db, struct capture_result *results, size_t n,
                                   struct error *error);

#endif
