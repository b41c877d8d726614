/* wavetune publish, releases, diff, promote, rollback, sign, channels and key: winners become an
 * immutable release, channels point at releases, and keys sign the entries of channels. */
#include "cli/channel.h"

static void reasons_print(const json_t *answer, const char *group) {
  json_elements (json_object_get(answer, group), index, item) {
    if (!json_object_get(item, "reason"))
      continue;
    cleanup_free char *key = cli_compact(item, "key");
    fprintf(stderr, "%-7s  %s %s: %s\n", group, cli_member(item, "name"), key,
            cli_member(item, "reason"));
  }
}

/* The keys without which nothing is published; NULL: none. */
static json_t *required_of_options(const struct options *options) {
  const char *file = option_text(options, "jobs"), *run = option_text(options, "run");
  bool is_all = option_flag(options, "require-all");
  cleanup_json json_t *required = json_object();
  if (is_all)
    json_put(required, "all", json_true());
  if (run)
    json_put(required, "run", option_text_json(options, "run"));
  if (file)
    json_put(required, "jobs", jobs_file_read(file));
  return json_object_size(required) ? TAKE(required) : NULL;
}

/* Posts the request. Where required keys are missing, prints them. */
static json_t *release_post(struct http_client *client, const json_t *body) {
  cleanup_free char *text = json_dumps(body, JSON_COMPACT);
  struct http_request request = {
      .method = "POST", .path = "/v1/releases", .body = text, .body_size = strlen(text)};
  cleanup_http_response struct http_response response = {0};
  cli_send(client, &request, &response);

  json_t *answer = json_loadb(response.body, response.size, 0, NULL);
  const json_t *lacking = json_object_get(answer, "lacking");
  if (response.status == 409 && json_array_size(lacking)) {
    reasons_print(answer, "lacking");
    cli_refuse(EXIT_FAILED, "nothing was published: %zu required keys have no winner",
               json_array_size(lacking));
  }
  if (response.status / 100 != 2)
    cli_refused(&response, "nothing was published");
  if (!answer)
    cli_refuse(EXIT_UNREACHABLE, "the server's answer is no JSON");
  return answer;
}

static json_t *publish_body(const struct options *options) {
  const char *channel = option_text(options, "channel"), *gain = option_text(options, "min-gain"),
             *regime = option_text(options, "regime"), *pins_file = option_text(options, "pins");
  json_t *body = cli_options_json(options, "tag", "as-of", "require-agreement", NULL),
         *environment = cli_environment(options, "environment"),
         *required = required_of_options(options), *pins = NULL;
  char *end;
  double min_gain = strtod(gain, &end);
  struct error error;
  if (pins_file && !json_parse_file(pins_file, 16 << 20, &pins, &error))
    cli_fail(EXIT_USAGE, &error);
  if (end == gain || *end || !(min_gain >= 0 && min_gain < 1))
    cli_refuse(EXIT_USAGE,
               "--min-gain %s: give a share of the time, from 0 to below 1, such as 0.02 for 2 %%",
               gain);

  json_t *kernels = option_list_json(options, "kernel");
  json_put(body, "environment", environment);
  if (cli_regime_member(regime))
    json_put(body, "regime", option_text_json(options, "regime"));
  if (kernels)
    json_put(body, "kernels", kernels);
  if (pins)
    json_put(body, "pins", pins);
  if (required)
    json_put(body, "requires", required);
  if (option_flag(options, "refuse-self-timed"))
    json_put(body, "refuse_self_timed", json_true());
  if (channel)
    json_put(body, "replaces",
             json_pack("{s:o, s:f}", "channel", option_text_json(options, "channel"), "min_gain",
                       min_gain));
  return body;
}

