/* wavetune fetch: what a container's entrypoint calls. Brings the release that a channel names into
 * a folder, rendered for its tools, whole or not at all: asks, decides what has to be done, and
 * tells what became of it. Memory and threads: fetch.h. */
#include <time.h>

#include "cli/fetch.h"
#include "cli/files.h"
#include "common/base/file.h"
#include "common/base/time.h"
#include "common/node/node.h"

static void fetch_release(struct fetch *fetch) {
  if (fetch->client)
    http_client_free(fetch->client);
  trusted_keys_release(&fetch->keys);
  if (fetch->identity)
    identity_free(fetch->identity);
  for (size_t i = 0; fetch->renderings && i < fetch->n_formats; i++)
    json_decref(fetch->renderings[i].json);
  free(fetch->renderings);
  free(fetch->formats);
  environment_release(&fetch->asked);
  free(fetch->question);
  free(fetch->absolute);
  if (fetch->disk >= 0)
    close(fetch->disk);
  json_decref(fetch->state);
  kept_release(&fetch->kept);
  json_decref(fetch->entry);
}

/* Asking */

/* GET within the budget. False, with a sentence, when no whole answer came. */
static bool get(struct fetch *fetch, const char *path, const char *if_none_match, size_t size_max,
                struct http_response *ret, struct error *error) {
  int64_t begin_ns = clock_monotonic_ns(), left_ms = fetch->deadline_ms - begin_ns / 1000000;
  struct http_request request = {.method = "GET",
                                 .path = path,
                                 .if_none_match = if_none_match,
                                 .timeout_ms = left_ms,
                                 .response_max = size_max};
  if (left_ms <= 0)
    return error_of(error, ERROR_DEADLINE, "the time budget is used up");
  bool is_answered = http_send(fetch->client, &request, ret, error);
  fetch->took_ns[WORK_DOWNLOAD] += clock_monotonic_ns() - begin_ns;
  return is_answered;
}

static bool status_refused(const struct http_response *response, const char *what,
                           struct error *error) {
  cleanup_json json_t *problem = json_loadb(response->body, response->size, 0, NULL);
  const char *detail = cli_member(problem, "detail");
  error_of(error, error_kind_of_http(response->status), "%s: the server answered %d%s%s", what,
           response->status, detail[0] ? ": " : "", detail);
  http_error_name_request(response, error);
  return false;
}

/* The entity tag that may be asked with: of the same question, when what it came with is what
 * current points at. */
static const char *known_etag(const struct fetch *fetch) {
  const struct kept *kept = &fetch->kept;
  bool is_known = kept->is_there && kept->has_entry && kept->is_believed &&
                  string_equal(cli_member(fetch->state, "question"), fetch->question) &&
                  string_equal(cli_member(fetch->state, "name"), kept->name);
  const char *etag = is_known ? cli_member(fetch->state, "etag") : "";
  return http_header_is_usable(etag) ? etag : NULL;
}

/* Doing */

/* The release's bytes from its folder, else from the server (*ret_is_new); believed. *ret_bytes is
 * the caller's, also on failure. */
static bool bytes_get(struct fetch *fetch, const struct channel_entry *entry, const char *name,
                      char **ret_bytes, size_t *ret_size, bool *ret_is_new, struct error *error) {
  cleanup_http_response struct http_response response = {0};
  char text[DIGEST_TEXT_SIZE];
  *ret_is_new = !folder_release_read(fetch, name, ret_bytes, ret_size);
  if (!*ret_is_new)
    return true; /* it has the digest of its name, which is the entry's */
  cleanup_free char *path = xasprintf("/v1/releases/%s", digest_format(&entry->release, text));
  if (!get(fetch, path, NULL, RELEASE_SIZE_MAX, &response, error))
    return false;
  if (response.status != 200)
    return status_refused(&response, text, error);
  *ret_bytes = TAKE(response.body);
  *ret_size = response.size;
  return bytes_believe(fetch, entry, *ret_bytes, *ret_size, error);
}

/* Writes below `staging` what is missing of the release that `entry` names, while it is read and
 * rendered. */
