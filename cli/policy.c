/* wavetune policy, policy set, list, remove, suggestions and run: which captures and demand become
 * jobs. wavetune proposals, proposals show, promote and reject: releases that policies proposed. */
#include "cli/channel.h"

#define NAME_ONE "name one proposal by its id, as `wavetune proposals` prints it"

static void line_print(const char *name, const json_t *policy, const char *member,
                       const char *otherwise) {
  const json_t *value = json_object_get(policy, member);
  cleanup_free char *text = cli_format(value);
  bool is_empty = !*text || (json_is_array(value) && !json_array_size(value));
  printf("%-12s %s\n", name, is_empty ? otherwise : text);
}

static void policy_print(const json_t *policy) {
  line_print("policy of", policy, "set_by", "this token, which has set none");
  line_print("mode", policy, "mode", "");
  line_print("tokens", policy, "tokens", "none");
  line_print("images", policy, "images", "all");
  line_print("configs", policy, "configs_max", "any number");
  line_print("budget", policy, "device_seconds_per_day", "no limit");
  line_print("of a job", policy, "device_seconds_per_job", "as the kernel's newest job");
  line_print("jobs an hour", policy, "jobs_per_hour", "no limit");
  line_print("run", policy, "run", "\"\"");
  printf("%-12s %.1f device seconds, and %.1f estimated for open jobs\n", "used today",
         json_number(policy, "used_today"), json_number(policy, "open"));
  line_print("channel", policy, "channel", "no proposals");
  line_print("require", policy, "require", "");
  line_print("promote", policy, "promote", "");
}

static int command_policy(struct options *options) {
  cleanup_json json_t *policy = cli_request_or_json(options, "GET", "/v1/policy", NULL);
  if (policy)
    policy_print(policy);
  return EXIT_OK;
}

static int command_policy_set(struct options *options) {
  static const char *const lists[][2] = {{"owner", "tokens"}, {"image", "images"}};
  cleanup_json json_t *body = cli_options_json(options, "mode", "channel", "require", "run", NULL);
  if (!option_text(options, "mode"))
    cli_refuse(EXIT_USAGE, "give --mode off, suggest or automatic");
  for (size_t i = 0; i < ARRAY_LENGTH(lists); i++) {
    json_t *list = option_list_json(options, lists[i][0]);
    if (list)
      json_put(body, lists[i][1], list);
  }
  if (option_flag(options, "promote"))
    json_put(body, "promote", json_true());
  cli_put_number(options, "budget", "device_seconds_per_day", body);
  cli_put_number(options, "job-budget", "device_seconds_per_job", body);
  cli_put_number(options, "jobs-per-hour", "jobs_per_hour", body);
  cli_put_number(options, "configs-max", "configs_max", body);

  cleanup_json json_t *policy = cli_request_or_json(options, "PUT", "/v1/policy", body);
  if (policy)
    policy_print(policy);
  return EXIT_OK;
}

static int command_policy_list(struct options *options) {
  static const struct cli_column columns[] = {
      {"id", "id", true}, {"policy of", "set_by"},
      {"mode"},           {"acts"},
      {"tokens"},         {"images"},
      {"channel"},        {"seconds a day", "device_seconds_per_day", true},
      {"promote"},        {"set", "set_at"}};
  return cli_print_list(options, "/v1/policies", columns);
}

static int command_policy_remove(struct options *options) {
  return cli_delete(options, "/v1/policies/", "removed",
                    "name one policy by its id, as `wavetune policy list` prints it");
}

static int command_policy_suggestions(struct options *options) {
  static const struct cli_column columns[] = {
      {"name"},           {"key"},
      {"from", "source"}, {"configs", "configs", true},
      {"image"},          {"device seconds", "device_seconds", true},
      {"environment"},    {"no job before", "not_queued"}};
  cleanup_json json_t *answer =
      cli_request_or_json(options, "GET", "/v1/policy/suggestions?limit=1000", NULL);
  if (!answer)
    return EXIT_OK;

  const json_t *items = json_object_get(answer, "items");
  const json_t *left = json_object_get(answer, "device_seconds_left");
  double sum = 0;
  json_elements (items, index, item)
    sum += json_number(item, "device_seconds");
  cli_print_table(items, columns);
  printf("%zu jobs, about %.1f device seconds", json_array_size(items), sum);
  if (json_is_number(left))
    printf("; %.1f are left today", json_number_value(left));
  putchar('\n');
  return EXIT_OK;
}

