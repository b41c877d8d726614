/* GET /v1/choices: all choices that a program may use; POST /v1/choices: those for some keys.
 *
 * Memory: what a handler makes lives as long as it runs. Threads: database workers. */
#include "server/choice/choices.h"
#include "server/channel/channels.h"
#include "server/choice/documents.h"
#include "server/http/request.h"
#include "server/records.h"
#include "server/server_private.h"

static const char no_functions[] = "{\"functions\":{}}";

/* What there is for the environment, channel, tag and regime that a request's query states. */
struct found {
  struct documents *documents;
  struct served_entry served; /* no answer: the channel has no entry for it */
  struct document *document;  /* of the entry's release; NULL: there is none */
  json_t *agreed, *signatures;
};

static void found_release(struct found *found) {
  served_entry_release(&found->served);
  if (found->document)
    document_put(found->documents, found->document);
  json_decref(found->agreed);
  json_decref(found->signatures);
}
#define cleanup_found __attribute__((cleanup(found_release)))

/* Answers and returns false where the query is wrong, or the database fails. */
static bool found_find(struct worker *worker, struct request *request, struct found *ret) {
  static const char *const arguments[] = {SERVED_ARGUMENTS, NULL};
  struct served_entry *served = &ret->served;
  struct error error;
  if (!served_entry_find(worker, request, arguments, true, served))
    return false;
  if ((!served->answer || document_get(worker, &served->release, &ret->document, &error)) &&
      evidence_agreed(worker, &served->asked, served->tag, served->regime, &ret->agreed, &error))
    return true;

  answer_failure(request, &error);
  return false;
}

/* Adds the text of a line. */
static void line_add(char **bytes, size_t *size, const char *text, size_t text_size) {
  *bytes = xreallocarray(*bytes, *size + text_size + 2, 1);
  memcpy(*bytes + *size, text, text_size);
  *size += text_size;
  (*bytes)[(*size)++] = '\n';
  (*bytes)[*size] = '\0';
}

/* Answers three lines. They are remembered until a channel moves or a publisher signs, unless they
 * have what containers agree on, which changes without either. */
static void lines_answer(struct request *request, struct found *found, const char *agreed) {
  const struct document *document = found->document;
  const char *match = found->served.match;
  char etag[DIGEST_TEXT_SIZE], *bytes = NULL;
  size_t size = 0;
  cleanup_json json_t *head =
      found->served.answer ? json_copy(found->served.answer) : json_object();
  if (found->signatures)
    json_put(head, "choices", json_incref(found->signatures));
  cleanup_free char *entry = json_canonical(head);
  line_add(&bytes, &size, entry, strlen(entry));
  line_add(&bytes, &size, document ? document->text : no_functions,
           document ? document->size : strlen(no_functions));
  line_add(&bytes, &size, agreed, strlen(agreed));
  struct digest digest = digest_of(bytes, size);
  digest_format(&digest, etag);
  if (!server_options(request->server)->agreed_nodes) {
    request_answer_cached(request, RESPONSE_OF_CHANNELS, "application/x-ndjson", bytes, size, etag,
                          match);
    return;
  }

  if (match)
    request_add_header(request, "Wavetune-Match", match);
  request_answer_entity(request, "application/x-ndjson", bytes, size, etag, false);
}

/* Only one release, for programs whose ranks must all take the same. */
static void release_answer(struct worker *worker, struct request *request, const char *name) {
  static const char *const arguments[] = {"release", NULL};
  struct error error;
  struct digest digest;
  cleanup_found struct found found = {.documents = worker->server->documents};
  if (!request_query_only(request, arguments))
    return;
  if ((!digest_parse(name, &digest) &&
       !error_set(&error, "release=%.80s is no digest, sha256:…", name)) ||
      !document_get(worker, &digest, &found.document, &error)) {
    error.pointer[0] = 0; /* the request has no body that it could point into */
    answer_failure(request, &error);
    return;
  }

  if (!choices_signatures_load(worker->db, &digest, &found.document->digest, &found.signatures,
                               &error)) {
    answer_failure(request, &error);
    return;
  }
  lines_answer(request, &found, no_functions);
}

