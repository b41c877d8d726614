/* Any bytes as a release: what is read is sealed to the same bytes and digest, differs from itself in nothing, and what
 * is rendered from it is canonical JSON. */
#include "common/render.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void check_rendered(const struct release *release) {
  cleanup_rendered struct rendered rendered = {0};
  cleanup_json json_t *json = NULL;
  struct error error;
  if (!render("json", release, &rendered, &error))
    return; /* two kernels of one name */
  ALWAYS(json_parse(rendered.files[0].bytes, rendered.files[0].size, &json, &error));
  cleanup_free char *canonical = json_canonical(json);
  ALWAYS(strcmp(canonical, rendered.files[0].bytes) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  struct error error;
  cleanup_release struct release *release = NULL;
  if (!release_parse((const char *)bytes, size, &release, &error)) {
    cleanup_json json_t *message = json_string(error.message), *pointer = json_string(error.pointer);
    ALWAYS(message != NULL && pointer != NULL && error.message[0]);
    return 0;
  }
  struct digest digest = release->digest;
  cleanup_free char *again = NULL;
  size_t again_size;
  check_rendered(release);
  cleanup_json json_t *diff = release_diff(release, release);
  ALWAYS((size_t)json_integer_value(json_object_get(diff, "same")) == release->n_winners);
  ALWAYS(release_seal(release, &again, &again_size, &error));
  ALWAYS(again_size == size && memcmp(again, bytes, size) == 0);
  ALWAYS(digest_equal(&digest, &release->digest));
  return 0;
}
