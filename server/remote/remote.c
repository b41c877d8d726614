/* Reads and writes compiled code for programs. Memory and threads: remote.h. */
#include "server/remote/remote.h"

#include "common/base/log.h"
#include "common/builds/function_record.h"
#include "common/cache/format.h"
#include "common/cache/text.h"
#include "server/blob/blobs.h"
#include "server/choice/documents.h"
#include "server/db/db_record.h"
#include "server/http/request.h"
#include "server/remote/remote.sql.h"
#include "server/remote/values.h"

bool remote_name_check(const char *name, struct error *error) {
  size_t size = strlen(name);
  if (size < 1 || size > REMOTE_NAME_MAX || strchr(name, '/') || name[0] == '.')
    return error_set(error, "\"%.60s\" is not the name of a file in Triton's cache", name);
  return !string_ends(name, ".so") ||
         error_set(error, "\"%.60s\" is native code for the host, which only a release may have",
                   name);
}

bool remote_group_check(const char *bytes, size_t size, struct error *error) {
  const char *end = memchr(bytes, '\n', size < REMOTE_HEAD_MAX ? size : REMOTE_HEAD_MAX);
  cleanup_json json_t *head = NULL, *names = json_object();
  const json_t *entry;
  size_t i, total = 0;
  if (!end || !json_parse(bytes, (size_t)(end - bytes), &head, error) || !json_is_array(head) ||
      json_array_size(head) < 1 || json_array_size(head) > REMOTE_FILES_MAX)
    return error_set(error,
                     "a group begins with a line [[NAME, SIZE], …] of 1 to %d files, and their "
                     "bytes follow",
                     REMOTE_FILES_MAX);

  json_array_foreach (head, i, entry) {
    const char *name = json_string_value(json_array_get(entry, 0));
    json_int_t bytes_n = json_integer_value(json_array_get(entry, 1));
    if (!name || json_array_size(entry) != 2 || bytes_n < 0 || (size_t)bytes_n > size)
      return error_set(error, "file %zu of the group is not [NAME, SIZE]", i + 1);
    if (!remote_name_check(name, error))
      return false;
    if (!set_add(names, name))
      return error_set(error, "the group has \"%.60s\" twice", name);
    total += (size_t)bytes_n;
  }

  size_t there = size - (size_t)(end + 1 - bytes);
  return total == there ||
         error_set(error, "the group's files have %zu bytes, and %zu follow", total, there);
}

bool remote_shares_check(const struct server_options *options, struct error *error) {
  for (size_t i = 0; i < options->n_remote_shares; i++)
    if (!strchr(options->remote_shares[i], '/'))
      return error_set(error,
                       "--remote-share \"%.100s\" is not TOKEN/IMAGE: the name of a token, and the "
                       "image as its containers state it",
                       options->remote_shares[i]);
  return true;
}

bool remote_share_is(const char *share, const char *token, const char *image) {
  const char *slash = strchr(share, '/');
  return slash && (size_t)(slash - share) == strlen(token) &&
         strncmp(share, token, strlen(token)) == 0 && strcmp(slash + 1, image) == 0;
}

/* A group, or one file, as the path and query name it. */
struct place {
  const char *folder, *name, *image;
  bool is_group, has_release;
  struct digest release;
};

/* Reads the place from the path and query. */
static bool place_read(struct request *request, bool is_group, struct place *ret,
                       struct error *error) {
  const char *image = request_query(request, "image"), *release = request_query(request, "release");
  *ret = (struct place){.folder = request->segments[0],
                        .name = request->segments[1],
                        .image = image ? image : "",
                        .is_group = is_group,
                        .has_release = release != NULL};
  if (!triton_folder_is_valid(ret->folder, strlen(ret->folder)))
    return error_set(error, "\"%.60s\" is not a folder of Triton's cache: 52 characters of base32",
                     ret->folder);
  if (strlen(ret->image) > REMOTE_IMAGE_MAX)
    return error_set(error, "the name of an image has at most %d bytes", REMOTE_IMAGE_MAX);
  if (release && !digest_parse(release, &ret->release))
    return error_set(error, "release=%.80s is no digest, sha256:…", release);
  return remote_name_check(ret->name, error);
}

