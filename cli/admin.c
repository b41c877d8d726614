/* wavetune token make, list and revoke, audit, shares, and gc: tokens, the record of which token
 * wrote what, the shares of the owners of jobs, and garbage collection. */
#include "cli/cli.h"

#define AUDIT_PAGE_MAX 1000
#define TOKEN_USES_MAX 1000000

static int command_token_make(struct options *options) {
  char *const *name = cli_arguments(
      options, 1, "name the token after its user: wavetune token make ci --role submitter");

  const char *environment_text = option_text(options, "environment");
  cleanup_json json_t *environment = NULL;
  struct error error;
  if (environment_text &&
      !json_parse(environment_text, strlen(environment_text), &environment, &error)) {
    cli_fail_in(EXIT_USAGE, &error, "--environment: ");
  }

  cleanup_json json_t *body = json_pack(
      "{s:s, s:s, s:s*, s:s*, s:s*, s:O*, s:o*}", "name", *name, "role",
      option_text(options, "role"), "expires", option_text(options, "expires"), "agent_name",
      option_text(options, "agent-name"), "certificate", option_text(options, "certificate"),
      "environment", environment, "channels", option_list_json(options, "channel"));
  if (!body)
    cli_refuse(EXIT_USAGE, "a token's name and its options must be UTF-8");
  if (option_integer(options, "uses"))
    json_put(body, "uses", json_integer(option_integer(options, "uses")));

  cleanup_json json_t *answer = cli_request_or_json(options, "POST", "/v1/tokens", body);
  if (answer)
    puts(cli_member(answer, option_text(options, "certificate") ? "certificate" : "token"));
  return EXIT_OK;
}

static int command_token_list(struct options *options) {
  cleanup_json json_t *items = cli_list_or_json(options, "/v1/tokens");

  json_elements (items, index, item) {
    const char *revoked = cli_member(item, "revoked_at"), *expires = cli_member(item, "expires_at"),
               *agent = cli_member(item, "agent"), *pattern = cli_member(item, "agent_name"),
               *made_by = cli_member(item, "made_by"), *issuer = cli_member(item, "issuer");
    cleanup_free char *uses = cli_compact(item, "uses_left"),
                      *channels = json_texts_join(json_object_get(item, "channels"), ",");
    printf("%-24s %-10s made %s", cli_member(item, "name"), cli_member(item, "role"),
           cli_member(item, "created_at"));
    if (*made_by)
      printf(" by %s", made_by);
    if (*issuer)
      printf(", identity of %s", issuer);
    if (*agent)
      printf(", agent %s", agent);
    if (*uses)
      printf(", %s uses left", uses);
    if (*pattern)
      printf(", for %s", pattern);
    if (*channels)
      printf(", channels %s", channels);
    if (*revoked)
      printf(", revoked %s", revoked);
    else if (*expires)
      printf(", expires %s", expires);
    putchar('\n');
  }

  return EXIT_OK;
}

static int command_token_revoke(struct options *options) {
  return cli_delete(options, "/v1/tokens/", "revoked",
                    "name one token, as `wavetune token list` prints it");
}

static int command_audit(struct options *options) {
  static const struct cli_column columns[] = {{"at"},     {"token"},  {"role"},  {"peer"},
                                              {"action"}, {"object"}, {"detail"}};
  cleanup_http_client struct http_client *client = cli_connect(options);

  cleanup_json json_t *items = json_array(), *query = cli_options_json(options, "since", NULL),
                      *by = option_text_json(options, "by");
  if (by)
    json_object_set(query, "token", by);
  json_object_update_new(query, cli_options_json(options, "action", "object", NULL));
  for (size_t left = (size_t)option_integer(options, "limit"); left > 0;) {
    json_put(query, "limit",
             json_integer(left < AUDIT_PAGE_MAX ? (json_int_t)left : AUDIT_PAGE_MAX));
    cleanup_free char *arguments = cli_query(query, NULL),
                      *path = xasprintf("/v1/audit%s", arguments);
    cleanup_json json_t *page = cli_get(client, path);
    json_t *more = json_object_get(page, "items"), *next = json_object_get(page, "next");
    size_t n = json_array_size(more);
    json_array_extend(items, more);
    left = json_is_string(next) && n > 0 && n < left ? left - n : 0;
    json_object_set(query, "after", next);
  }

  if (option_flag(options, "json"))
    cli_print_json(items);
  else
    cli_print_table(items, columns);

  return EXIT_OK;
}

static const struct cli_column share_columns[] = {
    {"owner"},
    {"weight", "weight", true},
    {"device seconds", "device_seconds", true},
    {"today", "device_seconds_today", true},
    {"of", "device_seconds_per_day", true, cli_format_or_dash},
    {"open jobs", "open_jobs", true},
    {"waiting since", "waiting_since", .format = cli_format_or_dash}};

static int command_shares(struct options *options) {
  return cli_print_list(options, "/v1/shares", share_columns);
}

static int command_shares_set(struct options *options) {
  char *const *owner = cli_arguments(options, 1, "name one owner, as `wavetune shares` prints it");

  cleanup_json json_t *body = json_object();
  cleanup_free char *path = cli_path("/v1/shares/", *owner, "");
  cli_put_number(options, "weight", "weight", body);
  cli_put_number(options, "device-seconds-per-day", "device_seconds_per_day", body);

  cleanup_json json_t *share = cli_request_or_json(options, "PUT", path, body);
  if (share) {
    cleanup_json json_t *items = json_pack("[O]", share);
    cli_print_table(items, share_columns);
  }
  return EXIT_OK;
}