static int command_publish(struct options *options) {
  cleanup_json json_t *entry = NULL;
  cleanup_signers struct signers signers = {0};
  struct channel_change change = {.channel = option_text(options, "channel"),
                                  .signers = &signers,
                                  .as_json = option_flag(options, "json")};
  const char *const *keys;
  if (!change.channel && (option_text(options, "expires") || option_text(options, "follow") ||
                          option_list(options, "sign-key", &keys)))
    cli_refuse(EXIT_USAGE,
               "--sign-key, --follow and --expires are for a channel's entry: give --channel "
               "too");
  if (change.channel)
    channel_change_of_options(options, &signers, &change);

  cleanup_json json_t *body = publish_body(options);
  cleanup_http_client struct http_client *client = cli_connect(options);
  cleanup_json json_t *answer = release_post(client, body);
  const char *digest = cli_member(answer, "release"), *bytes = cli_member(answer, "bytes");
  cleanup_release struct release *release = release_check(bytes, strlen(bytes), digest);
  if (change.channel) {
    /* The channel moves only from the entry that its release was compared with. */
    const char *etag = cli_member(json_object_get(answer, "replaces"), "etag");
    change.release = release;
    change.if_match = *etag ? etag : NULL;
    change.if_none_match = *etag ? NULL : "*";
    entry = channel_change(client, &change);
  }

  if (change.as_json) {
    if (entry)
      json_object_set(answer, "channel", entry);
    cli_print_json(answer);
    return EXIT_OK;
  }

  reasons_print(answer, "included");
  reasons_print(answer, "kept");
  reasons_print(answer, "skipped");
  cleanup_free char *environment = environment_format(&release->environment);
  const char *regime = regime_member(release->regime);
  printf("release  %s\n         %zu winner%s, tag %s, %s%s%s\n", digest, release->n_winners,
         release->n_winners == 1 ? "" : "s", release->tag, regime ? regime : "", regime ? ", " : "",
         environment);
  if (!entry)
    return EXIT_OK;
  if (!environment_names_gpu(&release->environment))
    fprintf(stderr, "wavetune: the release's environment names no model of GPU, so a node that "
                    "states its own does not find it; import or tune again with --environment "
                    "'{\"gpu\": …}'\n");
  printf("channel  %s, counter %lld\n", change.channel, cli_integer(entry, "counter"));

  return EXIT_OK;
}

static int command_releases(struct options *options) {
  static const struct cli_column columns[] = {{"release"},       {"made", "created_at"},
                                              {"tag"},           {"winners", "winners", true},
                                              {"by", "made_by"}, {"environment"}};
  return cli_print_list(options, "/v1/releases", columns);
}

/* Gets a release by its digest from the server, or reads a file, such as fetch's release.json. */
static struct release *release_load(struct http_client *client, const char *name) {
  struct digest digest;
  return digest_parse(name, &digest) ? release_get(client, name, name)
                                     : release_of_file(name, " is not a release");
}

static void change_print(const char *sign, const char *name, const char *key,
                         const json_t *change) {
  const json_t *from = json_object_get(change, "from"), *to = json_object_get(change, "to");
  printf("%s %s%s", sign, name, key);
  if (from && to) {
    cleanup_free char *from_text = json_dumps(from, JSON_COMPACT | JSON_ENCODE_ANY),
                      *to_text = json_dumps(to, JSON_COMPACT | JSON_ENCODE_ANY);
    printf("\n    from %s\n    to   %s", from_text, to_text);
  }
  putchar('\n');
}

