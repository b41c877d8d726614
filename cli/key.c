/* wavetune key new and show: Ed25519 keys that sign channels, as PEM files. Memory: each command's
 * own. */
#include "cli/cli.h"
#include "common/cache/signing_key.h"

static bool path_of_arguments(const struct options *options, const char *example,
                              const char **ret_path, struct error *error) {
  char *const *arguments;
  if (options_arguments(options, &arguments) != 1)
    return error_set(error, "name one file: %s", example);
  *ret_path = arguments[0];
  return true;
}

static void key_print(const struct options *options, const struct signing_key *key,
                      const char *path, const char *public_path) {
  char id[DIGEST_TEXT_SIZE];
  const char *kind = key->is_private ? "private" : "public";
  digest_format(&key->id, id);
  if (option_flag(options, "json")) {
    cleanup_json json_t *document = json_pack("{s:s, s:s, s:s, s:s*}", "key", id, "kind", kind,
                                              "file", path, "public", public_path);
    cli_print_json(document);
    return;
  }
  printf("key      %s\n%-7s  %s\n", id, kind, path);
  if (public_path)
    printf("public   %s\n", public_path);
}

static int command_key_new(struct options *options) {
  struct error error;
  const char *path;
  cleanup_signing_key struct signing_key key = {0};
  if (!path_of_arguments(options, "wavetune key new publisher.key", &path, &error) ||
      !signing_key_create(path, &key, &error))
    return cli_fail(EXIT_USAGE, &error);
  cleanup_free char *public_path = xasprintf("%s.pub", path);
  key_print(options, &key, path, public_path);
  return EXIT_OK;
}

static int command_key_show(struct options *options) {
  struct error error;
  const char *path;
  cleanup_signing_key struct signing_key key = {0};
  if (!path_of_arguments(options, "wavetune key show publisher.key.pub", &path, &error) ||
      !signing_key_read(path, &key, &error))
    return cli_fail(EXIT_USAGE, &error);
  key_print(options, &key, path, NULL);
  return EXIT_OK;
}

static const struct option_spec key_options[] = {OPTION_JSON};

const struct command_spec spec_key_new = {
    .name = "key new",
    .arguments = "FILE",
    .summary = "make a key that signs channels: FILE, for the publisher alone, and FILE.pub, for "
               "deployments",
    .options = key_options,
    .n_options = ARRAY_LENGTH(key_options),
    .run = command_key_new,
};
const struct command_spec spec_key_show = {
    .name = "key show",
    .arguments = "FILE",
    .summary = "a key's id, and whether it is private or public",
    .options = key_options,
    .n_options = ARRAY_LENGTH(key_options),
    .run = command_key_show,
};
