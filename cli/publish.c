/* wavetune publish, promote and diff: winners into an immutable release, a channel onto a release, one release held
 * against another. */
#include "cli/cli.h"
#include "common/cache/release.h"
#include "common/file.h"

/* Demands that bytes are a release with this digest: what the server says is not taken on trust. */
static bool release_check(const char *bytes, size_t size, const char *digest_text, struct release **ret_release,
                          struct error *error) {
  cleanup_release struct release *release = NULL;
  if (!release_parse(bytes, size, &release, error))
    return error_prefix(error, "the server's release is not a release: ");
  char text[DIGEST_TEXT_SIZE];
  if (!string_equal(digest_format(&release->digest, text), digest_text))
    return error_set(error, "the server's release has the digest %s, not %s", text, digest_text);
  *ret_release = TAKE(release);
  return true;
}

/* Where a channel must be for a move; both NULL: anywhere. */
struct precondition {
  const char *if_match, *if_none_match;
};

/* Points a channel at a release. The entry gets its entity tag beside its members: what --if-match takes next. */
static int channel_move(struct http_client *client, const char *channel, const char *digest,
                        struct precondition precondition, json_t **ret_entry) {
  cleanup_free char *escaped = http_escape(channel);
  cleanup_free char *path = xasprintf("/v1/channels/%s", escaped);
  cleanup_json json_t *body_json = json_pack("{s:s}", "release", digest);
  cleanup_free char *body = json_canonical(body_json);
  struct http_request request = {.method = "PUT",
                                 .path = path,
                                 .body = body,
                                 .body_size = strlen(body),
                                 .if_match = precondition.if_match,
                                 .if_none_match = precondition.if_none_match};
  cleanup_http_response struct http_response response = {0};
  struct error error;
  if (!http_send(client, &request, &response, &error))
    return cli_fail(EXIT_UNREACHABLE, &error);
  cleanup_json json_t *answer = json_loadb(response.body, response.size, 0, NULL);
  if (response.status / 100 != 2) {
    cleanup_free char *what = xasprintf("channel %s was not moved", channel);
    return cli_refused(&response, what);
  }
  json_object_set_new(answer, "etag", json_string(response.etag ? response.etag : ""));
  *ret_entry = TAKE(answer);
  return EXIT_OK;
}

static void reasons_print(const json_t *answer, const char *group) {
  size_t index;
  json_t *item;
  json_array_foreach (json_object_get(answer, group), index, item) {
    cleanup_free char *key = json_dumps(json_object_get(item, "key"), JSON_COMPACT);
    fprintf(stderr, "%-7s  %s %s: %s\n", group, cli_member(item, "name"), key ? key : "", cli_member(item, "reason"));
  }
}

/* {"channel": …, "min_gain": …} of the options, NULL without a channel. */
static bool replaces_of(const struct options *options, json_t **ret_replaces, struct error *error) {
  const char *channel = option_text(options, "channel"), *text = option_text(options, "min-gain");
  char *end;
  double min_gain = strtod(text, &end);
  if (end == text || *end || !(min_gain >= 0 && min_gain < 1))
    return error_set(error, "--min-gain %s: give a share of the time, 0 to below 1, such as 0.02 for 2 %%", text);
  *ret_replaces = channel ? json_pack("{s:s, s:f}", "channel", channel, "min_gain", min_gain) : NULL;
  return true;
}

static bool publish_body(const struct options *options, json_t **ret_body, struct error *error) {
  cleanup_json json_t *environment = NULL;
  if (!cli_environment(options, &environment, error))
    return false;
  cleanup_json json_t *body = json_pack("{s:O, s:s}", "environment", environment, "tag", option_text(options, "tag"));
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
  json_t *replaces;
  if (!replaces_of(options, &replaces, error))
    return false;
  if (replaces)
    json_object_set_new(body, "replaces", replaces);
  *ret_body = TAKE(body);
  return true;
}

/* The channel moves from where it was when its release was compared, and from nowhere else. */
static int published_promote(struct http_client *client, const json_t *answer, const char *channel,
                             json_t **ret_entry) {
  const char *etag = cli_member(json_object_get(answer, "replaces"), "etag");
  struct precondition precondition = {etag[0] ? etag : NULL, etag[0] ? NULL : "*"};
  return channel_move(client, channel, cli_member(answer, "release"), precondition, ret_entry);
}

