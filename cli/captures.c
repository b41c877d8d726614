/* wavetune captures: functions whose launches programs recorded, from seen to tuned. */
#include "cli/cli.h"

/* What the function waits for next, for people; the caller's. */
static char *next_step(const json_t *item) {
  json_int_t waiting = cli_integer(item, "waiting"), building = cli_integer(item, "building"),
             built = cli_integer(item, "built"), refused = cli_integer(item, "refused"),
             tuned = cli_integer(item, "tuned");
  if (waiting > building)
    return xstrdup("a builder (python3 -m wavetune build --url)");
  if (building)
    return xstrdup("its builder");
  if (built > tuned)
    return xstrdup("jobs (wavetune submit --kernel)");
  if (!built && refused)
    return xasprintf("refused: %s", cli_member(item, "why"));
  return xstrdup("a release (wavetune publish)");
}

static int command_captures(struct options *options) {
  static const struct cli_column columns[] = {
      {"id", "id", true},       {"function", "name"},     {"owner", "owner"},
      {"keys", "keys", true},   {"built", "built", true}, {"refused", "refused", true},
      {"tuned", "tuned", true}, {"seen", "seen_at"},      {"waits for", "next"}};
  cleanup_json json_t *items = NULL;
  int code = cli_list_or_json(options, "/v1/captures", &items);
  size_t index;
  json_t *item;
  if (!items)
    return code;

  json_array_foreach (items, index, item) {
    cleanup_free char *next = next_step(item);
    json_put(item, "next", json_string(next));
  }
  cli_print_table(items, columns, ARRAY_LENGTH(columns));
  return code;
}

static int command_captures_show(struct options *options) {
  static const struct cli_column columns[] = {
      {"key", "key"},      {"state", "state"},   {"arch", "arch"},      {"times", "seen", true},
      {"seen", "seen_at"}, {"kernel", "kernel"}, {"refused", "refused"}};
  char *const *id =
      cli_arguments(options, 1, "name one function by its id, as `wavetune captures` prints it");
  if (!id)
    return EXIT_USAGE;

  cleanup_free char *path = cli_path("/v1/captures/", *id, "");
  cleanup_json json_t *answer = NULL;
  int code = cli_request_or_json(options, "GET", path, NULL, &answer);
  if (!answer)
    return code;

  const json_t *function = json_object_get(answer, "function"), *part;
  size_t index;
  json_array_foreach (json_object_get(function, "parts"), index, part)
    printf("# %s:%s\n%s\n", cli_member(part, "module"), cli_member(part, "qualname"),
           cli_member(part, "text"));
  cli_print_table(json_object_get(answer, "launches"), columns, ARRAY_LENGTH(columns));
  return code;
}

static int command_captures_remove(struct options *options) {
  return cli_delete(options, "/v1/captures/", "removed",
                    "name one function by its id, as `wavetune captures` prints it");
}

static const struct option_spec server_options[] = {SERVER_OPTIONS};

CLI_COMMAND(captures, "captures", "", server_options,
            "list functions whose launches programs recorded, and what each waits for",
            .description =
                "A program records launches with WAVETUNE_CAPTURE=source. A builder makes "
                "kernels and builds of them; jobs tune their keys.");
CLI_COMMAND(captures_show, "captures show", "ID", server_options,
            "print a captured function's texts and its keys");
CLI_COMMAND(captures_remove, "captures remove", "ID", server_options,
            "remove a captured function with its keys");