static int command_gc(struct options *options) {
  bool is_dry = option_flag(options, "dry-run");
  cleanup_json json_t *body = json_pack("{s:b, s:I, s:b}", "dry_run", is_dry, "keep_days",
                                        (json_int_t)option_integer(options, "keep-days"),
                                        "measurements", option_flag(options, "measurements")),
                      *answer = cli_request_or_json(options, "POST", "/v1/gc", body);
  if (!answer)
    return EXIT_OK;

  const json_t *files = json_object_get(answer, "files"),
               *releases = json_object_get(answer, "releases"),
               *measurements = json_object_get(answer, "measurements");

  json_elements (releases, index, release)
    printf("%s  %s  %lld winners, tag %s\n", cli_member(release, "release"),
           cli_member(release, "created_at"), cli_integer(release, "winners"),
           cli_member(release, "tag"));
  printf("%s %zu releases and %lld files of %lld bytes, %lld keys of demand and %lld rows of "
         "fetches%s\n",
         is_dry ? "would remove" : "removed", json_array_size(releases), cli_integer(files, "n"),
         cli_integer(files, "bytes"), cli_integer(answer, "demand"), cli_integer(answer, "fetches"),
         json_flag(answer, "more") ? "; there is more: call again" : "");
  if (option_flag(options, "measurements"))
    printf("%s the measurements of %lld jobs (%lld bytes) but those that served winners need\n",
           is_dry ? "would remove" : "removed", cli_integer(measurements, "jobs"),
           cli_integer(measurements, "bytes"));

  return EXIT_OK;
}

static const struct option_spec make_options[] = {
    CLI_TEXT("role", "ROLE",
             "the token's role, or several separated by commas: reader, demand, cache-writer, "
             "submitter, builder, publisher, agent, enrol, operator or admin",
             .default_text = "reader"),
    CLI_LIST("channel", "NAME",
             "with the role publisher: a channel that the token may move, or a pattern like "
             "'test-*'; may be repeated"),
    CLI_TEXT("expires", "TIME",
             "how long the token is valid, like 7d or 12h, or the time at which it expires"),
    CLI_INTEGER("uses", "N", "0", 0, TOKEN_USES_MAX,
                "with the role enrol: how many agents the token enrols (0: one)"),
    CLI_TEXT("agent-name", "PATTERN",
             "with the role enrol: the pattern of the agents' names, like 'mi300-*'"),
    CLI_TEXT("certificate", "NAME",
             "with the role agent: make no token, but accept the client certificate with this "
             "name"),
    CLI_TEXT("environment", "JSON",
             "with the role enrol: environment members that all devices of the agents have"),
    SERVER_OPTIONS,
};
static const struct option_spec audit_options[] = {
    CLI_TEXT("since", "TIME",
             "only entries from this time on, like 2026-01-31T12:00:00Z, or of the last 12h or 7d"),
    CLI_TEXT("by", "NAME", "only what this token wrote"),
    CLI_TEXT("action", "WORD", "only this action, like submit or move"),
    CLI_TEXT("object", "ID", "only entries about this job, channel, digest, agent or token"),
    CLI_INTEGER("limit", "N", "100", 1, 1000000, "at most N entries, the newest ones"),
    SERVER_OPTIONS,
};
static const struct option_spec share_options[] = {
    CLI_TEXT("weight", "W", "its weight, 0.001 to 1000", .default_text = "1"),
    CLI_TEXT("device-seconds-per-day", "S",
             "after so many device seconds it gets no leases until midnight (UTC); default: no "
             "limit"),
    SERVER_OPTIONS,
};
static const struct option_spec gc_options[] = {
    CLI_FLAG("dry-run", "print what would be removed, and remove nothing"),
    CLI_INTEGER("keep-days", "DAYS", "30", 1, 36500,
                "keep what was made or fetched in the last DAYS days"),
    CLI_FLAG("measurements", "also remove the measurements of jobs that ended before"),
    SERVER_OPTIONS,
};

CLI_COMMAND(token_make, "token make", "NAME", make_options, "make a token; it is shown once");
CLI_COMMAND(token_list, "token list", "", server_options, "list tokens by name and role");
CLI_COMMAND(token_revoke, "token revoke", "NAME", server_options, "revoke a token");
CLI_COMMAND(audit, "audit", "", audit_options, "list what tokens wrote, newest first");
CLI_COMMAND(shares, "shares", "", server_options,
            "list the owners of jobs, their weights and what their leases used");
CLI_COMMAND(shares_set, "shares set", "OWNER", share_options,
            "set the weight and the quota of an owner of jobs",
            .description =
                "The owner is the name of the token that submits. What is not given gets "
                "its default, not what it was before.");
CLI_COMMAND(gc, "gc", "", gc_options, "remove releases and files that are not needed any more",
            .description = "A release stays while a channel points at it, while it is one of the "
                           "last 8 that a channel pointed at, and for --keep-days after it was "
                           "made or fetched. A file stays while a kernel, a build or a "
                           "measurement names it. Demand stays for --keep-days after it was "
                           "reported last. --measurements removes those of a range of jobs once "
                           "all of them ended before --keep-days, but keeps the finals of winners "
                           "that a release has or the next one may have; call again while there "
                           "is more. Jobs, kernels, builds and the history of channels stay.");