/* A program's list of what it needed at its start (REMOTE_LIST). A later list replaces it, so it is
 * not cached. All other files stay as they were first written. */
static bool place_is_list(const struct place *place) {
  return !place->is_group && string_equal(place->name, REMOTE_LIST);
}

#define BIND_PLACE(request, place)                                                                 \
  BIND("token", (request)->token_id), BIND("image", (place)->image),                               \
      BIND("folder", (place)->folder), BIND("name", (place)->name),                                \
      parameter_bool("is_group", (place)->is_group)

static bool place_is_missing(const struct place *place, struct error *error) {
  return error_of(error, ERROR_MISSING, "%s of the folder %s is not stored", place->name,
                  place->folder);
}

/* The files of a build that are sent. */
struct files {
  size_t n, capacity, size; /* `size`: their bytes together */
  struct blob **all;
  json_t *head; /* [[NAME, SIZE], …] */
};

static void files_release(struct files *files) {
  for (size_t i = 0; i < files->n; i++)
    blob_unreference(files->all[i]);
  free(files->all);
  json_decref(files->head);
}
#define cleanup_files __attribute__((cleanup(files_release)))

/* The body of a group, or of one file. */
static char *files_join(const struct files *files, bool is_group, size_t *ret_size) {
  cleanup_free char *line = is_group ? json_canonical(files->head) : NULL;
  size_t at = line ? strlen(line) + 1 : 0;
  char *body = xmalloc(at + files->size + 1);
  if (line)
    snprintf(body, at + 1, "%s\n", line);
  for (size_t i = 0; i < files->n; at += files->all[i++]->size)
    memcpy(body + at, files->all[i]->bytes, files->all[i]->size);
  *ret_size = at;
  return body;
}

/* The digests of the folder's files by their names, as the choices of the release state them, in
 * *ret; NULL: they do not, or there is no such release. */
static bool files_find(struct worker *worker, const struct place *place, json_t **ret,
                       struct error *error) {
  struct documents *documents = server_documents(worker->server);
  struct document *document;
  *ret = NULL;
  if (!document_get(worker, &place->release, &document, error))
    return error->kind == ERROR_MISSING;
  document_index(documents, document); /* parses it */
  *ret = json_incref(json_object_get(json_object_get(document->json, "code"), place->folder));
  document_put(documents, document);
  return true;
}

/* Answers with the files of the release that the read names. *ret_has: it names one that has
 * them. */
static bool release_answer(struct worker *worker, struct request *request,
                           const struct place *place, bool *ret_has, struct error *error) {
  cleanup_json json_t *names = NULL;
  cleanup_files struct files files = {.head = json_array()};
  const char *name;
  json_t *value;
  *ret_has = false;
  if (!place->has_release)
    return true;
  if (!files_find(worker, place, &names, error))
    return false;
  if (!json_object_get(names, place->name))
    return true;

  json_object_foreach (names, name, value) {
    struct digest digest;
    struct blob *blob = NULL;
    if (!place->is_group && strcmp(name, place->name) != 0)
      continue;
    if (!json_get_digest(names, "", name, JSON_REQUIRED, &digest, error) ||
        !blob_load(worker, &digest, &blob, error))
      return false;
    if (!blob) /* it was collected: its build was removed */
      return true;

    GROW(files.all, files.n, files.capacity);
    files.all[files.n++] = blob;
    files.size += blob->size;
    if (files.size > REMOTE_BODY_MAX)
      return place_is_missing(place, error);
    json_push(files.head, json_pack("[s, I]", name, (json_int_t)blob->size));
  }

  char etag[DIGEST_TEXT_SIZE];
  size_t size;
  char *body = files_join(&files, place->is_group, &size);
  struct digest digest = digest_of(body, size);
  /* Not immutable: a build may be removed. */
  request_answer_cached(request, RESPONSE_OF_CHANNELS, "application/octet-stream", body, size,
                        digest_format(&digest, etag), NULL);
  *ret_has = true;
  return true;
}

/* Whether the operator opened the namespace of the token and this image. */
static bool namespace_is_open(const struct request *request, const char *image) {
  const struct server_options *options = server_options(request->server);
  for (size_t i = 0; i < options->n_remote_shares; i++)
    if (remote_share_is(options->remote_shares[i], request->token_name, image))
      return true;
  return false;
}

