/* wavetune override add, list and remove: pins and bans of configs that every release obeys. */
#include "cli/cli.h"
#include "common/program/output.h"

static int command_override_add(struct options *options) {
  char *const *arguments =
      cli_arguments(options, 2,
                    "state pin or ban and one kernel, by name or hash: wavetune override add ban "
                    "softmax/online --values LANES=16 --reason \"wrong on gfx942\"");
  if (!option_text(options, "values") || !option_text(options, "reason"))
    cli_refuse(EXIT_USAGE, "give --values, and --reason, which is stored and printed with "
                           "the override");

  cleanup_json json_t *key = values_of_text("key", option_text(options, "key")),
                      *config = values_of_text("values", option_text(options, "values")),
                      *environment = cli_environment(options, "environment"),
                      *body = cli_options_json(options, "tag", "reason", "until", NULL);
  json_put(body, "kind", json_string(arguments[0]));
  json_put(body, "kernel", json_string(arguments[1]));
  json_object_set(body, "config", config);
  if (key)
    json_object_set(body, "key", key);
  if (json_object_size(environment))
    json_object_set(body, "environment", environment);
  if (option_flag(options, "unknown"))
    json_put(body, "unknown", json_true());

  cleanup_json json_t *answer = cli_request_or_json(options, "POST", "/v1/overrides", body);
  if (answer) {
    const char *until = cli_member(answer, "until");
    printf("override %s%s%s; releases from now on obey it; those that are served stay\n",
           cli_member(answer, "id"), *until ? " until " : "", until);
  }
  return EXIT_OK;
}

static int command_override_list(struct options *options) {
  static const struct cli_column columns[] = {{"id", "id", true},
                                              {"kind"},
                                              {"kernel"},
                                              {"key", "key", false, cli_format_or_dash},
                                              {"tag", "tag", false, cli_format_or_dash},
                                              {"environment"},
                                              {"config"},
                                              {"until", "until", false, cli_format_or_dash},
                                              {"by", "made_by"},
                                              {"reason"}};
  return output_list(options, "/v1/overrides", columns);
}

static int command_override_remove(struct options *options) {
  return cli_delete(options, "/v1/overrides/", "removed",
                    "name one override, as `wavetune override list` prints it");
}

static const struct option_spec add_options[] = {
    CLI_TEXT("values", "NAME=VALUE,…|JSON",
             "of a pin all values of the config; of a ban those that together are banned"),
    CLI_TEXT("key", "NAME=VALUE,…|JSON", "only for this key; default: any"),
    CLI_TEXT("environment", "JSON|@FILE", "only for environments with these members; default: any"),
    CLI_TEXT("tag", "TAG", "only for this tag; default: any"),
    CLI_TEXT("reason", "TEXT", "why; `override list` and `publish` print it"),
    CLI_TEXT("until", "TIME",
             "when it ends: a time, or how long it lasts, like 30d; default: when it is removed"),
    CLI_FLAG("unknown",
             "also where the server does not know the kernel, function or parameter yet"),
    SERVER_OPTIONS,
};

CLI_COMMAND(
    override_add, "override add", "pin|ban KERNEL", add_options,
    "pin or ban a config in all releases from now on",
    .description =
        "A config that a ban names is not released, whatever pins it; where it won, the "
        "best of its equals that is not banned takes its place. Of several pins for a key "
        "the most specific one counts: a kernel's hash before its name, a stated key, then "
        "more members of the environment, then a stated tag, then the newer one. A pin of "
        "`publish --pins` is stronger than these. `publish` prints for each key which of "
        "them it obeyed. A kernel that the server does not know, and a parameter that no "
        "space of a known kernel has, are refused without --unknown. The same override "
        "again replaces the reason and the time. Needs the role publisher, operator or admin.");
CLI_COMMAND(override_list, "override list", "", list_options,
            "list pins and bans, their authors and reasons",
            .description = "Releases obey them; `wavetune why` shows those of a kernel.");
CLI_COMMAND(override_remove, "override remove", "ID", server_options, "remove a pin or ban");
