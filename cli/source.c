/* Manifests, builds and blobs over HTTP, verified, in memory. Memory and threads: source.h. */
#include "cli/source.h"

#define SOURCE_MAGIC 0x43535243u
#define BUCKETS 4096 /* a container's cache names a few thousand blobs */
#define BLOB_MAX ((size_t)64 << 20)

enum kind { KIND_KERNEL, KIND_BUILD, KIND_BLOB };

struct held {
  struct held *next;
  enum kind kind; /* a blob may hold a manifest's bytes, and so have its digest */
  struct digest digest;
  struct kernel *kernel; /* by kind */
  struct build *build;
  char *bytes;
  size_t size;
};

struct http_source {
  uint32_t magic;
  struct cache_source interface;
  struct http_client *client;
  int64_t deadline_ms, waited_ns;
  struct held *buckets[BUCKETS];
  bool has_failed;
  struct error failure; /* then */
};

static struct held **bucket(struct http_source *source, const struct digest *digest) {
  return &source->buckets[(digest->bytes[0] | digest->bytes[1] << 8) % BUCKETS];
}

static struct held *held_find(struct http_source *source, enum kind kind,
                              const struct digest *digest) {
  struct held *held = *bucket(source, digest);
  while (held && (held->kind != kind || !digest_equal(&held->digest, digest)))
    held = held->next;
  return held;
}

static struct held *held_add(struct http_source *source, struct held held) {
  struct held **first = bucket(source, &held.digest);
  held.next = *first;
  *first = xmemdup(&held, sizeof held);
  return *first;
}

/* Ends the source. Returns false. */
static bool fail(struct http_source *source, const struct error *error) {
  source->has_failed = true;
  source->failure = *error;
  return false;
}

/* A 200 answer in *ret; else false, and what is not just missing ends the source. */
static bool get(struct http_source *source, const char *path, struct http_response *ret,
                struct error *error) {
  struct http_request request = {.method = "GET", .path = path, .response_max = BLOB_MAX};
  int64_t begin_ns = clock_monotonic_ns();
  if (!http_source_is_whole(source, error))
    return false;
  if (source->deadline_ms) {
    request.timeout_ms = source->deadline_ms - begin_ns / 1000000;
    if (request.timeout_ms <= 0) {
      error_of(error, ERROR_DEADLINE, "the time budget is used up before %s was there", path);
      return fail(source, error);
    }
  }
  bool is_answered = http_send(source->client, &request, ret, error);
  source->waited_ns += clock_monotonic_ns() - begin_ns;
  if (!is_answered)
    return fail(source, error);
  if (ret->status == 200)
    return true;
  error_of(error, error_kind_of_http(ret->status), "the server answered %d to %s", ret->status,
           path);
  http_error_name_request(ret, error);
  return error->kind == ERROR_MISSING ? false : fail(source, error);
}

/* `error` says why not, or is NULL: the bytes are others. */
static bool tampered(struct http_source *source, const char *what, const struct digest *digest,
                     const struct error *reason, struct error *error) {
  char text[DIGEST_TEXT_SIZE];
  struct error said;
  error_of(&said, ERROR_TAMPERED, "%s %s arrived with other bytes%s%s; it was not used", what,
           digest_format(digest, text), reason ? ": " : "", reason ? reason->message : "");
  *error = said;
  return fail(source, error);
}

static bool source_kernel(void *context, const struct digest *hash, const struct kernel **ret,
                          struct error *error) {
  struct http_source *source = context;
  char text[DIGEST_TEXT_SIZE];
  MAGIC_CHECK(source, SOURCE_MAGIC);
  struct held *held = held_find(source, KIND_KERNEL, hash);
  if (!held) {
    cleanup_free char *path = xasprintf("/v1/kernels/%s", digest_format(hash, text));
    cleanup_http_response struct http_response response = {0};
    cleanup_json json_t *answer = NULL;
    struct kernel *kernel = NULL;
    struct error reason;
    if (!get(source, path, &response, error))
      return false;
    if (!json_parse(response.body, response.size, &answer, &reason) ||
        !kernel_parse(json_object_get(answer, "manifest"), &kernel, &reason))
      return tampered(source, "kernel", hash, &reason, error);
    held = held_add(source,
                    (struct held){.kind = KIND_KERNEL, .digest = kernel->hash, .kernel = kernel});
    if (!digest_equal(&kernel->hash, hash))
      return tampered(source, "kernel", hash, NULL, error);
  }
  *ret = held->kernel;
  return true;
}