/* Answers with what a container with the same token and image wrote. */
static bool shared_answer(struct worker *worker, struct request *request, const struct place *place,
                          struct error *error) {
  char etag[DIGEST_TEXT_SIZE];
  size_t size;
  cleanup_rows struct db_rows *rows =
      db_query(worker->db, &sql_remote_read, error, BIND_PLACE(request, place));
  if (!rows)
    return false;
  if (!db_count(rows))
    return place_is_missing(place, error);

  if (db_get_bool(rows, 0, "is_old") &&
      !db_execute(worker->db, &sql_remote_used, error, BIND_PLACE(request, place)))
    log_warning("remote: %s", error->message);

  cleanup_free uint8_t *bytes = db_get_bytes(rows, 0, "bytes", &size);
  struct digest digest = digest_of(bytes, size);
  if (place_is_list(place)) {
    request_add_header(request, "Wavetune-Origin", "shared");
    return request_answer_entity(request, "application/octet-stream", (char *)TAKE(bytes), size,
                                 digest_format(&digest, etag), false);
  }
  return request_answer_cached(request, RESPONSE_OF_TOKEN, "application/octet-stream",
                               (char *)TAKE(bytes), size, digest_format(&digest, etag), "shared");
}

static bool place_get(struct worker *worker, struct request *request, bool is_group,
                      struct error *error) {
  struct place place;
  bool has_it;
  if (!place_read(request, is_group, &place, error) ||
      !release_answer(worker, request, &place, &has_it, error))
    return false;
  return has_it ||
         (namespace_is_open(request, place.image) ? shared_answer(worker, request, &place, error)
                                                  : place_is_missing(&place, error));
}

/* Stores the request's body. Answers 204 whether or not it was stored: a program does the same in
 * both cases. */
static bool body_store(struct worker *worker, struct request *request, const struct place *place,
                       struct error *error) {
  if (!db_execute(worker->db, &sql_remote_write, error, BIND_PLACE(request, place),
                  parameter_bool("is_list", place_is_list(place)),
                  parameter_bytes("bytes", request->body ? request->body : "", request->body_size),
                  BIND("file_cost", REMOTE_FILE_COST),
                  BIND("bytes_max", server_options(worker->server)->remote_bytes)))
    return false;
  return request_answer_empty(request, 204);
}

static bool place_put(struct worker *worker, struct request *request, bool is_group,
                      struct error *error) {
  struct place place;
  const char *body = request->body ? request->body : "";
  if (!place_read(request, is_group, &place, error))
    return false;
  if (is_group && !remote_group_check(body, request->body_size, error))
    return false;
  if (place_is_list(&place) && request->body_size > REMOTE_LIST_MAX)
    return error_set(error, "%s has at most %d bytes", REMOTE_LIST, REMOTE_LIST_MAX);

  return body_store(worker, request, &place, error);
}

bool route_remote_group_get(struct worker *worker, struct request *request, struct error *error) {
  return place_get(worker, request, true, error);
}

bool route_remote_group_put(struct worker *worker, struct request *request, struct error *error) {
  return place_put(worker, request, true, error);
}

bool route_remote_file_get(struct worker *worker, struct request *request, struct error *error) {
  return place_get(worker, request, false, error);
}

bool route_remote_file_put(struct worker *worker, struct request *request, struct error *error) {
  return place_put(worker, request, false, error);
}

/* The values of one program, such as "inductor", on one kind of hardware. */
struct shelf {
  char *folder; /* the program and the hardware, with a ":", which no folder of Triton has */
  const char *image;
};

static void shelf_release(struct shelf *shelf) { free(shelf->folder); }
#define cleanup_shelf __attribute__((cleanup(shelf_release)))

/* Reads it from the query. */
static bool shelf_read(struct request *request, const char *program, struct shelf *ret,
                       struct error *error) {
  const char *hardware = request_query(request, "hardware"),
             *image = request_query(request, "image");
  if (!hardware || !*hardware || strlen(hardware) > REMOTE_IMAGE_MAX ||
      (image && strlen(image) > REMOTE_IMAGE_MAX))
    return error_set(error,
                     "the query must have hardware, and hardware and image at most %d bytes each",
                     REMOTE_IMAGE_MAX);
  *ret = (struct shelf){xasprintf("%s:%s", program, hardware), image ? image : ""};
  return true;
}

