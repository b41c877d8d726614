/* The input of renderers: formats, identity, manifests, builds and blobs. */
#include "cli/source.h"

#define SOURCE_MAGIC 0x43535243u
#define BUCKETS 4096 /* a container's cache names a few thousand blobs */
#define BLOB_MAX ((size_t)64 << 20)
#define IDENTITY_DEFAULT "/etc/wavetune/identity.json"

const struct cache_format **formats_of_option(const struct options *options, size_t *ret_n) {
  static const char *const standard[] = {"json"};
  const char *const *names;
  size_t n_names = option_list(options, "format", &names), n = 0;
  if (n_names == 0) {
    names = standard;
    n_names = 1;
  }

  const struct cache_format **formats = xcalloc(n_names, sizeof *formats);
  struct error error;
  for (size_t i = 0; i < n_names; i++) {
    if (!cache_format_find(names[i], &formats[n], &error))
      cli_fail_in(EXIT_USAGE, &error, "--format: ");
    size_t first = 0;
    while (formats[first] != formats[n])
      first++;
    n += first == n;
  }

  *ret_n = n;
  return formats;
}

struct identity *identity_of_option(const struct options *options) {
  const char *path = option_text(options, "identity");
  struct identity *identity = NULL;
  cleanup_json json_t *json = NULL;
  struct error error;
  if (!path && access(IDENTITY_DEFAULT, F_OK) != 0)
    return NULL;
  if (!path)
    path = IDENTITY_DEFAULT;
  if (!json_parse_file(path, IDENTITY_SIZE_MAX, &json, &error))
    cli_fail(EXIT_USAGE, &error);
  if (!identity_parse(json, &identity, &error))
    cli_fail_in(EXIT_USAGE, &error, "%s: ", path);
  return identity;
}

json_t *skipped_to_json(const struct cache_files *files) {
  json_t *all = json_array();
  for (size_t i = 0; i < files->n_skipped; i++) {
    const struct cache_skipped *one = &files->skipped[i];
    json_push(all, json_pack("{s:s, s:s?, s:s}", "name", one->name, "key", one->key, "reason",
                             one->reason));
  }
  return all;
}

enum kind { KIND_KERNEL, KIND_BUILD, KIND_BLOB };

/* A kernel, build or blob that was downloaded. */
struct cached {
  struct cached *next;
  enum kind kind; /* a blob may hold a manifest's bytes, and so have its digest */
  struct digest digest;
  struct kernel *kernel; /* one of the next three, by kind */
  struct build *build;
  char *bytes;
  size_t size;
};

struct http_source {
  uint32_t magic;
  struct cache_source interface;
  struct http_client *client;
  int64_t deadline_ms, waited_ns;
  struct cached *buckets[BUCKETS];
  bool has_failed;
  struct error failure; /* has_failed only */
};

static void cached_release(struct cached *cached) {
  if (cached->kernel)
    kernel_free(cached->kernel);
  if (cached->build)
    build_free(cached->build);
  free(cached->bytes);
}

/* Makes the source fail from now on. Returns NULL. */
static struct cached *fail(struct http_source *source, const struct error *error) {
  source->has_failed = true;
  source->failure = *error;
  return NULL;
}

/* The kernel, build or blob with this digest, downloaded and verified when it is new. `kernel` is
 * used for a build only. NULL: the server does not have it, or the source has failed. */
