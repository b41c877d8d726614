/* wavetune poison list and release: what killed leases, and is not met again on the same hardware.
 */
#include "cli/cli.h"

static int command_poison_list(struct options *options) {
  static const struct cli_column columns[] = {{"id", "id", true},
                                              {"scope"},
                                              {"kernel", "name"},
                                              {"config"},
                                              {"environment"},
                                              {"since", "at"},
                                              {"reason"},
                                              {"released", "released_at"},
                                              {"by", "released_by"},
                                              {"because", "release_reason"}};
  bool is_all = option_flag(options, "all");
  return cli_print_list_of(options, is_all ? "/v1/poison" : "/v1/poison?in_force=true", columns,
                           ARRAY_LENGTH(columns) - (is_all ? 0 : 3));
}

static int command_poison_release(struct options *options) {
  char *const *id =
      cli_arguments(options, 1, "name one entry by its id, as `wavetune poison list` prints it");
  const char *reason = option_text(options, "reason");
  if (!reason)
    cli_refuse(EXIT_USAGE,
               "give the reason with --reason TEXT: `wavetune poison list --all` shows it");
  cleanup_free char *path = cli_path("/v1/poison/", *id, "/release");
  cleanup_json json_t *body = json_pack("{s:s}", "reason", reason),
                      *entry = cli_request_or_json(options, "POST", path, body);
  if (entry)
    printf("released %s\n", *id);
  return EXIT_OK;
}

static const struct option_spec all_options[] = {CLI_FLAG("all", "also those that were released"),
                                                 SERVER_OPTIONS};
static const struct option_spec release_options[] = {CLI_TEXT("reason", "TEXT", "why; required"),
                                                     SERVER_OPTIONS};

CLI_COMMAND(poison_list, "poison list", "", all_options,
            "list configs, objects and kernels that killed leases, newest first",
            .description = "Jobs on the same hardware do not meet them again. `--json` also prints "
                           "the evidence: jobs, agents, devices.");
CLI_COMMAND(poison_release, "poison release", "ID", release_options,
            "release an entry of that list, with a reason",
            .description = "Only new losses poison it again. Jobs that skipped it keep their "
                           "result; submit them with another --run.");