/* Reads the place of a value from the path and query. */
static bool value_place_read(struct request *request, const char *program, struct shelf *ret_shelf,
                             struct place *ret, struct error *error) {
  if (!remote_key_is_valid(request->segments[0]))
    return error_set(error, "a key is 64 lower-case hex digits");
  if (!shelf_read(request, program, ret_shelf, error))
    return false;
  *ret = (struct place){
      .folder = ret_shelf->folder, .name = request->segments[0], .image = ret_shelf->image};
  return true;
}

/* Is 403, after which a program requests no more configs. For code it would be 404, as for a
 * file that is not stored. */
static bool open_check(const struct request *request, const char *image, struct error *error) {
  return namespace_is_open(request, image) ||
         error_of(error, ERROR_FORBIDDEN,
                  "the containers of this token and image do not share what they find "
                  "(serve --remote-share)");
}

static bool value_get(struct worker *worker, struct request *request, const char *program,
                      struct error *error) {
  cleanup_shelf struct shelf shelf = {0};
  struct place place;
  return value_place_read(request, program, &shelf, &place, error) &&
         open_check(request, place.image, error) && shared_answer(worker, request, &place, error);
}

/* Does not store a config in a closed namespace: the server would never serve it. */
static bool value_put(struct worker *worker, struct request *request, const char *program,
                      bool (*check)(const json_t *json, struct error *error), struct error *error) {
  cleanup_shelf struct shelf shelf = {0};
  struct place place;
  if (!value_place_read(request, program, &shelf, &place, error) || !check(request->json, error))
    return false;
  if (namespace_is_open(request, place.image))
    return body_store(worker, request, &place, error);
  return request_answer_empty(request, 204);
}

bool route_remote_inductor_get(struct worker *worker, struct request *request,
                               struct error *error) {
  return value_get(worker, request, "inductor", error);
}

bool route_remote_inductor_put(struct worker *worker, struct request *request,
                               struct error *error) {
  return value_put(worker, request, "inductor", remote_inductor_check, error);
}

bool route_remote_helion_get(struct worker *worker, struct request *request, struct error *error) {
  return value_get(worker, request, "helion", error);
}

bool route_remote_helion_put(struct worker *worker, struct request *request, struct error *error) {
  return value_put(worker, request, "helion", remote_helion_check, error);
}

bool route_remote_helion_list(struct worker *worker, struct request *request, struct error *error) {
  const char *newest = request_query(request, "newest");
  cleanup_shelf struct shelf shelf = {0};
  int n = 0, end = 0;
  if (!shelf_read(request, "helion", &shelf, error))
    return false;
  if (!newest || sscanf(newest, "%4d%n", &n, &end) != 1 || newest[end] || n < 1 ||
      n > REMOTE_NEWEST_MAX)
    return error_set(error, "newest must be 1 to %d", REMOTE_NEWEST_MAX);
  if (!open_check(request, shelf.image, error))
    return false;

  cleanup_rows struct db_rows *rows =
      db_query(worker->db, &sql_remote_newest, error, BIND("token", request->token_id),
               BIND("image", shelf.image), BIND("folder", shelf.folder), BIND("newest", n));
  if (!rows)
    return false;

  cleanup_text struct text text = {0};
  text_add_string(&text, "[");
  for (int i = 0; i < db_count(rows); i++) {
    size_t size;
    cleanup_free uint8_t *bytes = db_get_bytes(rows, i, "bytes", &size);
    text_add_string(&text, i ? "," : "");
    text_add(&text, (const char *)bytes, size);
  }
  text_add_string(&text, "]");
  size_t size;
  char *body = text_finish(&text, &size);
  return request_answer_text(request, 200, "application/json", body, size);
}

void remote_housekeep(struct worker *worker) {
  struct error error;
  if (!db_execute(worker->db, &sql_remote_collect, &error, BIND("days", REMOTE_DAYS),
                  BIND("at_once", REMOTE_AT_ONCE)))
    log_warning("remote: %s", error.message);
}