static bool release_install(struct fetch *fetch, const struct channel_entry *entry,
                            const char *name, const char *staging, struct error *error) {
  cleanup_free char *bytes = NULL;
  cleanup_release struct release *release = NULL;
  cleanup_file_stream struct file_stream *stream = NULL; /* ends before what it was lent */
  size_t size = 0;
  bool is_new;
  if (!bytes_get(fetch, entry, name, &bytes, &size, &is_new, error) ||
      !file_stream_new(staging, fetch->deadline_ms, &stream, error))
    return false;
  if (is_new)
    file_stream_lend(stream, "release.json", bytes, size);
  if (!release_believe(fetch, entry, &bytes, size, &release, error) ||
      !renderings_make(fetch, release, name, stream, error))
    return false;
  int64_t begin_ns = clock_monotonic_ns();
  bool ok = file_stream_finish(stream, error);
  fetch->took_ns[WORK_WRITE] += clock_monotonic_ns() - begin_ns;
  return ok;
}

/* Renders what is missing of the release that `entry` names and makes it current. */
static bool install(struct fetch *fetch, const struct channel_entry *entry, struct error *error) {
  char text[DIGEST_TEXT_SIZE];
  const char *name = digest_format(&entry->release, text) + strlen("sha256:");
  cleanup_free char *staging = NULL;
  bool is_whole = renderings_read(fetch, name, false);
  if (!folder_stage(fetch, name, &staging, error) ||
      !(is_whole ? renderings_are_useful(fetch, name, error)
                 : release_install(fetch, entry, name, staging, error)))
    return false;
  int64_t begin_ns = clock_monotonic_ns();
  fetch->is_fresh = !is_whole || !string_equal(name, fetch->kept.name);
  ALWAYS(json_object_set_new(fetch->state, "name", json_string(name)) == 0);
  bool ok = folder_publish(fetch, name, staging, error);
  fetch->took_ns[WORK_WRITE] += clock_monotonic_ns() - begin_ns;
  return ok;
}

/* The server says that nothing changed: true of the channel, while time goes on, and formats may be
 * new here. */
static bool keep_current(struct fetch *fetch, struct error *error) {
  const struct kept *kept = &fetch->kept;
  if (!entry_is_current(&kept->entry, error))
    return false;
  fetch->entry = json_incref(kept->entry_json);
  if (!renderings_read(fetch, kept->name, false))
    return install(fetch, &kept->entry, error);
  return renderings_are_useful(fetch, kept->name, error);
}

static bool take_new(struct fetch *fetch, const struct http_response *response,
                     struct error *error) {
  cleanup_channel_entry struct channel_entry entry = {0};
  cleanup_json json_t *json = NULL;
  if (!json_parse(response->body, response->size, &json, error))
    return error_prefix(error, "the server's channel entry: ");
  if (!entry_believe(fetch, json, &entry, error))
    return false;
  fetch->entry = TAKE(json);
  entry_note(fetch, &entry);
  ALWAYS(json_object_set_new(fetch->state, "question", json_string(fetch->question)) == 0 &&
         json_object_set_new(fetch->state, "etag",
                             json_string(response->etag ? response->etag : "")) == 0);
  return install(fetch, &entry, error);
}

static bool fetch_now(struct fetch *fetch, struct error *error) {
  const char *etag = known_etag(fetch);
  cleanup_http_response struct http_response response = {0};
  if (!get(fetch, fetch->question, etag, 0, &response, error))
    return false;
  if (response.status != 200 && !(response.status == 304 && etag))
    return status_refused(&response, "no cache", error);
  if (response.status == 304 ? !keep_current(fetch, error) : !take_new(fetch, &response, error)) {
    folder_tidy(fetch); /* a disk that was full is not left so */
    return false;
  }
  folder_prune(fetch);
  return true;
}

/* Telling */

/* Whether what is there may be used although the server's answer cannot be. */
static bool is_kept(const struct fetch *fetch) {
  return fetch->kept.is_there && fetch->kept.is_believed;
}

static bool kept_is_expired(const struct fetch *fetch) {
  return fetch->kept.has_entry && fetch->kept.entry.expires_s &&
         fetch->kept.entry.expires_s <= time(NULL);
}