static bool source_build(void *context, const struct kernel *kernel, const struct digest *digest,
                         const struct build **ret, struct error *error) {
  struct http_source *source = context;
  char text[DIGEST_TEXT_SIZE], kernel_text[DIGEST_TEXT_SIZE];
  MAGIC_CHECK(source, SOURCE_MAGIC);
  struct held *held = held_find(source, KIND_BUILD, digest);
  if (!held) {
    cleanup_free char *path =
        xasprintf("/v1/kernels/%s/builds/%s", digest_format(&kernel->hash, kernel_text),
                  digest_format(digest, text));
    cleanup_http_response struct http_response response = {0};
    cleanup_json json_t *json = NULL;
    struct build *build = NULL;
    struct error reason;
    if (!get(source, path, &response, error))
      return false;
    if (!json_parse(response.body, response.size, &json, &reason) ||
        !build_parse(json, kernel, &build, &reason))
      return tampered(source, "build", digest, &reason, error);
    held = held_add(source,
                    (struct held){.kind = KIND_BUILD, .digest = build->digest, .build = build});
    if (!digest_equal(&build->digest, digest))
      return tampered(source, "build", digest, NULL, error);
  }
  *ret = held->build;
  return true;
}

static bool source_blob(void *context, const struct digest *digest, const char **ret_bytes,
                        size_t *ret_size, struct error *error) {
  struct http_source *source = context;
  char text[DIGEST_TEXT_SIZE];
  MAGIC_CHECK(source, SOURCE_MAGIC);
  struct held *held = held_find(source, KIND_BLOB, digest);
  if (!held) {
    cleanup_free char *path = xasprintf("/v1/blobs/%s", digest_format(digest, text));
    cleanup_http_response struct http_response response = {0};
    if (!get(source, path, &response, error))
      return false;
    struct digest found = digest_of(response.body, response.size);
    if (!digest_equal(&found, digest))
      return tampered(source, "blob", digest, NULL, error);
    held = held_add(source, (struct held){.kind = KIND_BLOB,
                                          .digest = found,
                                          .bytes = response.body,
                                          .size = response.size});
    response.body = NULL;
  }
  *ret_bytes = held->bytes;
  *ret_size = held->size;
  return true;
}

struct http_source *http_source_new(struct http_client *client, int64_t deadline_ms) {
  struct http_source *source = xcalloc(1, sizeof *source);
  source->magic = SOURCE_MAGIC;
  source->client = client;
  source->deadline_ms = deadline_ms;
  source->interface = (struct cache_source){
      .context = source, .kernel = source_kernel, .build = source_build, .blob = source_blob};
  return source;
}

void http_source_free(struct http_source *source) {
  for (size_t i = 0; i < BUCKETS; i++) {
    for (struct held *held = source->buckets[i], *next; held; held = next) {
      next = held->next;
      if (held->kernel)
        kernel_free(held->kernel);
      if (held->build)
        build_free(held->build);
      free(held->bytes);
      free(held);
    }
  }
  source->magic = 0;
  free(source);
}

const struct cache_source *http_source_interface(struct http_source *source) {
  return &source->interface;
}

bool http_source_is_whole(const struct http_source *source, struct error *error) {
  if (source->has_failed)
    *error = source->failure;
  return !source->has_failed;
}

int64_t http_source_waited_ns(const struct http_source *source) { return source->waited_ns; }