void route_choices_get(struct worker *worker, struct request *request) {
  const char *release = request_query(request, "release");
  cleanup_found struct found found = {.documents = worker->server->documents};
  if (release) {
    release_answer(worker, request, release);
    return;
  }
  if (!found_find(worker, request, &found))
    return;

  struct error error;
  struct document *document = found.document;
  if (document && !choices_signatures_load(worker->db, &document->release, &document->digest,
                                           &found.signatures, &error)) {
    answer_failure(request, &error);
    return;
  }
  cleanup_free char *agreed = json_canonical(found.agreed);
  lines_answer(request, &found, agreed);
}

/* Some keys */

struct wanted_function {
  struct digest function;
  json_t *keys; /* an array of arrays of texts */
};
static const struct field function_fields[] = {
    RECORD_FIELD(DIGEST, struct wanted_function, function, FIELD_REQUIRED,
                 .about = "the closure of the function"),
    RECORD_FIELD(JSON, struct wanted_function, keys, FIELD_REQUIRED | FIELD_ARRAY,
                 .most = CHOICES_KEYS_MAX,
                 .schema = "{\"type\": \"array\", \"items\": {\"type\": \"array\", \"items\": "
                           "{\"type\": \"string\"}}}",
                 .about = "the autotuner's keys, each value as Python's repr writes it"),
};
static const struct record function_record = RECORD(NULL, struct wanted_function, function_fields);

struct wanted_choices {
  RECORD_ARRAY(struct wanted_function, n, functions);
};
static const struct field wanted_fields[] = {
    {"functions", FIELD_RECORDS, offsetof(struct wanted_choices, n), FIELD_REQUIRED, .least = 1,
     .most = CHOICES_FUNCTIONS_MAX, .of = &function_record},
};
const struct record choices_request_record =
    RECORD("ChoicesRequest", struct wanted_choices, wanted_fields);

/* Adds the release's choice for a key, else the agreed one. */
static void choice_add(const json_t *of_release, const json_t *agreed, const json_t *all_code,
                       const char *closure, json_t *key, json_t *choices, json_t *code) {
  cleanup_free char *text = json_canonical(key), *name = xasprintf("%s %s", closure, text);
  const json_t *own = json_object_get(of_release, name),
               *choice = own ? own : json_object_get(agreed, name);
  if (!choice)
    return;

  const char *folder = json_string_value(json_object_get(choice, "code"));
  json_push(choices, json_pack("{s:s*, s:O, s:s, s:O, s:s}", "code", folder, "config",
                               json_object_get(choice, "config"), "function", closure, "key", key,
                               "origin", own ? "release" : "agreed"));
  if (folder)
    json_put(code, folder, json_incref(json_object_get(all_code, folder)));
}

void route_choices_post(struct worker *worker, struct request *request) {
  cleanup_found struct found found = {.documents = worker->server->documents};
  struct wanted_choices wanted = {0};
  struct error error;
  if (!record_read(&choices_request_record, request->json, "", &wanted, &error)) {
    answer_failure(request, &error);
    return;
  }

  if (found_find(worker, request, &found)) {
    struct document *document = found.document;
    const json_t *index = document ? document_index(found.documents, document) : NULL,
                 *all_code = document ? json_object_get(document->json, "code") : NULL;
    cleanup_json json_t *agreed = choices_index(json_object_get(found.agreed, "functions"));
    json_t *choices = json_array(), *code = json_object(), *key;
    for (size_t i = 0; i < wanted.n; i++) {
      char closure[DIGEST_TEXT_SIZE];
      size_t j;
      digest_format(&wanted.functions[i].function, closure);
      json_array_foreach (wanted.functions[i].keys, j, key)
        choice_add(index, agreed, all_code, closure, key, choices, code);
    }
    request_answer_json(request, 200, json_pack("{s:o, s:o}", "choices", choices, "code", code));
  }
  record_release(&choices_request_record, &wanted);
}
