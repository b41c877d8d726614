/* GET /v1/choices: all choices that a program may use; POST /v1/choices: those for some keys.
 *
 * Memory: what a handler makes lives as long as it runs. Threads: database workers. */
#include "server/choice/choices.h"

#include "common/cache/format.h"
#include "server/cache/fetches.h"
#include "server/channel/channels.h"
#include "server/choice/documents.h"
#include "server/http/request.h"
#include "server/records.h"

static const char no_functions[] = "{\"functions\":{}}";

/* The choices for the environment, channel, tag and regime that a request's query states. */
struct found {
  struct server *server;
  struct served_entry served; /* no answer: the channel has no entry */
  struct document *document;  /* of the entry's release; NULL: there is no entry */
  json_t *signatures;
};

static void found_release(struct found *found) {
  served_entry_release(&found->served);
  if (found->document)
    document_put(server_documents(found->server), found->document);
  json_decref(found->signatures);
}
#define cleanup_found __attribute__((cleanup(found_release)))

/* Notes that the request is answered with the choices of a release: garbage collection keeps it. */
static void use_note(struct request *request, struct fetch *fetch) {
  fetch->kind = FETCH_CHOICES;
  fetches_note(request, fetch);
}

static bool found_find(struct worker *worker, struct request *request, struct found *ret,
                       struct error *error) {
  struct served_entry *served = &ret->served;
  if (!served_entry_find(worker, request, true, served, error))
    return false;
  if (!served->answer)
    return true;
  if (!document_get(worker, &served->fetch.release, &ret->document, error))
    return false;
  use_note(request, &served->fetch);
  return true;
}

/* Answers two lines. They are cached until a channel moves, a publisher signs, or the release is
 * rendered again. A requested release is not cached: each request notes that the release is used.
 * Neither is an answer without an entry: there are as many as there are names of channels and
 * tags. */
static void lines_answer(struct request *request, struct found *found) {
  const struct document *document = found->document;
  const char *match = found->served.match;
  char etag[DIGEST_TEXT_SIZE];
  size_t size;
  cleanup_json json_t *head = found->served.answer ? json_copy(found->served.answer)
                                                   : json_pack("{s:s*}", "why", found->served.why);
  if (found->signatures)
    json_put(head, "choices", json_incref(found->signatures));
  cleanup_free char *entry = json_canonical(head);
  char *bytes = xasprintf("%s\n%s\n", entry, document ? document->text : no_functions);
  size = strlen(bytes);
  struct digest digest = digest_of(bytes, size);
  digest_format(&digest, etag);
  if (found->served.answer) {
    request_answer_cached(request, RESPONSE_OF_CHANNELS, "application/x-ndjson", bytes, size, etag,
                          match);
    return;
  }

  if (match)
    request_add_header(request, "Wavetune-Match", match);
  request_answer_entity(request, "application/x-ndjson", bytes, size, etag, false);
}

/* Answers with one release, for programs whose ranks must all use the same one. */
static bool release_answer(struct worker *worker, struct request *request, const char *name,
                           struct error *error) {
  static const char *const arguments[] = {"release", NULL};
  struct fetch fetch = {0};
  cleanup_found struct found found = {.server = worker->server};
  if (!query_check_only(request, arguments, error))
    return false;
  if ((!digest_parse(name, &fetch.release) &&
       !error_set(error, "release=%.80s is no digest, sha256:…", name)) ||
      !document_get(worker, &fetch.release, &found.document, error)) {
    error->pointer[0] = 0; /* the request has no body that it could point into */
    return false;
  }

  if (!choices_signatures_load(worker->db, &fetch.release, &found.document->digest,
                               &found.signatures, error))
    return false;
  use_note(request, &fetch);
  lines_answer(request, &found);
  return true;
}

bool route_choices_get(struct worker *worker, struct request *request, struct error *error) {
  const char *release = request_query(request, "release");
  cleanup_found struct found found = {.server = worker->server};
  if (release)
    return release_answer(worker, request, release, error);
  if (!found_find(worker, request, &found, error))
    return false;

  struct document *document = found.document;
  if (document && !choices_signatures_load(worker->db, &document->id, &document->digest,
                                           &found.signatures, error))
    return false;
  lines_answer(request, &found);
  return true;
}

/* Some keys */