static int command_publish(struct options *options) {
  cleanup_json json_t *body = NULL;
  struct error error;
  if (!publish_body(options, &body, &error))
    return cli_fail(EXIT_USAGE, &error);
  cleanup_http_client struct http_client *client = cli_connect(options);
  if (!client)
    return EXIT_USAGE;
  cleanup_json json_t *answer = NULL, *entry = NULL;
  int code = cli_call(client, "POST", "/v1/releases", body, &answer);
  if (code != EXIT_OK)
    return code;
  const char *digest = cli_member(answer, "release"), *bytes = cli_member(answer, "bytes");
  cleanup_release struct release *release = NULL;
  if (!release_check(bytes, strlen(bytes), digest, &release, &error))
    return cli_fail(EXIT_REFUSED, &error);
  const char *channel = option_text(options, "channel");
  if (channel && (code = published_promote(client, answer, channel, &entry)) != EXIT_OK)
    return code;
  if (option_flag(options, "json")) {
    if (entry)
      json_object_set(answer, "channel", entry);
    cli_print_json(answer);
    return EXIT_OK;
  }
  reasons_print(answer, "kept");
  reasons_print(answer, "skipped");
  cleanup_free char *environment = environment_format(&release->environment);
  printf("release  %s\n         %zu winner%s, tag %s, %s\n", digest, release->n_winners,
         release->n_winners == 1 ? "" : "s", release->tag, environment);
  if (entry)
    printf("channel  %s, counter %" JSON_INTEGER_FORMAT "\n", channel,
           json_integer_value(json_object_get(entry, "counter")));
  return EXIT_OK;
}

static int command_promote(struct options *options) {
  char *const *arguments;
  struct error error;
  if (options_arguments(options, &arguments) != 2) {
    error_set(&error, "name a release and a channel: wavetune promote sha256:… stable");
    return cli_fail(EXIT_USAGE, &error);
  }
  cleanup_http_client struct http_client *client = cli_connect(options);
  if (!client)
    return EXIT_USAGE;
  cleanup_json json_t *entry = NULL;
  const char *given = option_text(options, "if-match");
  bool is_bare = given && given[0] != '"' && !string_equal(given, "*"); /* a shell ate the quotes */
  cleanup_free char *if_match = given ? xasprintf(is_bare ? "\"%s\"" : "%s", given) : NULL;
  int code = channel_move(client, arguments[1], arguments[0], (struct precondition){if_match, NULL}, &entry);
  if (code != EXIT_OK)
    return code;
  if (option_flag(options, "json"))
    cli_print_json(entry);
  else
    printf("channel  %s, tag %s, counter %" JSON_INTEGER_FORMAT "\nrelease  %s\netag     %s\n", arguments[1],
           cli_member(entry, "tag"), json_integer_value(json_object_get(entry, "counter")), arguments[0],
           cli_member(entry, "etag"));
  return EXIT_OK;
}

/* A release by digest from the server, or from a file (what fetch keeps as release.json). */
static int release_load(struct http_client *client, const char *name, struct release **ret_release) {
  struct error error;
  struct digest digest;
  if (!digest_parse(name, &digest)) {
    cleanup_free char *text = NULL;
    size_t size;
    if (!file_read(name, 64 << 20, &text, &size, &error))
      return cli_fail(EXIT_USAGE, &error);
    if (!release_parse(text, size, ret_release, &error)) {
      error_prefix(&error, "%s is no release: ", name);
      return cli_fail(EXIT_USAGE, &error);
    }
    return EXIT_OK;
  }
  cleanup_free char *path = xasprintf("/v1/releases/%s", name);
  struct http_request request = {.method = "GET", .path = path};
  cleanup_http_response struct http_response response = {0};
  if (!http_send(client, &request, &response, &error))
    return cli_fail(EXIT_UNREACHABLE, &error);
  if (response.status != 200)
    return cli_refused(&response, name);
  if (!release_check(response.body, response.size, name, ret_release, &error))
    return cli_fail(EXIT_REFUSED, &error);
  return EXIT_OK;
}

static void changes_print(const json_t *diff, const char *group, const char *sign) {
  size_t index;
  json_t *change;
  json_array_foreach (json_object_get(diff, group), index, change) {
    cleanup_free char *key = json_dumps(json_object_get(change, "key"), JSON_COMPACT);
    printf("%s %s %s", sign, cli_member(change, "name"), key ? key : "");
    cleanup_free char *from = json_dumps(json_object_get(change, "from"), JSON_COMPACT);
    cleanup_free char *to = json_dumps(json_object_get(change, "to"), JSON_COMPACT);
    if (from && to)
      printf("\n    from %s\n    to   %s", from, to);
    putchar('\n');
  }
}

static void scope_difference_add(json_t *diff, const char *name, json_t *from, json_t *to) {
  if (!json_equal(from, to))
    json_object_set_new(diff, name, json_pack("{s:O, s:O}", "from", from, "to", to));
  json_decref(from);
  json_decref(to);
}