static struct cached *cached_get(void *context, enum kind kind, const struct digest *digest,
                                 const struct kernel *kernel, struct error *error) {
  static const char *const names[] = {"kernel", "build", "blob"};
  struct http_source *source = context;
  MAGIC_CHECK(source, SOURCE_MAGIC);
  struct cached **bucket = &source->buckets[(digest->bytes[0] | digest->bytes[1] << 8) % BUCKETS];

  for (struct cached *cached = *bucket; cached; cached = cached->next)
    if (cached->kind == kind && digest_equal(&cached->digest, digest))
      return cached;
  if (!http_source_check(source, error))
    return NULL;

  const char *text = DIGEST_TEXT(digest);
  cleanup_free char *path =
      kind == KIND_BUILD ? xasprintf("/v1/kernels/%s/builds/%s", DIGEST_TEXT(&kernel->hash), text)
                         : xasprintf("/v1/%ss/%s", names[kind], text);
  struct http_request request = {.method = "GET", .path = path, .response_max = BLOB_MAX};
  cleanup_http_response struct http_response response = {0};
  int64_t begin_ns = clock_monotonic_ns();
  if (source->deadline_ms) {
    request.timeout_ms = source->deadline_ms - begin_ns / 1000000;
    if (request.timeout_ms <= 0) {
      error_of(error, ERROR_DEADLINE, "the time budget was used up before %s arrived", path);
      return fail(source, error);
    }
  }

  bool is_answered = http_send(source->client, &request, &response, error);
  source->waited_ns += clock_monotonic_ns() - begin_ns;
  if (!is_answered)
    return fail(source, error);
  if (response.status != 200) {
    error_of(error, error_kind_of_http(response.status), "the server answered %d to %s",
             response.status, path);
    http_error_name_request(&response, error);
    return error->kind == ERROR_MISSING ? NULL : fail(source, error);
  }

  struct cached new = {.kind = kind};
  bool is_read = kind == KIND_BLOB;
  struct error reason = {0}; /* stays empty where the bytes can be read */
  cleanup_json json_t *json = NULL;
  if (kind == KIND_BLOB) {
    new.digest = digest_of(response.body, response.size);
    new.size = response.size;
    new.bytes = TAKE(response.body);
  } else if (json_parse(response.body, response.size, &json, &reason)) {
    is_read = kind == KIND_BUILD
                  ? build_parse(json, kernel, &new.build, &reason)
                  : kernel_parse(json_object_get(json, "manifest"), &new.kernel, &reason);
    if (is_read)
      new.digest = kind == KIND_BUILD ? new.build->digest : new.kernel->hash;
  }

  if (is_read && digest_equal(&new.digest, digest)) {
    new.next = *bucket;
    return *bucket = xmemdup(&new, sizeof new);
  }

  cached_release(&new);
  error_of(error, ERROR_TAMPERED, "%s %s arrived with other bytes%s%s; it was not used",
           names[kind], text, reason.message[0] ? ": " : "", reason.message);
  return fail(source, error);
}

static bool source_kernel(void *context, const struct digest *hash, const struct kernel **ret,
                          struct error *error) {
  const struct cached *cached = cached_get(context, KIND_KERNEL, hash, NULL, error);
  if (cached)
    *ret = cached->kernel;
  return cached;
}

static bool source_build(void *context, const struct kernel *kernel, const struct digest *digest,
                         const struct build **ret, struct error *error) {
  const struct cached *cached = cached_get(context, KIND_BUILD, digest, kernel, error);
  if (cached)
    *ret = cached->build;
  return cached;
}

static bool source_blob(void *context, const struct digest *digest, const char **ret_bytes,
                        size_t *ret_size, struct error *error) {
  const struct cached *cached = cached_get(context, KIND_BLOB, digest, NULL, error);
  if (cached) {
    *ret_bytes = cached->bytes;
    *ret_size = cached->size;
  }
  return cached;
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
  for (size_t i = 0; i < BUCKETS; i++)
    for (struct cached *cached = source->buckets[i], *next; cached; cached = next) {
      next = cached->next;
      cached_release(cached);
      free(cached);
    }
  source->magic = 0;
  free(source);
}

const struct cache_source *http_source_interface(struct http_source *source) {
  return &source->interface;
}

bool http_source_check(const struct http_source *source, struct error *error) {
  if (source->has_failed)
    *error = source->failure;
  return !source->has_failed;
}

int64_t http_source_waited_ns(const struct http_source *source) { return source->waited_ns; }