static int command_diff(struct options *options) {
  static const char *const groups[][2] = {{"removed", "-"}, {"added", "+"}, {"changed", "~"}};
  char *const *names =
      cli_arguments(options, 2, "name two releases, each by digest or as a release.json file");
  if (!names)
    return EXIT_USAGE;
  cleanup_http_client struct http_client *client = cli_connect(options);
  cleanup_release struct release *from = release_load(client, names[0]),
                                 *to = release_load(client, names[1]);

  /* Two releases with the same winners may still have different environments, tags or regimes. */
  const struct {
    const char *name;
    json_t *from, *to;
  } places[] = {
      {"environment", environment_to_json(&from->environment),
       environment_to_json(&to->environment)},
      {"tag", json_string(from->tag), json_string(to->tag)},
      {"regime", json_string(regime_name(from->regime)), json_string(regime_name(to->regime))}};
  cleanup_json json_t *diff = release_diff(from, to);
  bool as_json = option_flag(options, "json");

  for (size_t i = 0; i < ARRAY_LENGTH(places); i++) {
    cleanup_json json_t *change =
        json_pack("{s:o, s:o}", "from", places[i].from, "to", places[i].to);
    if (json_equal(places[i].from, places[i].to))
      continue;
    json_object_set(diff, places[i].name, change);
    if (!as_json)
      change_print("~", places[i].name, "", change);
  }

  if (as_json) {
    cli_print_json(diff);
  } else {
    for (size_t i = 0; i < ARRAY_LENGTH(groups); i++) {
      json_elements (json_object_get(diff, groups[i][0]), index, change) {
        cleanup_free char *name = xasprintf("%s ", cli_member(change, "name")),
                          *key = cli_compact(change, "key");
        change_print(groups[i][1], name, key, change);
      }
    }
    printf("%zu removed, %zu added, %zu changed, %lld the same\n",
           json_array_size(json_object_get(diff, "removed")),
           json_array_size(json_object_get(diff, "added")),
           json_array_size(json_object_get(diff, "changed")), cli_integer(diff, "same"));
  }

  return digest_equal(&from->digest, &to->digest) ? EXIT_OK : EXIT_FAILED;
}

static char *format_count(const json_t *array) { return xasprintf("%zu", json_array_size(array)); }

static int command_channels(struct options *options) {
  static const struct cli_column columns[] = {{"channel"},
                                              {"tag"},
                                              {"counter", "counter", true},
                                              {"moved", "updated_at"},
                                              {"release"},
                                              {"signed", "signatures", true, format_count},
                                              {"expires"},
                                              {"environment"}};
  return cli_print_list(options, "/v1/channels", columns);
}

static int command_promote(struct options *options) {
  char *const *arguments =
      cli_arguments(options, 2, "name a release and a channel: wavetune promote sha256:… stable");
  cleanup_signers struct signers signers = {0};
  struct channel_change change = {0};
  channel_change_of_options(options, &signers, &change);
  cleanup_http_client struct http_client *client = cli_connect(options);

  const char *given = option_text(options, "if-match");
  bool is_bare = given && given[0] != '"' && !string_equal(given, "*"); /* a shell ate the quotes */
  cleanup_free char *if_match = given ? xasprintf(is_bare ? "\"%s\"" : "%s", given) : NULL,
                    *what = xasprintf("channel %s was not moved", arguments[1]);
  cleanup_release struct release *release = release_get(client, arguments[0], what);
  change.channel = arguments[1];
  change.release = release;
  change.if_match = if_match;

  return channel_change_and_print(client, &change);
}

/* The release that the channel served before it first served its present one. With signers, one of
 * them must have signed its entry: a signed rollback states that the channel served the release
 * before, and a server can forge the history. */