/* Two releases with the same winners may still be for different places. */
static void scope_differences_add(json_t *diff, const struct release *from, const struct release *to) {
  scope_difference_add(diff, "environment", environment_to_json(&from->environment),
                       environment_to_json(&to->environment));
  scope_difference_add(diff, "tag", json_string(from->tag), json_string(to->tag));
}

static void scope_difference_print(const json_t *diff, const char *name) {
  const json_t *difference = json_object_get(diff, name);
  if (!difference)
    return;
  cleanup_free char *from = json_dumps(json_object_get(difference, "from"), JSON_COMPACT | JSON_ENCODE_ANY);
  cleanup_free char *to = json_dumps(json_object_get(difference, "to"), JSON_COMPACT | JSON_ENCODE_ANY);
  printf("~ %s\n    from %s\n    to   %s\n", name, from, to);
}

static int command_diff(struct options *options) {
  char *const *arguments;
  struct error error;
  if (options_arguments(options, &arguments) != 2) {
    error_set(&error, "name two releases, each by digest or as a release.json file");
    return cli_fail(EXIT_USAGE, &error);
  }
  cleanup_http_client struct http_client *client = cli_connect(options);
  if (!client)
    return EXIT_USAGE;
  cleanup_release struct release *from = NULL, *to = NULL;
  int code = release_load(client, arguments[0], &from);
  if (code == EXIT_OK)
    code = release_load(client, arguments[1], &to);
  if (code != EXIT_OK)
    return code;
  cleanup_json json_t *diff = release_diff(from, to);
  scope_differences_add(diff, from, to);
  int difference = digest_equal(&from->digest, &to->digest) ? EXIT_OK : EXIT_FAILED;
  if (option_flag(options, "json")) {
    cli_print_json(diff);
    return difference;
  }
  scope_difference_print(diff, "environment");
  scope_difference_print(diff, "tag");
  changes_print(diff, "removed", "-");
  changes_print(diff, "added", "+");
  changes_print(diff, "changed", "~");
  printf("%zu removed, %zu added, %zu changed, %" JSON_INTEGER_FORMAT " the same\n",
         json_array_size(json_object_get(diff, "removed")), json_array_size(json_object_get(diff, "added")),
         json_array_size(json_object_get(diff, "changed")), json_integer_value(json_object_get(diff, "same")));
  return difference;
}

static const struct option_spec publish_options[] = {
    OPTION_ENVIRONMENT,
    OPTION_TAG,
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
     .help = "a JSON array of {\"kernel\", \"key\", \"config\"}: these configs, whatever was measured"},
    {.name = "channel",
     .type = OPTION_TEXT,
     .argument = "NAME",
     .flag_only = true,
     .help = "promote the release to this channel too; what it serves is replaced only by what is faster"},
    {.name = "min-gain",
     .type = OPTION_TEXT,
     .argument = "SHARE",
     .flag_only = true,
     .default_text = "0.02",
     .help = "with --channel: how much faster than what is served a winner must be to replace it"},
    SERVER_OPTIONS,
};
static const struct option_spec promote_options[] = {
    {.name = "if-match",
     .type = OPTION_TEXT,
     .argument = "ETAG",
     .flag_only = true,
     .help = "move only while the channel's entry still has this entity tag, which promote --json prints"},
    SERVER_OPTIONS,
};
static const struct option_spec diff_options[] = {SERVER_OPTIONS};

const struct command_spec spec_publish = {
    .name = "publish",
    .arguments = "",
    .summary = "make a release of the winners for one environment and tag",
    .description =
        "For every kernel and key the newest done job's winner is taken, or its pin. What is skipped is "
        "said, with the reason. The same winners give the same digest.\n"
        "With --channel a config that the channel serves is kept, which is said with the reason, unless the "
        "newest job measured it beside its winner and the winner is faster beyond doubt and by --min-gain, or "
        "the served one was flagged or quarantined since. To replace it whatever was measured, pin a config, or "
        "publish without --channel and promote.",
    .options = publish_options,
    .n_options = ARRAY_LENGTH(publish_options),
    .run = command_publish,
};
const struct command_spec spec_promote = {
    .name = "promote",
    .arguments = "RELEASE CHANNEL",
    .summary = "point a channel at a release; also how to roll back",
    .options = promote_options,
    .n_options = ARRAY_LENGTH(promote_options),
    .run = command_promote,
};
const struct command_spec spec_diff = {
    .name = "diff",
    .arguments = "RELEASE RELEASE",
    .summary = "what changed between two releases; exits with 1 when they differ",
    .options = diff_options,
    .n_options = ARRAY_LENGTH(diff_options),
    .run = command_diff,
};
