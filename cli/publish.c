/* wavetune publish: winners into an immutable release, and a channel onto it. Memory: the command's
 * own. */
#include "cli/channel.h"

static void reasons_print(const json_t *answer, const char *group) {
  size_t index;
  json_t *item;
  json_array_foreach (json_object_get(answer, group), index, item) {
    cleanup_free char *key = json_dumps(json_object_get(item, "key"), JSON_COMPACT);
    fprintf(stderr, "%-7s  %s %s: %s\n", group, cli_member(item, "name"), key ? key : "",
            cli_member(item, "reason"));
  }
}

/* {"channel": …, "min_gain": …} of the options, NULL without a channel. */
static bool replaces_of(const struct options *options, json_t **ret_replaces, struct error *error) {
  const char *channel = option_text(options, "channel"), *text = option_text(options, "min-gain");
  char *end;
  double min_gain = strtod(text, &end);
  if (end == text || *end || !(min_gain >= 0 && min_gain < 1))
    return error_set(error,
                     "--min-gain %s: give a share of the time, 0 to below 1, such as 0.02 for 2 %%",
                     text);
  *ret_replaces =
      channel ? json_pack("{s:s, s:f}", "channel", channel, "min_gain", min_gain) : NULL;
  return true;
}

static bool publish_body(const struct options *options, json_t **ret_body, struct error *error) {
  cleanup_json json_t *environment = NULL;
  if (!cli_environment(options, &environment, error))
    return false;
  cleanup_json json_t *body =
      json_pack("{s:O, s:s}", "environment", environment, "tag", option_text(options, "tag"));
  const char *regime = option_text(options, "regime");
  if (cli_regime_member(regime))
    json_object_set_new(body, "regime", json_string(regime));
  const char *const *kernels;
  size_t n = option_list(options, "kernel", &kernels);
  if (n) {
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
      json_array_append_new(list, json_string(kernels[i]));
    json_object_set_new(body, "kernels", list);
  }
  const char *as_of = option_text(options, "as-of"), *pins_file = option_text(options, "pins");
  if (as_of)
    json_object_set_new(body, "as_of", json_string(as_of));
  if (pins_file) {
    json_t *pins;
    if (!json_parse_file(pins_file, 16 << 20, &pins, error))
      return false;
    json_object_set_new(body, "pins", pins);
  }
  if (option_flag(options, "refuse-self-timed"))
    json_object_set_new(body, "refuse_self_timed", json_true());
  json_t *replaces;
  if (!replaces_of(options, &replaces, error))
    return false;
  if (replaces)
    json_object_set_new(body, "replaces", replaces);
  *ret_body = TAKE(body);
  return true;
}

/* The channel moves from where it was when its release was compared, and from nowhere else. */
static int published_promote(struct http_client *client, const json_t *answer,
                             struct channel_change change, json_t **ret_entry) {
  const char *etag = cli_member(json_object_get(answer, "replaces"), "etag");
  change.if_match = etag[0] ? etag : NULL;
  change.if_none_match = etag[0] ? NULL : "*";
  return channel_change(client, &change, ret_entry);
}

static void published_print(const char *digest, const struct release *release, const char *channel,
                            const json_t *entry) {
  cleanup_free char *environment = environment_format(&release->environment);
  printf("release  %s\n         %zu winner%s, tag %s, %s%s\n", digest, release->n_winners,
         release->n_winners == 1 ? "" : "s", release->tag,
         release->regime == REGIME_WARM ? "warm, " : "", environment);
  if (entry && !environment_names_gpu(&release->environment))
    fprintf(stderr, "wavetune: the release's environment names no model of GPU, so a node that "
                    "states its own does not find it; "
                    "import or tune again with --environment '{\"gpu\": …}'\n");
  if (entry)
    printf("channel  %s, counter %" JSON_INTEGER_FORMAT "\n", channel,
           json_integer_value(json_object_get(entry, "counter")));
}

