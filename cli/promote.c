/* wavetune promote, rollback and sign: what a channel points at, and who vouches for it. Memory:
 * each command's own. */
#include "cli/channel.h"

static void entry_print(const json_t *entry) {
  const char *regime = cli_member(entry, "regime"); /* absent: cold */
  printf("channel  %s, tag %s, %scounter %" JSON_INTEGER_FORMAT "\nrelease  %s\netag     %s\n",
         cli_member(entry, "channel"), cli_member(entry, "tag"), *regime ? "warm, " : "",
         json_integer_value(json_object_get(entry, "counter")), cli_member(entry, "release"),
         cli_member(entry, "etag"));
}

/* Moves, and prints the entry. */
static int change_and_print(struct http_client *client, const struct channel_change *change) {
  cleanup_json json_t *entry = NULL;
  int code = channel_change(client, change, &entry);
  if (code != EXIT_OK)
    return code;
  if (change->as_json)
    cli_print_json(entry);
  else
    entry_print(entry);
  return EXIT_OK;
}

static bool signing_read(const struct options *options, struct signers *ret_signers,
                         struct channel_change *change, struct error *error) {
  change->signers = ret_signers;
  change->as_json = option_flag(options, "json");
  return expires_of_option(options, &change->expires_s, error) &&
         signers_of_option(options, ret_signers, error);
}

static int command_promote(struct options *options) {
  char *const *arguments;
  struct error error;
  cleanup_signers struct signers signers = {0};
  struct channel_change change = {0};
  if (options_arguments(options, &arguments) != 2) {
    error_set(&error, "name a release and a channel: wavetune promote sha256:… stable");
    return cli_fail(EXIT_USAGE, &error);
  }
  if (!signing_read(options, &signers, &change, &error))
    return cli_fail(EXIT_USAGE, &error);
  cleanup_http_client struct http_client *client = cli_connect(options);
  if (!client)
    return EXIT_USAGE;
  const char *given = option_text(options, "if-match");
  bool is_bare = given && given[0] != '"' && !string_equal(given, "*"); /* a shell ate the quotes */
  cleanup_free char *if_match = given ? xasprintf(is_bare ? "\"%s\"" : "%s", given) : NULL,
                    *what = xasprintf("channel %s was not moved", arguments[1]);
  cleanup_release struct release *release = NULL;
  int code = release_get(client, arguments[0], what, &release);
  if (code != EXIT_OK)
    return code;
  change.channel = arguments[1];
  change.release = release;
  change.if_match = if_match;
  return change_and_print(client, &change);
}

/* The one channel that a command names. */
static bool channel_of_arguments(const struct options *options, const char *example,
                                 const char **ret_channel, struct error *error) {
  char *const *arguments;
  if (options_arguments(options, &arguments) != 1)
    return error_set(error, "name a channel: %s", example);
  *ret_channel = arguments[0];
  return true;
}

/* What a channel's present release took over from: the newest entry before the first one with the
 * present release, so that rolling back twice goes back twice. `history` is newest first. */
static const json_t *entry_before(const json_t *history, const char *present) {
  const json_t *before = NULL;
  size_t index;
  json_t *entry;
  bool is_behind = false;
  json_array_foreach (history, index, entry) {
    if (string_equal(cli_member(entry, "release"), present)) {
      is_behind = true;
      before = NULL;
    } else if (is_behind && !before) {
      before = entry;
    }
  }
  return before;
}

/* Who signs a rollback signs that this channel served the release before: the history of a server
 * that lies shows others. */
static bool before_is_signed(const struct channel_entry *present, const json_t *before,
                             const struct signers *signers, struct error *error) {
  cleanup_channel_entry struct channel_entry entry = {0};
  if (!channel_entry_parse(before, &entry, error))
    return error_prefix(error, "the server's channel entry is none: ");
  return (string_equal(entry.channel, present->channel) &&
          entry_is_signed_by_any(&entry, signers)) ||
         error_set(error,
                   "that channel %s served %s before is the server's word alone: none of these "
                   "keys signed that entry; "
                   "name the release: --to sha256:…",
                   present->channel, cli_member(before, "release"));
}

