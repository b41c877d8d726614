/* Documents and short texts that several programs read: a line with the name of a parser, then its
 * bytes. What is accepted has the properties that its readers rely on; what can be written again is
 * read as the same. */
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/time.h"
#include "common/builds/build.h"
#include "common/cache/autotuner.h"
#include "common/cache/identity.h"
#include "common/cache/signatures.h"
#include "common/cache/text.h"
#include "tests/fuzz/fuzz.h"

static bool is_part(const char *text) {
  return !text ||
         (text[0] && !strchr(text, '/') && !string_equal(text, ".") && !string_equal(text, ".."));
}

static void check_identity(const json_t *json) {
  cleanup_identity struct identity *identity = NULL, *again = NULL;
  struct error error = {0};
  if (!identity_parse(json, &identity, &error)) {
    check_refusal(&error);
    return;
  }

  ALWAYS(is_part(identity->dejavu_layout) && is_part(identity->dejavu_triton) &&
         is_part(identity->dejavu_runtime) && is_part(identity->dejavu_gpu));
  ALWAYS(!identity->dejavu_layout == !identity->dejavu_gpu);
  ALWAYS(is_part(identity->moe_device_name) && identity->devices >= 0);
  ALWAYS(identity_parse(identity->json, &again, &error));
  ALWAYS(again->n_functions == identity->n_functions);
}

static void check_function_record(const json_t *json) {
  struct function_record record = {0};
  struct error error = {0};
  if (function_record_parse(json, &record, &error)) {
    ALWAYS(record.has_kernel || record.name);
    ALWAYS(record.n_tuning_key == 0 || record.n_tuning_key == record.n_key_names);
    function_record_release(&record);
  } else {
    check_refusal(&error);
  }
}

static void check_launch(const json_t *json) {
  cleanup_build_launch struct build_launch launch = {0};
  struct error error = {0};
  if (!build_launch_read(json, 64, &launch, &error)) {
    check_refusal(&error);
    return;
  }
  ALWAYS(launch.warps >= 1 && launch.warp_size >= 1 && launch.warps * launch.warp_size <= 1 << 20);
  ALWAYS(launch.shared_bytes >= 0 && launch.clusters >= 1);
  ALWAYS(launch.n_scratch >= 0 && launch.n_scratch <= BUILD_SCRATCH_MAX);
  for (size_t i = 0; launch.has_grid && i < 3; i++)
    ALWAYS(launch.grid[i] >= 0);
}

/* The signatures of a kernel, as a server sends them to an agent. */
static void check_signatures(const json_t *json) {
  static struct signing_key key;
  if (!key.pkey)
    ALWAYS(signing_key_of_public_text("11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=", &key,
                                      &(struct error){0}));
  struct trusted_keys keys = {1, &key};
  struct signed_code code = {.kernel = digest_of("k", 1)};
  struct code_signature found = {0};
  struct error error = {0};
  int64_t expires_s = -1;
  if (code_signature_find(&code, json, &keys, 1000, &found, &error))
    ALWAYS(digest_equal(&found.key, &key.id) && (!found.expires_s || found.expires_s > 1000));
  else
    check_refusal(&error);
  if (channel_expires_parse(json, &expires_s, &error))
    ALWAYS(expires_s >= 0);
  else
    check_refusal(&error);
}

static void check_config(const char *bytes, size_t size) {
  cleanup_free char *text = xstrndup(bytes, size);
  cleanup_json json_t *config = NULL, *again = NULL, *is_utf8 = json_string(text);
  if (!is_utf8) /* these texts are strings of JSON */
    return;
  struct error error = {0};
  if (!config_text_parse(text, &config, &error)) {
    check_refusal(&error);
    return;
  }
  ALWAYS(json_object_size(config) <= CONFIG_TEXT_MEMBERS_MAX);
  cleanup_free char *written = config_text_format(config),
                    *normal = config_text_normal(config, NULL);
  ALWAYS(config_text_parse(written, &again, &error) && json_equal(config, again) && normal);
}

static void check_tuple(const char *bytes, size_t size) {
  cleanup_free char *text = xstrndup(bytes, size);
  cleanup_json json_t *is_utf8 = json_string(text);
  if (!is_utf8) /* these texts are strings of JSON */
    return;
  cleanup_strings struct strings strings = {0};
  struct error error = {0};
  if (!python_string_tuple_parse(text, 16, &strings, &error)) {
    check_refusal(&error);
    return;
  }

  struct value values[16];
  cleanup_free char *written = NULL;
  ALWAYS(strings.n <= 16);
  for (size_t i = 0; i < strings.n; i++)
    values[i] = value_string(strings.all[i]);
  if (python_tuple_repr(values, strings.n, &written, &error))
    ALWAYS(string_equal(written, text));
}

