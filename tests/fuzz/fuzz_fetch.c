/* What a server sends to `wavetune fetch`: {"entry": …, "release": …, "kernels": [manifests],
 * "builds": […], "blob": "…"}, with what the container has: {"state": …, "identity": …}. Digests
 * are made to match, as a forging server can do where no signature is required. What is verified is
 * rendered by all formats, which abort when a path leaves the folder. */
#include "cli/fetch.h"
#include "tests/fuzz/fuzz.h"

#define DOCUMENTS_MAX 8

struct sent {
  size_t n;
  struct kernel *kernels[DOCUMENTS_MAX];
  struct build *builds[DOCUMENTS_MAX]; /* of the kernel with the same index; NULL: none */
  const char *blob;
};

static bool sent_kernel(void *context, const struct digest *hash, const struct kernel **ret,
                        struct error *error) {
  const struct sent *sent = context;
  for (size_t i = 0; i < sent->n; i++) {
    if (digest_equal(&sent->kernels[i]->hash, hash)) {
      *ret = sent->kernels[i];
      return true;
    }
  }
  return error_set(error, "no such kernel");
}

static bool sent_build(void *context, const struct kernel *kernel, const struct digest *digest,
                       const struct build **ret, struct error *error) {
  const struct sent *sent = context;
  for (size_t i = 0; i < sent->n; i++) {
    if (sent->kernels[i] == kernel && sent->builds[i] &&
        digest_equal(&sent->builds[i]->digest, digest)) {
      *ret = sent->builds[i];
      return true;
    }
  }
  return error_set(error, "no such build");
}

static bool sent_blob(void *context, const struct digest *digest, const char **ret_bytes,
                      size_t *ret_size, struct error *error) {
  const struct sent *sent = context;
  (void)digest;
  if (!sent->blob)
    return error_set(error, "no such blob");
  *ret_bytes = sent->blob;
  *ret_size = strlen(sent->blob);
  return true;
}

/* Reads the manifests and builds, and writes their digests into the release. */
static void sent_read(const json_t *input, struct sent *sent) {
  const json_t *kernels = json_object_get(input, "kernels"),
               *builds = json_object_get(input, "builds");
  const json_t *of_release = json_object_get(json_object_get(input, "release"), "kernels");
  const json_t *records = json_object_get(json_object_get(input, "identity"), "functions");
  struct error ignored;

  sent->blob = json_string_value(json_object_get(input, "blob"));
  for (size_t i = 0; i < json_array_size(kernels) && sent->n < DOCUMENTS_MAX; i++) {
    struct kernel *kernel;
    if (!kernel_parse(json_array_get(kernels, i), &kernel, &ignored))
      continue;
    sent->kernels[sent->n] = kernel;
    json_t *named = json_array_get(of_release, sent->n), *build = json_array_get(builds, i);
    if (json_is_object(named))
      ALWAYS(json_object_set_new(named, "kernel", json_digest_text(&kernel->hash)) == 0);
    if (json_is_object(build))
      ALWAYS(json_object_set_new(build, "kernel", json_digest_text(&kernel->hash)) == 0);
    if (json_is_object(json_array_get(records, sent->n)))
      ALWAYS(json_object_set_new(json_array_get(records, sent->n), "kernel",
                                 json_digest_text(&kernel->hash)) == 0);
    json_t *provenance = json_array_get(json_object_get(named, "provenance"), 0);
    if (json_is_object(build) && build_parse(build, kernel, &sent->builds[sent->n], &ignored) &&
        json_is_object(provenance))
      ALWAYS(json_object_set_new(provenance, "build",
                                 json_digest_text(&sent->builds[sent->n]->digest)) == 0);
    sent->n++;
  }
}

static void sent_release(struct sent *sent) {
  for (size_t i = 0; i < sent->n; i++) {
    if (sent->builds[i])
      build_free(sent->builds[i]);
    kernel_free(sent->kernels[i]);
  }
}

static void release_render(const struct release *release, struct sent *sent,
                           const struct identity *identity) {
  struct cache_source source = {
      .context = sent, .kernel = sent_kernel, .build = sent_build, .blob = sent_blob};
  struct render_request request = {
      .release = release, .source = &source, .identity = identity, .root = "/cache/0123/format"};

  for (size_t i = 0; cache_formats[i]; i++) {
    cleanup_cache_files struct cache_files files = {0};
    struct error error = {0};
    if (!cache_formats[i]->render(&request, &files, &error))
      check_refusal(&error);
  }
}

static void entry_take(struct fetch *fetch, const json_t *input, struct sent *sent) {
  json_t *json = json_object_get(input, "entry");
  cleanup_channel_entry struct channel_entry entry = {0};
  cleanup_release struct release *release = NULL;
  struct error error = {0};
  cleanup_free char *bytes = json_canonical(json_object_get(input, "release"));
  size_t size = strlen(bytes);
  struct digest digest = digest_of(bytes, size);

  ALWAYS(json_object_set_new(json, "release", json_digest_text(&digest)) == 0);
  if (!entry_verify(fetch, json, &entry, &error)) {
    check_refusal(&error);
    return;
  }

  ALWAYS(string_equal(entry.channel, fetch->channel) && string_equal(entry.tag, fetch->tag) &&
         entry.counter >= 1);

  entry_note(fetch, &entry);
  cleanup_channel_entry struct channel_entry again = {0};
  ALWAYS(entry_verify(fetch, json, &again, &error)); /* the recorded entry is accepted again */
  ALWAYS(bytes_verify(fetch, &entry, bytes, size, &error));
  if (!release_verify(fetch, &entry, &bytes, size, &release, &error))
    check_refusal(&error);
  else
    release_render(release, sent, fetch->identity);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  cleanup_json json_t *input = NULL;
  struct error error;

  if (!json_parse((const char *)bytes, size, &input, &error) ||
      !json_is_object(json_object_get(input, "entry")) ||
      !json_is_object(json_object_get(input, "release")))
    return 0;

  struct fetch fetch = {.to = "/cache",
                        .channel = "stable",
                        .tag = "default",
                        .match = CACHE_RULE_COMPATIBLE,
                        .state = json_object()};
  struct sent sent = {0};
  if (json_is_object(json_object_get(input, "state")))
    json_object_update(fetch.state, json_object_get(input, "state"));
  sent_read(input, &sent);
  if (json_is_object(json_object_get(input, "identity")) &&
      !identity_parse(json_object_get(input, "identity"), &fetch.identity, &error))
    fetch.identity = NULL;
  entry_take(&fetch, input, &sent);
  sent_release(&sent);
  if (fetch.identity)
    identity_free(fetch.identity);
  json_decref(fetch.state);
  return 0;
}