static int release_before_get(struct http_client *client, const struct channel_present *present,
                              const struct signers *signers, char **ret_digest) {
  struct error error;
  char digest[DIGEST_TEXT_SIZE];
  const char *regime = regime_name(present->entry.regime);
  cleanup_json json_t *environment = environment_to_json(&present->entry.environment),
                      *history = NULL;
  cleanup_free char *query = cli_query(environment, "tag", present->entry.tag,
                                       cli_regime_member(regime), regime, NULL),
                    *escaped = http_escape(present->entry.channel),
                    *path = xasprintf("/v1/channels/%s/entries%s", escaped, query);
  int code = cli_list(client, path, &history);
  if (code != EXIT_OK)
    return code;
  const json_t *before = entry_before(history, digest_format(&present->entry.release, digest));
  if (!before) {
    error_set(&error, "channel %s served nothing before %s; name the release: --to sha256:…",
              present->entry.channel, digest);
    return cli_fail(EXIT_FAILED, &error);
  }
  if (signers->n && !before_is_signed(&present->entry, before, signers, &error))
    return cli_fail(EXIT_REFUSED, &error);
  *ret_digest = xstrdup(cli_member(before, "release"));
  return EXIT_OK;
}

/* Whether a release is for the place that the channel's entry serves. */
static bool release_is_of(const struct release *release, const struct channel_entry *entry,
                          struct error *error) {
  struct digest a = environment_digest(&release->environment),
                b = environment_digest(&entry->environment);
  cleanup_free char *environment = environment_format(&release->environment);
  if (!string_equal(release->tag, entry->tag) || release->regime != entry->regime ||
      !digest_equal(&a, &b))
    return error_set(error,
                     "that release is for tag %.80s, regime %s, %.300s, and this entry of channel "
                     "%s is for another place",
                     release->tag, regime_name(release->regime), environment, entry->channel);
  return true;
}

static int rollback_with(struct http_client *client, const struct options *options,
                         struct channel_change *change) {
  struct error error;
  cleanup_present struct channel_present present = {0};
  cleanup_release struct release *release = NULL;
  const char *to = option_text(options, "to");
  cleanup_free char *digest = to ? xstrdup(to) : NULL,
                    *what = xasprintf("channel %s was not rolled back", change->channel);
  int code = channel_present_of_options(client, options, change->channel, &present);
  if (code == EXIT_OK && !digest)
    code = release_before_get(client, &present, change->signers, &digest);
  if (code == EXIT_OK)
    code = release_get(client, digest, what, &release);
  if (code != EXIT_OK)
    return code;
  if (!release_is_of(release, &present.entry, &error)) {
    error_prefix(&error, "%s: ", what);
    return cli_fail(EXIT_USAGE, &error);
  }
  change->release = release;
  change->if_match = present.etag;
  return change_and_print(client, change);
}

static int command_rollback(struct options *options) {
  struct error error;
  cleanup_signers struct signers signers = {0};
  struct channel_change change = {0};
  if (!channel_of_arguments(options, "wavetune rollback stable", &change.channel, &error) ||
      !signing_read(options, &signers, &change, &error))
    return cli_fail(EXIT_USAGE, &error);
  cleanup_http_client struct http_client *client = cli_connect(options);
  return client ? rollback_with(client, options, &change) : EXIT_USAGE;
}

static int signature_post(struct http_client *client, const struct channel_entry *entry,
                          const struct channel_signature *signature, json_t **answer) {
  cleanup_json json_t *signatures = channel_signatures_to_json(signature, 1);
  cleanup_json json_t *body =
      json_pack("{s:o, s:s, s:I, s:O}", "environment", environment_to_json(&entry->environment),
                "tag", entry->tag, "counter", (json_int_t)entry->counter, "signature",
                json_array_get(signatures, 0));
  if (entry->regime != REGIME_COLD)
    json_object_set_new(body, "regime", json_string(regime_name(entry->regime)));
  cleanup_free char *escaped = http_escape(entry->channel),
                    *path = xasprintf("/v1/channels/%s/signatures", escaped);
  json_decref(*answer);
  *answer = NULL;
  return cli_call(client, "POST", path, body, answer);
}

/* Each key's signature that is not there yet. */
static int signatures_add(struct http_client *client, const struct channel_entry *before,
                          const struct channel_entry *after, json_t **answer) {
  for (size_t i = 0; i < after->signatures.n; i++) {
    bool is_there = i < before->signatures.n &&
                    string_equal(before->signatures.all[i].text, after->signatures.all[i].text);
    int code =
        is_there ? EXIT_OK : signature_post(client, after, &after->signatures.all[i], answer);
    if (code != EXIT_OK)
      return code;
  }
  return EXIT_OK;
}

