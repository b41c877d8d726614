/* wavetune diff: one release held against another. Memory: the command's own. */
#include "cli/channel.h"
#include "common/base/file.h"

/* A release by digest from the server, or from a file (what fetch keeps as release.json). */
static int release_load(struct http_client *client, const char *name,
                        struct release **ret_release) {
  struct error error;
  struct digest digest;
  if (!digest_parse(name, &digest)) {
    cleanup_free char *text = NULL;
    size_t size;
    if (!file_read(name, RELEASE_SIZE_MAX, &text, &size, &error))
      return cli_fail(EXIT_USAGE, &error);
    if (!release_parse(text, size, ret_release, &error)) {
      error_prefix(&error, "%s is no release: ", name);
      return cli_fail(EXIT_USAGE, &error);
    }
    return EXIT_OK;
  }
  return release_get(client, name, name, ret_release);
}

static void changes_print(const json_t *diff, const char *group, const char *sign) {
  size_t index;
  json_t *change;
  json_array_foreach (json_object_get(diff, group), index, change) {
    cleanup_free char *key = json_dumps(json_object_get(change, "key"), JSON_COMPACT);
    printf("%s %s %s", sign, cli_member(change, "name"), key ? key : "");
    cleanup_free char *from = json_dumps(json_object_get(change, "from"), JSON_COMPACT);
    cleanup_free char *to = json_dumps(json_object_get(change, "to"), JSON_COMPACT);
    if (from && to)
      printf("\n    from %s\n    to   %s", from, to);
    putchar('\n');
  }
}

static void scope_difference_add(json_t *diff, const char *name, json_t *from, json_t *to) {
  if (!json_equal(from, to))
    json_object_set_new(diff, name, json_pack("{s:O, s:O}", "from", from, "to", to));
  json_decref(from);
  json_decref(to);
}

/* Two releases with the same winners may still be for different places. */
static void scope_differences_add(json_t *diff, const struct release *from,
                                  const struct release *to) {
  scope_difference_add(diff, "environment", environment_to_json(&from->environment),
                       environment_to_json(&to->environment));
  scope_difference_add(diff, "tag", json_string(from->tag), json_string(to->tag));
  scope_difference_add(diff, "regime", json_string(regime_name(from->regime)),
                       json_string(regime_name(to->regime)));
}

static void scope_difference_print(const json_t *diff, const char *name) {
  const json_t *difference = json_object_get(diff, name);
  if (!difference)
    return;
  cleanup_free char *from =
      json_dumps(json_object_get(difference, "from"), JSON_COMPACT | JSON_ENCODE_ANY);
  cleanup_free char *to =
      json_dumps(json_object_get(difference, "to"), JSON_COMPACT | JSON_ENCODE_ANY);
  printf("~ %s\n    from %s\n    to   %s\n", name, from, to);
}

static int command_diff(struct options *options) {
  char *const *arguments;
  struct error error;
  if (options_arguments(options, &arguments) != 2) {
    error_set(&error, "name two releases, each by digest or as a release.json file");
    return cli_fail(EXIT_USAGE, &error);
  }
  cleanup_http_client struct http_client *client = cli_connect(options);
  if (!client)
    return EXIT_USAGE;
  cleanup_release struct release *from = NULL, *to = NULL;
  int code = release_load(client, arguments[0], &from);
  if (code == EXIT_OK)
    code = release_load(client, arguments[1], &to);
  if (code != EXIT_OK)
    return code;
  cleanup_json json_t *diff = release_diff(from, to);
  scope_differences_add(diff, from, to);
  int difference = digest_equal(&from->digest, &to->digest) ? EXIT_OK : EXIT_FAILED;
  if (option_flag(options, "json")) {
    cli_print_json(diff);
    return difference;
  }
  scope_difference_print(diff, "environment");
  scope_difference_print(diff, "tag");
  scope_difference_print(diff, "regime");
  changes_print(diff, "removed", "-");
  changes_print(diff, "added", "+");
  changes_print(diff, "changed", "~");
  printf("%zu removed, %zu added, %zu changed, %" JSON_INTEGER_FORMAT " the same\n",
         json_array_size(json_object_get(diff, "removed")),
         json_array_size(json_object_get(diff, "added")),
         json_array_size(json_object_get(diff, "changed")),
         json_integer_value(json_object_get(diff, "same")));
  return difference;
}

static const struct option_spec diff_options[] = {SERVER_OPTIONS};

const struct command_spec spec_diff = {
    .name = "diff",
    .arguments = "RELEASE RELEASE",
    .summary = "what changed between two releases; exits with 1 when they differ",
    .options = diff_options,
    .n_options = ARRAY_LENGTH(diff_options),
    .run = command_diff,
};