static char *release_before_get(struct http_client *client, const struct channel_entry *present,
                                const struct signers *signers) {
  const char *digest = DIGEST_TEXT(&present->release);
  cleanup_json json_t *environment = environment_to_json(&present->environment);
  cleanup_free char *path = channel_path(present->channel, "/entries", environment, present->tag,
                                         regime_name(present->regime));
  cleanup_json json_t *history = cli_list(client, path);

  /* The history is newest first. The newest entry before the first one with the present release is
   * chosen, so that a second rollback goes back further. */
  const json_t *before = NULL, *replaced = NULL;
  bool is_behind = false;

  json_elements (history, index, entry) {
    if (string_equal(cli_member(entry, "release"), digest)) {
      is_behind = true;
      before = NULL;
    } else if (is_behind && !before) {
      before = entry;
      replaced = replaced ? replaced : entry;
    }
  }

  if (!before && replaced)
    cli_refuse(EXIT_FAILED,
               "channel %s is rolled back already: nothing was served before %s; --to %s "
               "goes forward again",
               present->channel, digest, cli_member(replaced, "release"));
  if (!before)
    cli_refuse(EXIT_FAILED, "channel %s served nothing before %s; name the release: --to sha256:…",
               present->channel, digest);

  if (signers->n) {
    cleanup_channel_entry struct channel_entry served = {0};
    struct error error;
    if (!channel_entry_parse(before, &served, &error))
      cli_fail_in(EXIT_REFUSED, &error, "the server's answer is not a channel entry: ");
    if (!string_equal(served.channel, present->channel) ||
        !entry_is_signed_by(&served, signers->all, signers->n))
      cli_refuse(EXIT_REFUSED,
                 "only the server states that channel %s served %s before: none of these "
                 "keys signed that entry; name the release: --to sha256:…",
                 present->channel, cli_member(before, "release"));
  }

  return xstrdup(cli_member(before, "release"));
}

/* Whether a release has the environment, tag and regime of a channel's entry. */
static bool release_is_of(const struct release *release, const struct channel_entry *entry,
                          struct error *error) {
  struct digest a = environment_digest(&release->environment),
                b = environment_digest(&entry->environment);
  if (string_equal(release->tag, entry->tag) && release->regime == entry->regime &&
      digest_equal(&a, &b))
    return true;
  cleanup_free char *environment = environment_format(&release->environment);
  return error_set(error,
                   "the release is for tag %.80s, regime %s, %.300s, and this entry of channel %s "
                   "is for another tag, regime or environment",
                   release->tag, regime_name(release->regime), environment, entry->channel);
}

static int command_rollback(struct options *options) {
  char *const *channel = cli_arguments(options, 1, "name a channel: wavetune rollback stable");
  cleanup_signers struct signers signers = {0};
  cleanup_present struct channel_present present = {0};
  struct channel_change change = {0};
  struct error error;
  channel_change_of_options(options, &signers, &change);
  cleanup_http_client struct http_client *client = cli_connect(options);
  channel_present_of_options(client, options, *channel, &present);

  const char *to = option_text(options, "to");
  cleanup_free char *digest =
                        to ? xstrdup(to) : release_before_get(client, &present.entry, &signers),
                    *what = xasprintf("channel %s was not rolled back", *channel);
  cleanup_release struct release *release = release_get(client, digest, what);
  if (!release_is_of(release, &present.entry, &error))
    cli_fail_in(EXIT_USAGE, &error, "%s: ", what);

  change.channel = *channel;
  change.release = release;
  change.if_match = cli_member(present.json, "etag");
  return channel_change_and_print(client, &change);
}

/* Posts one signature of an entry. */
static json_t *signature_post(struct http_client *client, const struct channel_entry *entry,
                              const struct channel_signature *signature) {
  cleanup_json json_t *signatures = channel_signatures_to_json(signature, 1);
  cleanup_json json_t *body =
      json_pack("{s:o, s:s, s:I, s:O}", "environment", environment_to_json(&entry->environment),
                "tag", entry->tag, "counter", (json_int_t)entry->counter, "signature",
                json_array_get(signatures, 0));
  if (regime_member(entry->regime))
    json_put(body, "regime", json_string(regime_member(entry->regime)));

  cleanup_free char *path = cli_path("/v1/channels/", entry->channel, "/signatures");
  return cli_call(client, "POST", path, body);
}