/* What can be refused before anything is asked. */
static bool publish_read(const struct options *options, struct signers *ret_signers,
                         struct channel_change *change, json_t **ret_body, struct error *error) {
  const char *const *keys;
  change->channel = option_text(options, "channel");
  change->as_json = option_flag(options, "json");
  change->signers = ret_signers;
  if (!change->channel && (option_text(options, "expires") || option_text(options, "follow") ||
                           option_list(options, "sign-key", &keys)))
    return error_set(error,
                     "what is signed, and expires, is a channel's entry: give --channel too");
  return expires_of_option(options, &change->expires_s, error) &&
         (!change->channel || signers_of_option(options, ret_signers, error)) &&
         publish_body(options, ret_body, error);
}

static int command_publish(struct options *options) {
  cleanup_json json_t *body = NULL, *answer = NULL, *entry = NULL;
  cleanup_signers struct signers signers = {0};
  struct channel_change change = {0};
  struct error error;
  if (!publish_read(options, &signers, &change, &body, &error))
    return cli_fail(EXIT_USAGE, &error);
  cleanup_http_client struct http_client *client = cli_connect(options);
  if (!client)
    return EXIT_USAGE;
  int code = cli_call(client, "POST", "/v1/releases", body, &answer);
  if (code != EXIT_OK)
    return code;
  const char *digest = cli_member(answer, "release"), *bytes = cli_member(answer, "bytes");
  cleanup_release struct release *release = NULL;
  if (!release_check(bytes, strlen(bytes), digest, &release, &error))
    return cli_fail(EXIT_REFUSED, &error);
  change.release = release;
  if (change.channel && (code = published_promote(client, answer, change, &entry)) != EXIT_OK)
    return code;
  if (change.as_json) {
    if (entry)
      json_object_set(answer, "channel", entry);
    cli_print_json(answer);
    return EXIT_OK;
  }
  reasons_print(answer, "kept");
  reasons_print(answer, "skipped");
  published_print(digest, release, change.channel, entry);
  return EXIT_OK;
}

static const struct option_spec publish_options[] = {
    OPTION_ENVIRONMENT,
    OPTION_TAG,
    OPTION_REGIME,
    {.name = "kernel",
     .type = OPTION_LIST,
     .argument = "HASH",
     .flag_only = true,
     .help = "only this kernel; several times for several"},
    {.name = "as-of",
     .type = OPTION_TEXT,
     .argument = "TIME",
     .flag_only = true,
     .help = "only jobs done by then (RFC 3339)"},
    {.name = "pins",
     .type = OPTION_TEXT,
     .argument = "FILE",
     .flag_only = true,
     .help =
         "a JSON array of {\"kernel\", \"key\", \"config\"}: these configs, whatever was measured"},
    {.name = "channel",
     .type = OPTION_TEXT,
     .argument = "NAME",
     .flag_only = true,
     .help = "promote the release to this channel too, which needs the role publisher or admin; "
             "what it serves is "
             "replaced only by "
             "what is faster"},
    {.name = "min-gain",
     .type = OPTION_TEXT,
     .argument = "SHARE",
     .flag_only = true,
     .default_text = "0.02",
     .help = "with --channel: how much faster than what is served a winner must be to replace it"},
    {.name = "refuse-self-timed",
     .type = OPTION_FLAG,
     .flag_only = true,
     .help =
         "no winners of kernels in c, whose own code runs in the process that times it; pins stay"},
    OPTION_SIGN_KEY,
    OPTION_FOLLOW,
    OPTION_EXPIRES,
    SERVER_OPTIONS,
};

const struct command_spec spec_publish = {
    .name = "publish",
    .arguments = "",
    .summary = "make a release of the winners for one environment, tag and regime",
    .description = "For every kernel and key the newest done job's winner is taken, or its pin. "
                   "What is skipped is "
                   "said, with the reason. The same winners give the same digest.\n"
                   "With --channel a config that the channel serves is kept, which is said with "
                   "the reason, unless the "
                   "newest job measured it beside its winner and the winner is faster beyond doubt "
                   "and by --min-gain, or "
                   "the served one was flagged or quarantined since. To replace it whatever was "
                   "measured, pin a config, or "
                   "publish without --channel and promote.",
    .options = publish_options,
    .n_options = ARRAY_LENGTH(publish_options),
    .run = command_publish,
};