/* What came and was not taken has a code of its own; of all else it is told what there is to start
 * with. */
static int failure_code(const struct fetch *fetch, const struct error *error) {
  enum exit_code code = error_exit_code(error->kind);
  if (code != EXIT_UNREACHABLE && code != EXIT_REFUSED)
    return (int)code;
  return !is_kept(fetch) ? EXIT_NOTHING : kept_is_expired(fetch) ? EXIT_EXPIRED : EXIT_STALE;
}

static const char *outcome(const struct fetch *fetch, bool succeeded) {
  if (succeeded)
    return fetch->is_fresh ? "fresh" : "unchanged";
  return is_kept(fetch) ? "stale" : "nothing";
}

static void failure_tell(const struct fetch *fetch, const struct error *error) {
  char text[TIME_TEXT_SIZE];
  if (!fetch->kept.is_there)
    fprintf(stderr, "wavetune: %s; there is no cache to fall back on\n", error->message);
  else if (!is_kept(fetch))
    fprintf(stderr, "wavetune: %s; the cache that is there is not used: no trusted key signed it\n",
            error->message);
  else if (kept_is_expired(fetch))
    fprintf(stderr, "wavetune: %s; the last good cache is kept, which expired at %s\n",
            error->message, time_text_format(fetch->kept.entry.expires_s, text));
  else
    fprintf(stderr, "wavetune: %s; the last good cache is kept\n", error->message);
}

static void success_tell(const struct fetch *fetch) {
  if (fetch->keys.n == 0)
    fputs(
        "wavetune: nothing but digests was verified: name the publisher's key with --trusted-key\n",
        stderr);
  for (size_t i = 0; i < fetch->n_formats; i++) {
    const char *reason = cli_member(fetch->renderings[i].json, "reason");
    if (reason[0])
      fprintf(stderr, "wavetune: %s\n", reason);
  }
}

static json_t *formats_to_json(const struct fetch *fetch) {
  json_t *formats = json_array();
  for (size_t i = 0; i < fetch->n_formats; i++) {
    const json_t *rendering = fetch->renderings[i].json;
    const char *name = fetch->formats[i]->name, *reason = cli_member(rendering, "reason");
    if (!rendering)
      continue;
    cleanup_free char *folder = xasprintf("%s/current/%s", fetch->absolute, name);
    json_t *format =
        json_pack("{s:s, s:s, s:O, s:o}", "format", name, "folder", folder, "files",
                  json_object_get(rendering, "files"), "skipped", renderings_skipped(fetch, i));
    if (reason[0])
      ALWAYS(json_object_set_new(format, "reason", json_string(reason)) == 0);
    ALWAYS(json_array_append_new(formats, format) == 0);
  }
  return formats;
}

static json_t *took_to_json(const struct fetch *fetch) {
  static const char *const names[] = {"download", "verify", "read", "render", "write"};
  json_t *took = json_object();
  for (size_t i = 0; i < WORK_N; i++)
    ALWAYS(json_object_set_new(took, names[i], json_real((double)fetch->took_ns[i] / 1e6)) == 0);
  return took;
}

static json_t *answer_make(const struct fetch *fetch, bool succeeded, const struct error *error) {
  json_t *answer = json_pack(
      "{s:s, s:s+, s:o, s:o, s:o, s:o}", "outcome", outcome(fetch, succeeded), "folder", fetch->to,
      "/current", "asked", environment_to_json(&fetch->asked), "formats", formats_to_json(fetch),
      "variables", renderings_variables(fetch), "took_ms", took_to_json(fetch));
  ALWAYS(answer != NULL);
  if (!succeeded)
    ALWAYS(json_object_set_new(answer, "reason", json_string(error->message)) == 0);
  json_t *entry = succeeded                                 ? fetch->entry
                  : is_kept(fetch) && fetch->kept.has_entry ? fetch->kept.entry_json
                                                            : NULL;
  if (entry)
    ALWAYS(json_object_set(answer, "entry", entry) == 0);
  return answer;
}