static int command_sign(struct options *options) {
  char *const *channel =
      cli_arguments(options, 1, "name a channel: wavetune sign stable --sign-key FILE");
  cleanup_signers struct signers signers = {0};
  cleanup_trusted_keys struct trusted_keys trusted = {0};
  struct error error;
  signers_of_option(options, &signers);
  if (!signers.n)
    cli_refuse(EXIT_USAGE, NO_SIGN_KEY);
  trusted_of_option(options, &trusted);

  cleanup_http_client struct http_client *client = cli_connect(options);
  cleanup_present struct channel_present present = {0};
  cleanup_json json_t *answer = NULL;
  cleanup_free char *what = xasprintf("channel %s was not signed", *channel);
  channel_present_of_options(client, options, *channel, &present);
  cleanup_release struct release *release =
      release_get(client, DIGEST_TEXT(&present.entry.release), what);

  const struct channel_entry *before = &present.entry;
  struct channel_entry after = *before; /* borrows its texts */
  if (!release_is_of(release, before, &error) ||
      (trusted.n && !channel_entry_verify(before, &trusted, &error)) ||
      !entry_follows(before, &signers, true, &error) || !entry_sign(&after, &signers, &error)) {
    cli_fail_in(EXIT_REFUSED, &error, "%s: ", what);
  }

  for (size_t i = 0; i < after.signatures.n; i++) {
    bool is_there = i < before->signatures.n &&
                    string_equal(before->signatures.all[i].text, after.signatures.all[i].text);
    if (is_there)
      continue;
    json_decref(answer);
    answer = signature_post(client, &after, &after.signatures.all[i]);
  }

  choices_sign_all(client, release, &signers);
  if (option_flag(options, "json"))
    cli_print_json(answer ? answer : present.json);
  else
    printf("channel  %s, tag %s, counter %lld, %zu signature%s\n", *channel, before->tag,
           (long long)before->counter, after.signatures.n, after.signatures.n == 1 ? "" : "s");

  return EXIT_OK;
}

/* Makes a key pair, or reads one file, and prints it. */
static int key_print(const struct options *options, bool is_new) {
  char *const *path = cli_arguments(options, 1,
                                    is_new ? "name one file: wavetune key new publisher.key"
                                           : "name one file: wavetune key show publisher.key.pub");
  cleanup_signing_key struct signing_key key = {0};
  struct error error;
  if (is_new ? !signing_key_create(*path, &key, &error) : !signing_key_read(*path, &key, &error))
    cli_fail(EXIT_USAGE, &error);

  const char *kind = key.is_private ? "private" : "public";
  cleanup_free char *public_path = is_new ? xasprintf("%s.pub", *path) : NULL;
  const char *id = DIGEST_TEXT(&key.id);
  if (option_flag(options, "json")) {
    cleanup_json json_t *document = json_pack("{s:s, s:s, s:s, s:s*}", "key", id, "kind", kind,
                                              "file", *path, "public", public_path);
    cli_print_json(document);
    return EXIT_OK;
  }

  printf("key      %s\n%-7s  %s\n", id, kind, *path);
  if (public_path)
    printf("public   %s\n", public_path);
  return EXIT_OK;
}

static int command_key_new(struct options *options) { return key_print(options, true); }

static int command_key_show(struct options *options) { return key_print(options, false); }

