/* wavetune gc: removes from the server what nobody needs any more. Memory: the command's own. */
#include "cli/cli.h"

static int command_gc(struct options *options) {
  bool is_dry = option_flag(options, "dry-run");
  cleanup_http_client struct http_client *client = cli_connect(options);
  if (!client)
    return EXIT_USAGE;
  cleanup_json json_t *answer = NULL,
                      *body = json_pack("{s:b, s:I}", "dry_run", is_dry, "keep_days",
                                        (json_int_t)option_integer(options, "keep-days"));
  int code = cli_call(client, "POST", "/v1/gc", body, &answer);
  if (code != EXIT_OK)
    return code;
  if (option_flag(options, "json")) {
    cli_print_json(answer);
    return EXIT_OK;
  }
  const json_t *files = json_object_get(answer, "files"),
               *releases = json_object_get(answer, "releases");
  size_t index;
  json_t *release;
  json_array_foreach (releases, index, release)
    printf("%s  %s  %" JSON_INTEGER_FORMAT " winners, tag %s\n", cli_member(release, "release"),
           cli_member(release, "created_at"),
           json_integer_value(json_object_get(release, "winners")), cli_member(release, "tag"));
  printf("%s %zu releases and %" JSON_INTEGER_FORMAT " files of %" JSON_INTEGER_FORMAT
         " bytes, and %" JSON_INTEGER_FORMAT " keys of demand%s\n",
         is_dry ? "would remove" : "removed", json_array_size(releases),
         json_integer_value(json_object_get(files, "n")),
         json_integer_value(json_object_get(files, "bytes")),
         json_integer_value(json_object_get(answer, "demand")),
         json_is_true(json_object_get(answer, "more")) ? "; there is more: call again" : "");
  return EXIT_OK;
}

static const struct option_spec gc_options[] = {
    {.name = "dry-run",
     .type = OPTION_FLAG,
     .flag_only = true,
     .help = "say what would be removed, and remove nothing"},
    {.name = "keep-days",
     .type = OPTION_INTEGER,
     .argument = "DAYS",
     .default_text = "30",
     .min = 1,
     .max = 36500,
     .flag_only = true,
     .help = "keep what was made or fetched in the last DAYS days"},
    SERVER_OPTIONS,
};

const struct command_spec spec_gc = {
    .name = "gc",
    .arguments = "",
    .summary = "remove releases and files that nobody needs any more",
    .description = "A release stays while a channel points at it, while it is one of the last 8 "
                   "that a channel pointed at, and "
                   "for "
                   "--keep-days after it was made or fetched. A file stays while a kernel, a build "
                   "or a measurement names it. "
                   "Demand stays for --keep-days after it was reported last. "
                   "Jobs, measurements, kernels, builds and the history of channels stay.",
    .options = gc_options,
    .n_options = ARRAY_LENGTH(gc_options),
    .run = command_gc,
};