/* `export NAME='value'` for a shell to eval. */
static void variables_print(const json_t *variables) {
  const char *name;
  json_t *value;
  json_object_foreach ((json_t *)variables, name, value) {
    printf("export %s='", name);
    for (const char *c = json_string_value(value); *c; c++)
      fputs(*c == '\'' ? "'\\''" : (const char[]){*c, '\0'}, stdout);
    puts("'");
  }
}

static int answer_print(struct fetch *fetch, const struct options *options, bool succeeded,
                        const struct error *error) {
  bool as_json = option_flag(options, "json");
  if (succeeded) {
    success_tell(fetch);
  } else {
    failure_tell(fetch, error);
    if (is_kept(fetch) && fetch->absolute)
      renderings_read(fetch, fetch->kept.name, true);
    else
      renderings_forget(fetch);
  }
  if (option_flag(options, "print-env")) {
    cleanup_json json_t *variables = renderings_variables(fetch);
    if (as_json)
      cli_print_json(variables);
    else
      variables_print(variables);
  } else if (as_json) {
    cleanup_json json_t *answer = answer_make(fetch, succeeded, error);
    cli_print_json(answer);
  } else if (succeeded) {
    printf("%s  %s/current  %s\n", outcome(fetch, true), fetch->to,
           cli_member(fetch->entry, "release"));
  }
  if (!succeeded)
    return failure_code(fetch, error);
  return option_flag(options, "exit-code") && !fetch->is_fresh ? EXIT_UNCHANGED : EXIT_OK;
}

/* Options */

static bool match_of_option(const struct options *options, enum cache_rule *ret,
                            struct error *error) {
  const char *text = option_text(options, "match");
  return cache_rule_parse(text, ret) ||
         error_set(error, "--match \"%.40s\" is no rule; it is " CACHE_RULES, text);
}

static bool keys_of_option(const struct options *options, struct trusted_keys *keys,
                           struct error *error) {
  const char *const *paths;
  size_t n = option_list(options, "trusted-key", &paths);
  return trusted_keys_add_all(keys, paths, n, error);
}

#define X(member, hardware)                                                                        \
  if (!asked->member && known->member)                                                             \
    asked->member = xstrdup(known->member);
/* Members that were not given are the node's, then the image's. */
static void environment_fill(struct environment *asked, const struct environment *known) {
  ENVIRONMENT_TEXTS(X)
  if (!asked->compute_units)
    asked->compute_units = known->compute_units;
}
#undef X

static bool environment_ask(const struct options *options, struct fetch *fetch,
                            struct error *error) {
  cleanup_json json_t *given = NULL;
  if (!cli_environment(options, &given, error))
    return false;
  if (!environment_parse(given, &fetch->asked, error))
    return error_prefix(error, "--environment: ");
  /* Who names another platform does not mean this node's AMD GPU. */
  if (!fetch->asked.cuda && !fetch->asked.cpu) {
    struct node_folders folders = node_folders_default();
    cleanup_environment struct environment node = node_environment_read(&folders);
    environment_fill(&fetch->asked, &node);
  }
  if (fetch->identity) {
    struct environment image = {.torch = fetch->identity->torch,
                                .triton = fetch->identity->triton_version,
                                .gpu = fetch->identity->gpu};
    environment_fill(&fetch->asked, &image);
  }
  return true;
}

static bool options_read(const struct options *options, struct fetch *fetch, struct error *error) {
  if (!fetch->to)
    return error_set(error, "say where to: --to FOLDER, a private, writable place");
  if (!formats_of_option(options, &fetch->formats, &fetch->n_formats, error) ||
      !regime_parse(option_text(options, "regime"), &fetch->regime, error) ||
      !match_of_option(options, &fetch->match, error) ||
      !keys_of_option(options, &fetch->keys, error) ||
      !identity_of_option(options, &fetch->identity, error) ||
      !environment_ask(options, fetch, error))
    return false;
  fetch->renderings = xcalloc(fetch->n_formats, sizeof *fetch->renderings);
  cleanup_json json_t *environment = environment_to_json(&fetch->asked);
  /* The default is what a server does by itself: one that does not know the rule yet goes by exact
   * alone. */
  cleanup_free char *query = cli_query(environment, "tag", fetch->tag, "channel", fetch->channel,
                                       fetch->match == CACHE_RULE_UNSTATED ? NULL : "match",
                                       cache_rule_name(fetch->match), NULL);
  fetch->question =
      xasprintf("/v1/cache%s%s", query, fetch->regime == REGIME_WARM ? "&regime=warm" : "");
  return true;
}