/* A key file, private to its user; and a text as a public key and as a signature. */
static void check_key(const char *bytes, size_t size) {
  cleanup_fd int fd = memfd_create("key", MFD_CLOEXEC);
  ALWAYS(fd >= 0 && fchmod(fd, 0600) == 0 && fd_write_all(fd, bytes, size));
  cleanup_free char *path = xasprintf("/proc/self/fd/%d", fd), *text = xstrndup(bytes, size);
  cleanup_signing_key struct signing_key key = {0}, of_text = {0};
  struct error error = {0};
  char public_text[PUBLIC_KEY_TEXT_SIZE], signature[SIGNATURE_TEXT_SIZE];
  if (signing_key_read(path, &key, &error)) {
    signing_key_public_text(&key, public_text);
    ALWAYS(signing_key_of_public_text(public_text, &of_text, &error));
    ALWAYS(digest_equal(&key.id, &of_text.id));
    if (key.is_private) {
      signing_key_sign(&key, "x", 1, signature);
      ALWAYS(signature_is_well_formed(signature) &&
             signing_key_verify(&of_text, "x", 1, signature));
    }
  } else {
    check_refusal(&error);
  }

  cleanup_trusted_keys struct trusted_keys keys = {0};
  if (trusted_keys_add(&keys, path, &error))
    ALWAYS(keys.n == 1 && !keys.all[0].is_private);
  else
    check_refusal(&error);
  cleanup_signing_key struct signing_key public_key = {0};
  if (signing_key_of_public_text(text, &public_key, &error)) {
    signing_key_public_text(&public_key, public_text);
    ALWAYS(string_equal(public_text, text));
    ALWAYS(!signing_key_verify(&public_key, "x", 1, text));
  } else {
    check_refusal(&error);
  }
  if (signature_is_well_formed(text))
    ALWAYS(strlen(text) == SIGNATURE_TEXT_SIZE - 1);
}

static void check_text(const char *bytes, size_t size) {
  cleanup_free char *text = xstrndup(bytes, size);
  char written[TIME_TEXT_SIZE];
  struct digest digest;
  struct error error = {0};
  int64_t us, s, ms;
  if (time_parse(text, &us))
    ALWAYS(us >= 0);
  if (time_text_parse(text, &s))
    ALWAYS(s >= 0 && string_equal(time_text_format(s, written), text));
  if (duration_parse(text, &ms))
    ALWAYS(ms >= 0 && ms <= DURATION_MS_MAX);
  if (digest_parse(text, &digest)) {
    char again[DIGEST_TEXT_SIZE];
    ALWAYS(string_equal(digest_format(&digest, again), text));
  }
  if (!channel_name_check(text, &error))
    check_refusal(&error);
  triton_version_number(text);
  ALWAYS(!triton_folder_is_valid(text, strlen(text)) || strlen(text) == TRITON_FOLDER_LENGTH);
}

static const struct {
  const char *name;
  void (*check_json)(const json_t *json);
  void (*check_bytes)(const char *bytes, size_t size);
} parsers[] = {
    {.name = "identity", .check_json = check_identity},
    {.name = "function", .check_json = check_function_record},
    {.name = "launch", .check_json = check_launch},
    {.name = "signatures", .check_json = check_signatures},
    {.name = "config", .check_bytes = check_config},
    {.name = "tuple", .check_bytes = check_tuple},
    {.name = "key", .check_bytes = check_key},
    {.name = "text", .check_bytes = check_text},
};

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  const char *at = (const char *)bytes, *end = at + size;
  cleanup_free char *name = line_next(&at, end), *rest = xmemdup(at, (size_t)(end - at));
  size_t rest_size = (size_t)(end - at);
  cleanup_json json_t *json = NULL;
  struct error error;

  for (size_t i = 0; i < ARRAY_LENGTH(parsers); i++)
    if (string_equal(parsers[i].name, name)) {
      if (parsers[i].check_bytes)
        parsers[i].check_bytes(rest, rest_size);
      else if (json_parse(rest, rest_size, &json, &error))
        parsers[i].check_json(json);
      return 0;
    }
  return 0;
}