struct wanted_function {
  struct digest function;
  json_t *keys; /* an array of arrays of texts */
};
#define RECORD_OF struct wanted_function
static const struct field function_fields[] = {
    MEMBER(DIGEST, function, FIELD_REQUIRED, .about = "the closure of the function"),
    MEMBER(JSON, keys, FIELD_REQUIRED | FIELD_ARRAY, .most = CHOICES_KEYS_MAX,
           .schema = "{\"type\": \"array\", \"items\": {\"type\": \"array\", \"items\": "
                     "{\"type\": \"string\"}}}",
           .about = "the autotuner's keys, each value as Python's repr writes it"),
};
#undef RECORD_OF
static const struct record function_record = RECORD(NULL, struct wanted_function, function_fields);

struct wanted_choices {
  RECORD_ARRAY(struct wanted_function, n, functions);
};
#define RECORD_OF struct wanted_choices
static const struct field wanted_fields[] = {
    MEMBER_AS("functions", RECORDS, n, FIELD_REQUIRED, .least = 1, .most = CHOICES_FUNCTIONS_MAX,
              .of = &function_record),
};
#undef RECORD_OF
const struct record choices_request_record =
    RECORD("ChoicesRequest", struct wanted_choices, wanted_fields);

/* A key that is no array of texts is refused whether or not there are choices for its function. */
static bool wanted_read(const json_t *json, struct wanted_choices *ret, struct error *error) {
  if (!record_read(&choices_request_record, json, "", ret, error))
    return false;

  for (size_t i = 0; i < ret->n; i++) {
    char function[JSON_POINTER_SIZE], keys[JSON_POINTER_SIZE], at[JSON_POINTER_SIZE];
    const json_t *key, *text;
    size_t j, k;
    json_pointer_index(function, sizeof function, "/functions", i);
    json_pointer_member(keys, sizeof keys, function, "keys");
    json_array_foreach (ret->functions[i].keys, j, key) {
      bool is_key = json_is_array(key);
      json_array_foreach (key, k, text)
        is_key = is_key && json_is_string(text);
      if (!is_key)
        return error_at(error, json_pointer_index(at, sizeof at, keys, j),
                        "a key must be an array of strings, each value as Python's repr writes it");
    }
  }
  return true;
}

/* Where choices are looked up, and the members of the answer. */
struct chooser {
  const json_t *of_release, *all_code;
  json_t *choices, *code;
  json_t *names; /* "closure key" of those that were looked up */
};

/* Adds the release's choice for a key. A repeated key has one choice: otherwise a small request
 * could have an answer of any size. */
static void choice_add(struct chooser *chooser, const char *closure, json_t *key) {
  cleanup_free char *text = json_canonical(key), *name = xasprintf("%s %s", closure, text);
  const json_t *choice = json_object_get(chooser->of_release, name);
  if (!choice || !set_add(chooser->names, name))
    return;

  const char *folder = json_string_value(json_object_get(choice, "code"));
  json_push(chooser->choices,
            json_pack("{s:s*, s:O, s:s, s:O, s:O*}", "code", folder, "config",
                      json_object_get(choice, "config"), "function", closure, "key", key,
                      "tuning_ms", json_object_get(choice, "tuning_ms")));
  if (folder)
    json_put(chooser->code, folder, json_incref(json_object_get(chooser->all_code, folder)));
}

bool route_choices_post(struct worker *worker, struct request *request, struct error *error) {
  cleanup_found struct found found = {.server = worker->server};
  struct wanted_choices wanted = {0};
  bool ok =
      wanted_read(request->json, &wanted, error) && found_find(worker, request, &found, error);
  if (ok) {
    struct document *document = found.document;
    cleanup_json json_t *names = json_object();
    struct chooser chooser = {.choices = json_array(), .code = json_object(), .names = names};
    json_t *key;
    if (document) {
      chooser.of_release = document_index(server_documents(worker->server), document);
      chooser.all_code = json_object_get(document->json, "code");
    }

    for (size_t i = 0; i < wanted.n; i++) {
      char closure[DIGEST_TEXT_SIZE];
      size_t j;
      digest_format(&wanted.functions[i].function, closure);
      json_array_foreach (wanted.functions[i].keys, j, key)
        choice_add(&chooser, closure, key);
    }
    request_answer_json(request, 200,
                        json_pack("{s:o, s:o}", "choices", chooser.choices, "code", chooser.code));
  }
  record_release(&choices_request_record, &wanted);
  return ok;
}