static int sign_with(struct http_client *client, const struct options *options, const char *channel,
                     const struct signers *signers, const struct trusted_keys *trusted) {
  struct error error;
  char digest[DIGEST_TEXT_SIZE];
  cleanup_present struct channel_present present = {0};
  cleanup_release struct release *release = NULL;
  cleanup_json json_t *answer = NULL;
  cleanup_free char *what = xasprintf("channel %s was not signed", channel);
  int code = channel_present_of_options(client, options, channel, &present);
  if (code == EXIT_OK)
    code = release_get(client, digest_format(&present.entry.release, digest), what, &release);
  if (code != EXIT_OK)
    return code;
  struct channel_entry signed_entry = present.entry; /* borrows its texts */
  if (!release_is_of(release, &present.entry, &error) ||
      (trusted->n && !channel_entry_verify(&present.entry, trusted, &error)) ||
      !entry_is_last_or_next(&signed_entry, signers, &error) ||
      !entry_sign(&signed_entry, signers, &error)) {
    error_prefix(&error, "%s: ", what);
    return cli_fail(EXIT_REFUSED, &error);
  }
  code = signatures_add(client, &present.entry, &signed_entry, &answer);
  if (code != EXIT_OK)
    return code;
  if (option_flag(options, "json"))
    cli_print_json(answer ? answer : present.json);
  else
    printf("channel  %s, tag %s, counter %lld, %zu signature%s\n", channel, present.entry.tag,
           (long long)present.entry.counter, signed_entry.signatures.n,
           signed_entry.signatures.n == 1 ? "" : "s");
  return EXIT_OK;
}

static int command_sign(struct options *options) {
  struct error error;
  const char *channel, *const *trusted_paths;
  cleanup_signers struct signers signers = {0};
  cleanup_trusted_keys struct trusted_keys trusted = {0};
  if (!channel_of_arguments(options, "wavetune sign stable --sign-key FILE", &channel, &error) ||
      !signers_of_option(options, &signers, &error))
    return cli_fail(EXIT_USAGE, &error);
  if (!signers.n) {
    error_set(&error, "say who signs: --sign-key FILE, or WAVETUNE_SIGN_KEYS");
    return cli_fail(EXIT_USAGE, &error);
  }
  size_t n = option_list(options, "trusted-key", &trusted_paths);
  for (size_t i = 0; i < n; i++)
    if (!trusted_keys_add(&trusted, trusted_paths[i], &error))
      return cli_fail(EXIT_USAGE, &error);
  cleanup_http_client struct http_client *client = cli_connect(options);
  return client ? sign_with(client, options, channel, &signers, &trusted) : EXIT_USAGE;
}

static const struct option_spec promote_options[] = {
    {.name = "if-match",
     .type = OPTION_TEXT,
     .argument = "ETAG",
     .flag_only = true,
     .help = "move only while the channel's entry still has this entity tag, which promote --json "
             "prints"},
    OPTION_SIGN_KEY,
    OPTION_FOLLOW,
    OPTION_EXPIRES,
    SERVER_OPTIONS,
};
static const struct option_spec rollback_options[] = {
    {.name = "to",
     .type = OPTION_TEXT,
     .argument = "RELEASE",
     .flag_only = true,
     .help = "the release to return to; default: the one that the present release replaced"},
    OPTION_ENVIRONMENT,
    OPTION_TAG,
    OPTION_REGIME,
    OPTION_SIGN_KEY,
    OPTION_FOLLOW,
    OPTION_EXPIRES,
    SERVER_OPTIONS,
};
static const struct option_spec sign_options[] = {
    OPTION_ENVIRONMENT,
    OPTION_TAG,
    OPTION_REGIME,
    OPTION_SIGN_KEY,
    OPTION_FOLLOW,
    {.name = "trusted-key",
     .type = OPTION_LIST,
     .argument = "FILE|FOLDER",
     .flag_only = true,
     .help = "sign only what one of these public keys signed before"},
    SERVER_OPTIONS,
};

const struct command_spec spec_promote = {
    .name = "promote",
    .arguments = "RELEASE CHANNEL",
    .summary = "point a channel at a release",
    .description = "The release is downloaded and checked first. With a key the entry that the "
                   "channel gets is signed: one "
                   "count more than what the server says is there, and with --follow than what you "
                   "say. When somebody else moves "
                   "the channel in between, nothing is moved.",
    .options = promote_options,
    .n_options = ARRAY_LENGTH(promote_options),
    .run = command_promote,
};
const struct command_spec spec_rollback = {
    .name = "rollback",
    .arguments = "CHANNEL",
    .summary = "point a channel at a release that it served before",
    .description = "A higher counter with an older release, so that deployments take it. Signed as "
                   "promote signs.",
    .options = rollback_options,
    .n_options = ARRAY_LENGTH(rollback_options),
    .run = command_rollback,
};
const struct command_spec spec_sign = {
    .name = "sign",
    .arguments = "CHANNEL",
    .summary = "add a signature to what a channel has, so that a new key can take over",
    .description = "The entry stays as it is. The release that it names is downloaded and checked. "
                   "See what is signed on stderr; "
                   "with --trusted-key the entry must have been signed before, and with --follow "
                   "its counter is that one or the "
                   "next.",
    .options = sign_options,
    .n_options = ARRAY_LENGTH(sign_options),
    .run = command_sign,
};