static int command_policy_run(struct options *options) {
  static const struct cli_column columns[] = {
      {"name"}, {"key"}, {"from", "source"}, {"job", "job", true}, {"refused"}};
  cleanup_json json_t *body = json_pack("{s:I}", "top", (json_int_t)option_integer(options, "top")),
                      *answer = cli_request_or_json(options, "POST", "/v1/policy/run", body);
  if (answer)
    cli_print_table(json_object_get(answer, "items"), columns);
  return EXIT_OK;
}

static int command_proposals(struct options *options) {
  static const struct cli_column columns[] = {{"id", "id", true},
                                              {"channel"},
                                              {"state"},
                                              {"winners", "winners", true},
                                              {"added", "added", true},
                                              {"changed", "changed", true},
                                              {"made", "made_at"},
                                              {"release"},
                                              {"environment"},
                                              {"waits for", "waits_for"},
                                              {"reason"}};
  return cli_print_list(options, "/v1/proposals", columns);
}

static int command_proposals_show(struct options *options) {
  static const struct {
    const char *group, *columns[2];
  } groups[] = {{"added", {"config", NULL}},
                {"removed", {"config", NULL}},
                {"changed", {"from", "to"}},
                {"kept", {"reason", NULL}},
                {"skipped", {"reason", NULL}}};
  char *const *id = cli_arguments(options, 1, NAME_ONE);
  cleanup_free char *path = cli_path("/v1/proposals/", *id, "");
  cleanup_json json_t *proposal = cli_request_or_json(options, "GET", path, NULL);
  if (!proposal)
    return EXIT_OK;

  line_print("channel", proposal, "channel", "");
  line_print("release", proposal, "release", "");
  line_print("state", proposal, "state", "");
  line_print("waits for", proposal, "waits_for", "nothing");
  const json_t *changes = json_object_get(proposal, "changes");
  for (size_t i = 0; i < ARRAY_LENGTH(groups); i++) {
    const json_t *items = json_object_get(changes, groups[i].group);
    struct cli_column columns[] = {{groups[i].group, "name"},
                                   {"key"},
                                   {groups[i].columns[0], groups[i].columns[0]},
                                   {groups[i].columns[1], groups[i].columns[1]}};
    if (json_array_size(items))
      cli_print_table_of(items, columns, groups[i].columns[1] ? 4 : 3);
  }
  return EXIT_OK;
}

/* The channel moves as with `wavetune promote`, but only from the entry that the proposal was
 * compared with. */
static int command_proposals_promote(struct options *options) {
  char *const *id = cli_arguments(options, 1, NAME_ONE);
  cleanup_signers struct signers signers = {0};
  struct channel_change change = {0};
  channel_change_of_options(options, &signers, &change);
  cleanup_http_client struct http_client *client = cli_connect(options);
  cleanup_free char *path = cli_path("/v1/proposals/", *id, "");
  cleanup_json json_t *proposal = cli_get(client, path);
  if (!string_equal(cli_member(proposal, "state"), "open"))
    cli_refuse(EXIT_REFUSED, "proposal %s was %s %s", *id, cli_member(proposal, "state"),
               cli_member(proposal, "reason"));

  const char *etag = cli_member(proposal, "etag");
  cleanup_release struct release *release =
      release_get(client, cli_member(proposal, "release"), "the proposal was not promoted");
  change.channel = cli_member(proposal, "channel");
  change.release = release;
  change.if_match = *etag ? etag : NULL;
  change.if_none_match = *etag ? NULL : "*";
  return channel_change_and_print(client, &change);
}