static int command_fetch(struct options *options) {
  __attribute__((cleanup(fetch_release))) struct fetch fetch = {
      .to = option_text(options, "to"),
      .channel = option_text(options, "channel"),
      .tag = option_text(options, "tag"),
      .deadline_ms = clock_monotonic_ms() + option_integer(options, "budget-ms"),
      .state = json_object(),
      .disk = -1,
  };
  struct error error;
  cleanup_fd int lock = -1;
  if (!options_read(options, &fetch, &error))
    return cli_fail(EXIT_USAGE, &error);
  fetch.client = cli_connect(options);
  if (!fetch.client)
    return EXIT_USAGE;
  bool succeeded = folder_open(&fetch, &lock, &error) && fetch_now(&fetch, &error);
  return answer_print(&fetch, options, succeeded, &error);
}

static const struct option_spec fetch_options[] = {
    {.name = "to",
     .type = OPTION_TEXT,
     .argument = "FOLDER",
     .help = "where caches are kept; FOLDER/current is the one to use"},
    {.name = "format",
     .type = OPTION_LIST,
     .argument = "FORMAT",
     .help = "what to render below FOLDER/current/FORMAT; default: json"},
    {.name = "channel",
     .type = OPTION_TEXT,
     .argument = "NAME",
     .default_text = "stable",
     .help = "the channel to follow"},
    OPTION_TAG,
    OPTION_REGIME,
    OPTION_ENVIRONMENT,
    {.name = "match",
     .type = OPTION_TEXT,
     .argument = "RULE",
     .default_text = "unstated",
     .help = "how far the rules go that may find a cache: exact, unstated (what the cache's "
             "environment does not state is "
             "not compared), minor (ROCm's patch level may differ), compatible (what an operator "
             "declared)"},
    {.name = "trusted-key",
     .type = OPTION_LIST,
     .argument = "FILE|FOLDER",
     .help = "a publisher's public key, or a folder of *.pub: what none of them signed is refused; "
             "more of them in "
             "WAVETUNE_TRUSTED_KEYS, separated by ':'"},
    OPTION_IDENTITY,
    {.name = "print-env",
     .type = OPTION_FLAG,
     .help = "print `export NAME='value'` for the tools that the formats are for, and nothing else",
     .flag_only = true},
    {.name = "exit-code",
     .type = OPTION_FLAG,
     .help = "end with 7 when the cache that is there is the newest",
     .flag_only = true},
    {.name = "budget-ms",
     .type = OPTION_INTEGER,
     .argument = "MS",
     .default_text = "2000",
     .min = 1,
     .max = 600000,
     .help = "all the time that a start may lose here"},
    SERVER_OPTIONS,
};

const struct command_spec spec_fetch = {
    .name = "fetch",
    .arguments = "",
    .summary = "bring a channel's cache to this machine; for container entrypoints",
    .description = "Ends with 0 when FOLDER/current is fresh or unchanged, with 5 when the server "
                   "was away and the last good "
                   "cache was kept, with 6 when there is none at all, with 8 when the release has "
                   "no winner that the formats "
                   "asked for can hold: trying again is no use then. What the server sent is "
                   "refused with 10 (other bytes than "
                   "their "
                   "digest says), 11 (older than what was seen), 12 (expired), 13 (not signed by a "
                   "trusted key, or not what was "
                   "asked for) or 14 (cut short); what was there before is kept.\n"
                   "Members of the environment that are not given are read from this node's AMD "
                   "GPUs and the image's identity. "
                   "Releases that were replaced are removed after an hour, but for the last one.",
    .options = fetch_options,
    .n_options = ARRAY_LENGTH(fetch_options),
    .run = command_fetch,
};