static const struct option_spec publish_options[] = {
    OPTION_ENVIRONMENT,
    OPTION_TAG,
    OPTION_REGIME,
    CLI_LIST("kernel", "HASH", "only this kernel; may be repeated"),
    CLI_TEXT("as-of", "TIME", "only jobs that were done by this time (RFC 3339)"),
    CLI_TEXT("pins", "FILE",
             "a JSON array of {\"kernel\", \"key\", \"config\"}: configs to release whatever was "
             "measured"),
    CLI_FLAG("require-all",
             "publish nothing, and exit with 1, while a key that a job or an import has is left "
             "out"),
    CLI_TEXT("run", "RUN", "the same for the keys of this run's jobs"),
    CLI_TEXT(
        "jobs", "FILE",
        "the same for the keys of the jobs in a file: what `submit` printed, or one id a line"),
    CLI_TEXT("channel", "NAME",
             "promote the release to this channel too, which needs the role publisher or admin; a "
             "config that the channel serves is replaced only by a faster one"),
    CLI_TEXT("min-gain", "SHARE",
             "with --channel: how much faster a winner must be than the config that it replaces",
             .default_text = "0.02"),
    CLI_FLAG("refuse-self-timed",
             "leave out winners of kernels in c, whose own code runs in the process that times it; "
             "pins stay"),
    CLI_TEXT("require-agreement", "none|agrees|bitwise|interpreted",
             "leave out winners whose class of agreement is lower, unless a config of the "
             "equivalence set has it; pins stay; default: none"),
    OPTION_SIGN_KEY,
    OPTION_FOLLOW,
    OPTION_EXPIRES,
    SERVER_OPTIONS,
};
static const struct option_spec promote_options[] = {
    CLI_TEXT("if-match", "ETAG",
             "move only while the channel's entry still has this entity tag, which promote --json "
             "prints"),
    OPTION_SIGN_KEY,
    OPTION_FOLLOW,
    OPTION_EXPIRES,
    SERVER_OPTIONS,
};
static const struct option_spec rollback_options[] = {
    CLI_TEXT("to", "RELEASE",
             "the release to return to; default: the one before the present one was first served"),
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
    CLI_LIST("trusted-key", "FILE|FOLDER", "sign only what one of these public keys signed before"),
    SERVER_OPTIONS,
};
static const struct option_spec key_options[] = {OPTION_JSON};

CLI_COMMAND(publish, "publish", "", publish_options,
            "make a release of the winners for one environment, tag and regime",
            .description =
                "Takes, for every kernel and key, the newest done job's winner or the pin. Keys "
                "that are skipped are printed with the reason. The same winners give the same "
                "digest.\n"
                "With --channel a config that the channel serves is kept, and printed with the "
                "reason, unless the newest job measured it beside its winner and the winner is "
                "faster beyond doubt and by --min-gain, or the served config was flagged or "
                "quarantined since. To replace it whatever was measured, pin a config, or publish "
                "without --channel and promote.");
CLI_COMMAND(releases, "releases", "", server_options, "list releases, newest first");
CLI_COMMAND(diff, "diff", "RELEASE RELEASE", server_options,
            "print what changed between two releases; exits with 1 when they differ");
CLI_COMMAND(channels, "channels", "", server_options,
            "list channels and the releases they point at");
CLI_COMMAND(promote, "promote", "RELEASE CHANNEL", promote_options, "point a channel at a release",
            .description =
                "The release is downloaded and checked first. With a key the channel's new entry "
                "is signed: its counter follows the one that the server states, and with --follow "
                "the one that you state. If another request moves the channel in the meantime, "
                "this one does not.");
CLI_COMMAND(rollback, "rollback", "CHANNEL", rollback_options,
            "point a channel at a release that it served before",
            .description = "The new entry has a higher counter, so that deployments accept the "
                           "older release. It is signed as with promote. A second rollback goes "
                           "back further, never to what the first one left; exits with 1 when "
                           "nothing was served before.");
CLI_COMMAND(sign, "sign", "CHANNEL", sign_options,
            "add a signature to a channel's entry, so that a new key can replace an old one",
            .description =
                "The entry stays as it is. The release that it names is downloaded and checked. "
                "The signed text is printed on stderr. With --trusted-key one of these keys must "
                "have signed the entry before, and with --follow its counter must be that one or "
                "the next.");
CLI_COMMAND(key_new, "key new", "FILE", key_options,
            "make a key pair that signs channels: FILE, for the publisher only, and FILE.pub, for "
            "deployments");
CLI_COMMAND(key_show, "key show", "FILE", key_options,
            "print a key's id, and whether it is private or public");