static int command_proposals_reject(struct options *options) {
  char *const *id = cli_arguments(options, 1, NAME_ONE);
  const char *reason = option_text(options, "reason");
  if (!reason)
    cli_refuse(EXIT_USAGE, "give the reason with --reason TEXT: `wavetune proposals` shows it");
  cleanup_free char *path = cli_path("/v1/proposals/", *id, "/reject");
  cleanup_json json_t *body = json_pack("{s:s}", "reason", reason),
                      *proposal = cli_request_or_json(options, "POST", path, body);
  if (proposal)
    printf("rejected %s\n", *id);
  return EXIT_OK;
}

static const struct option_spec set_options[] = {
    CLI_TEXT("mode", "MODE",
             "off; suggest: jobs are listed, and `wavetune policy run` makes them; automatic: the "
             "servers make them"),
    CLI_LIST(
        "owner", "TOKEN",
        "captures and demand of the token of this name count, with '*' those of all tokens; may "
        "be given several times"),
    CLI_LIST("image", "PATTERN",
             "only of images like this, with * and ?; may be given several times; default: all"),
    CLI_TEXT("budget", "SECONDS",
             "device seconds that its jobs may use in a day (UTC); default: no limit. Automatic "
             "needs this or --jobs-per-hour"),
    CLI_TEXT("job-budget", "SECONDS",
             "device seconds that each of its jobs may use; default: for demand as many as the "
             "kernel's newest job"),
    CLI_TEXT("jobs-per-hour", "N", "make at most so many jobs in an hour; default: no limit"),
    CLI_TEXT("run", "NAME",
             "the run of its jobs; those that this token submits with it count, too; default: "
             "policy"),
    CLI_TEXT("configs-max", "N", "no jobs of more configs; default: any number"),
    CLI_TEXT(
        "channel", "NAME",
        "propose releases to this channel, which no other policy has, when all keys of an image "
        "are done; default: none"),
    CLI_TEXT("require", "CLASS",
             "the agreement that proposed winners need: none, agrees, bitwise or interpreted; "
             "default: agrees"),
    CLI_FLAG("promote",
             "promote proposals at once, where the server wants no signatures; needs a token that "
             "may move the channel, or the role operator"),
    SERVER_OPTIONS,
};
static const struct option_spec run_options[] = {
    CLI_INTEGER("top", "N", "100", 1, 1000, "make at most so many jobs"), SERVER_OPTIONS};
static const struct option_spec promote_options[] = {OPTION_SIGN_KEY, OPTION_FOLLOW, OPTION_EXPIRES,
                                                     SERVER_OPTIONS};
static const struct option_spec reject_options[] = {CLI_TEXT("reason", "TEXT", "why; required"),
                                                    SERVER_OPTIONS};

CLI_COMMAND(policy, "policy", "", server_options,
            "print the policy of this token: which captures and demand become jobs");
CLI_COMMAND(policy_set, "policy set", "", set_options, "replace the policy of this token",
            .description =
                "What is not given gets its default, not what it was before. The jobs are "
                "this token's. Of two policies that cover a key one makes its job.");
CLI_COMMAND(policy_list, "policy list", "", server_options,
            "list policies: operators those of all tokens, others their own");
CLI_COMMAND(policy_remove, "policy remove", "ID", server_options,
            "remove a policy: operators any, others their own");
CLI_COMMAND(
    policy_suggestions, "policy suggestions", "", server_options,
    "list the jobs that this token's policy would make, with their estimated device seconds");
CLI_COMMAND(policy_run, "policy run", "", run_options,
            "make the suggested jobs, as far as the budget of the day allows");
CLI_COMMAND(proposals, "proposals", "", server_options,
            "list releases that policies proposed to their channels");
CLI_COMMAND(proposals_show, "proposals show", "ID", server_options,
            "print what a proposal changes, and what it keeps and skips");
CLI_COMMAND(proposals_promote, "proposals promote", "ID", promote_options,
            "point the channel at a proposal's release",
            .description = "Only while the channel has the entry that the proposal was compared "
                           "with. Signed as with promote.");
CLI_COMMAND(proposals_reject, "proposals reject", "ID", reject_options,
            "reject a proposal; the same release is not proposed again");
