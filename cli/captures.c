/* wavetune captures: functions whose launches programs recorded, from seen to tuned. */
#include "cli/cli.h"

static int command_captures(struct options *options) {
  static const struct cli_column columns[] = {
      {"id", "id", true},       {"function", "name"},       {"owner", "owner"},
      {"keys", "keys", true},   {"built", "built", true},   {"refused", "refused", true},
      {"tuned", "tuned", true}, {"served", "served", true}, {"channel", "channel"},
      {"seen", "seen_at"},      {"waits for", "waits_for"}};
  return cli_print_list(options, "/v1/captures", columns, ARRAY_LENGTH(columns));
}

static int command_captures_show(struct options *options) {
  static const struct cli_column columns[] = {
      {"key", "key"},          {"state", "state"},      {"arch", "arch"},
      {"image", "image"},      {"times", "seen", true}, {"seen", "seen_at"},
      {"kernel", "kernel"},    {"job", "job", true},    {"proposal", "proposal", true},
      {"channel", "channel"},  {"refused", "refused"},  {"no job", "not_queued"},
      {"no winner", "reason"}, {"triton", "triton"}};
  char *const *id =
      cli_arguments(options, 1, "name one function by its id, as `wavetune captures` prints it");
  if (!id)
    return EXIT_USAGE;

  cleanup_free char *path = cli_path("/v1/captures/", *id, "");
  cleanup_json json_t *answer = NULL;
  int code = cli_request_or_json(options, "GET", path, NULL, &answer);
  if (!answer)
    return code;

  const json_t *function = json_object_get(answer, "function"), *part, *launch;
  const json_t *launches = json_object_get(answer, "launches");
  size_t index, n = ARRAY_LENGTH(columns) - 1;
  json_array_foreach (json_object_get(function, "parts"), index, part)
    printf("# %s:%s\n%s\n", cli_member(part, "module"), cli_member(part, "qualname"),
           cli_member(part, "text"));

  /* The last column tells keys apart that are the same to people. */
  json_array_foreach (launches, index, launch)
    if (!string_equal(cli_member(launch, "triton"),
                      cli_member(json_array_get(launches, 0), "triton")))
      n = ARRAY_LENGTH(columns);
  cli_print_table(launches, columns, n);
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
