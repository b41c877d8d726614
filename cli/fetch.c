/* wavetune fetch, for container entrypoints: downloads the release that a channel names and renders
 * it into a folder, completely or not at all.
 *
 * FORMAT/.wavetune.json states what a rendering depended on besides the release: the image's
 * identity, the place (Triton's cache holds absolute paths) and the program. When one of them
 * changes, the format is rendered again. Where a format cannot express any winner of a release, its
 * folder has only the reason, so that the next start does not try again.
 *
 * Memory and threads: fetch.h. */
#include "cli/fetch.h"

#include <time.h>

#include "cli/file_stream.h"
#include "common/base/file.h"
#include "common/base/time.h"
#include "common/node/node.h"

#define RENDERING_FILE ".wavetune.json"
#define SKIPPED_FILE ".wavetune.skipped.json"
#define RENDERING_MAX ((size_t)1 << 20)
#define SKIPPED_MAX ((size_t)256 << 20)

static void fetch_release(struct fetch *fetch) {
  if (fetch->client)
    http_client_free(fetch->client);
  trusted_keys_release(&fetch->keys);
  if (fetch->identity)
    identity_free(fetch->identity);

  for (size_t i = 0; fetch->renderings && i < fetch->n_formats; i++)
    json_decref(fetch->renderings[i]);
  free(fetch->renderings);
  free(fetch->formats);
  environment_release(&fetch->requested);
  free(fetch->question);
  free(fetch->absolute);
  if (fetch->disk >= 0)
    close(fetch->disk);
  json_decref(fetch->state);
  kept_release(&fetch->kept);
  json_decref(fetch->entry);
}

/* Rendering */

static json_t *identity_to_json(const struct fetch *fetch) {
  if (!fetch->identity)
    return json_null();
  struct digest digest = json_digest(fetch->identity->json);
  return json_digest_text(&digest);
}

static char *format_root(const struct fetch *fetch, const char *name, size_t index) {
  return xasprintf("%s/%s/%s", fetch->absolute, name, fetch->formats[index]->name);
}

static void rendering_set(struct fetch *fetch, size_t index, json_t *rendering) {
  json_decref(fetch->renderings[index]);
  fetch->renderings[index] = rendering;
}

/* Reads the renderings in the release's folder. With `any`, also those that were made for another
 * image or place: an old rendering is better than none. True when every format has one. */
static bool renderings_read(struct fetch *fetch, const char *name, bool any) {
  bool all = true, is_folder = folder_has_release(fetch, name);
  cleanup_json json_t *identity = identity_to_json(fetch);
  for (size_t i = 0; i < fetch->n_formats; i++) {
    cleanup_free char *root = format_root(fetch, name, i),
                      *path = xasprintf("%s/" RENDERING_FILE, root);
    cleanup_json json_t *json = NULL;
    struct error ignored;
    bool is_there = json_parse_file(path, RENDERING_MAX, &json, &ignored) && json_is_object(json) &&
                    (any || (is_folder && json_equal(json_object_get(json, "identity"), identity) &&
                             string_equal(cli_member(json, "root"), root) &&
                             string_equal(cli_member(json, "version"), WAVETUNE_VERSION)));
    rendering_set(fetch, i, is_there ? TAKE(json) : NULL);
    all = all && is_there;
  }

  return all;
}

/* Whether at least one of the formats expresses a winner of the release; else ERROR_UNUSABLE. */
static bool renderings_are_useful(const struct fetch *fetch, const char *name,
                                  struct error *error) {
  size_t n_empty = 0;
  for (size_t i = 0; i < fetch->n_formats; i++) {
    const char *reason = cli_member(fetch->renderings[i], "reason");
    if (*reason && n_empty++ == 0)
      error_of(error, ERROR_UNUSABLE, "release %s: %s", name, reason);
  }
  return n_empty < fetch->n_formats;
}

/* Renders one format into the stream, and records what the rendering depended on. A format that
 * cannot express the release is no failure. False: data that it needs did not arrive. */
static bool format_render(struct fetch *fetch, struct http_source *source,
                          const struct render_request *request, size_t index,
                          struct file_stream *stream, struct error *error) {
  const struct cache_format *format = fetch->formats[index];
  cleanup_cache_files struct cache_files files = {.sink = file_stream_sink(stream, format->name)};
  struct error reason;
  int64_t begin_ns = clock_monotonic_ns(), waited_ns = http_source_waited_ns(source);
  bool is_rendered = format->render(request, &files, &reason);
  waited_ns = http_source_waited_ns(source) - waited_ns;
  fetch->took_ns[WORK_DOWNLOAD] += waited_ns;
  fetch->took_ns[WORK_RENDER] += clock_monotonic_ns() - begin_ns - waited_ns;
  if (!http_source_check(source, error))
    return error_prefix(error, "%s: ", format->name);
  if (!is_rendered) {
    ALWAYS(files.n_streamed == 0); /* what is in the stream cannot be taken back */
    cache_files_release(&files);
    files = (struct cache_files){0};
    error_prefix(&reason, "%s: ", format->name);
  }

  json_t *variables = json_array();
  for (size_t i = 0; i < files.n_variables; i++) {
    const struct cache_variable *variable = &files.variables[i];
    const char *path = variable->path;
    json_push(variables, json_pack("{s:s, s:s}", "name", variable->name, path ? "path" : "value",
                                   path ? path : variable->literal));
  }

  json_t *rendering = json_pack(
      "{s:I, s:o, s:s*, s:s, s:I, s:o, s:s}", "files",
      (json_int_t)files.n + (json_int_t)files.n_streamed, "identity", identity_to_json(fetch),
      "reason", is_rendered ? NULL : reason.message, "root", request->root, "skipped",
      (json_int_t)files.n_skipped, "variables", variables, "version", WAVETUNE_VERSION);
  ALWAYS(rendering != NULL);
  rendering_set(fetch, index, rendering);
  cache_files_add_json(&files, RENDERING_FILE, rendering);

  if (files.n_skipped) {
    const struct cache_skipped *first = &files.skipped[0];
    cleanup_json json_t *skipped = skipped_to_json(&files);
    cache_files_add_json(&files, SKIPPED_FILE, skipped);
    fprintf(stderr, "wavetune: %s: %zu winner%s left out; the first: %s%s%s: %s\n", format->name,
            files.n_skipped, files.n_skipped == 1 ? " was" : "s were", first->name,
            first->key ? " " : "", first->key ? first->key : "", first->reason);
  }

  for (size_t i = 0; i < files.n_notes; i++)
    fprintf(stderr, "wavetune: %s: %s\n", format->name, files.notes[i]);

  begin_ns = clock_monotonic_ns();
  file_stream_add(stream, format->name, &files);
  fetch->took_ns[WORK_WRITE] += clock_monotonic_ns() - begin_ns;
  return true;
}

/* {"TRITON_CACHE_DIR": "/…/current/triton", …} of fetch->renderings; a new reference. On ROCm also
 * the variable with which agents measure (agent/device/hip.c): without it a launch takes longer,
 * and another config may be the fastest. Its value in this process, "0" too, is left to the
 * program. A variable of several formats lists their folders. */
static json_t *renderings_variables(const struct fetch *fetch) {
  json_t *variables = json_object();
  bool is_rocm = fetch->requested.rocm != NULL;
  for (size_t i = 0; i < fetch->n_formats; i++) {
    cleanup_free char *root = format_root(fetch, "current", i);
    json_elements (json_object_get(fetch->renderings[i], "variables"), index, variable) {
      const char *below = json_text(variable, "path");
      cleanup_free char *path = below ? xasprintf("%s%s%s", root, *below ? "/" : "", below) : NULL;
      const char *name = cli_member(variable, "name"), *before = json_text(variables, name),
                 *value = path ? path : cli_member(variable, "value");
      json_put(variables, name, before ? json_sprintf("%s:%s", before, value) : json_string(value));
    }
    if (fetch->renderings[i] && is_rocm && !getenv("HIP_FORCE_DEV_KERNARG"))
      json_put(variables, "HIP_FORCE_DEV_KERNARG", json_string("1"));
  }

  return variables;
}

/* Requests */

/* Sends a GET within the budget. True for a 200 answer, and for 304 to an entity tag. Where the
 * server refused, the error begins with `what`. */
static bool get(struct fetch *fetch, const char *what, struct http_request request,
                struct http_response *ret, struct error *error) {
  int64_t begin_ns = clock_monotonic_ns();
  request.method = "GET";
  request.timeout_ms = fetch->deadline_ms - begin_ns / 1000000;
  if (request.timeout_ms <= 0)
    return error_of(error, ERROR_DEADLINE, "the time budget is used up");

  bool is_answered = http_send(fetch->client, &request, ret, error);
  fetch->took_ns[WORK_DOWNLOAD] += clock_monotonic_ns() - begin_ns;
  if (!is_answered)
    return false;
  if (ret->status == 200 || (ret->status == 304 && request.if_none_match))
    return true;

  cleanup_json json_t *problem = json_loadb(ret->body, ret->size, 0, NULL);
  const char *detail = cli_member(problem, "detail");
  error_of(error, error_kind_of_http(ret->status), "%s: the server answered %d%s%s", what,
           ret->status, *detail ? ": " : "", detail);
  http_error_name_request(ret, error);

  return false;
}

/* Writes the missing files of the release that `entry` names below `staging`, while the release is
 * read and rendered. */
static bool release_install(struct fetch *fetch, const struct channel_entry *entry,
                            const char *name, const char *staging, struct error *error) {
  cleanup_free char *bytes = NULL;
  cleanup_release struct release *release = NULL;
  cleanup_http_source struct http_source *source = NULL;
  cleanup_file_stream struct file_stream *stream = NULL; /* ends before what it borrows */
  size_t size = 0;

  /* A release in the folder has the digest of its name, which is the entry's. */
  bool is_new = !folder_release_read(fetch, name, &bytes, &size);
  if (is_new) {
    cleanup_http_response struct http_response response = {0};
    char text[DIGEST_TEXT_SIZE];
    cleanup_free char *path = xasprintf("/v1/releases/%s", digest_format(&entry->release, text));
    struct http_request request = {.path = path, .response_max = RELEASE_SIZE_MAX};
    if (!get(fetch, text, request, &response, error))
      return false;
    bytes = TAKE(response.body);
    size = response.size;
    if (!bytes_verify(fetch, entry, bytes, size, error))
      return false;
  }

  if (!file_stream_new(staging, fetch->deadline_ms, &stream, error))
    return false;
  if (is_new)
    file_stream_add_borrowed(stream, "release.json", bytes, size);
  if (!release_verify(fetch, entry, &bytes, size, &release, error))
    return false;

  source = http_source_new(fetch->client, fetch->deadline_ms);
  for (size_t i = 0; i < fetch->n_formats; i++) {
    cleanup_free char *root = format_root(fetch, name, i);
    struct render_request request = {.release = release,
                                     .source = http_source_interface(source),
                                     .identity = fetch->identity,
                                     .root = root};
    if (!fetch->renderings[i] && !format_render(fetch, source, &request, i, stream, error))
      return false;
  }

  if (!renderings_are_useful(fetch, name, error))
    return false;

  int64_t begin_ns = clock_monotonic_ns();
  bool ok = file_stream_finish(stream, error);
  fetch->took_ns[WORK_WRITE] += clock_monotonic_ns() - begin_ns;
  return ok;
}

/* Renders what is missing of the release that `entry` names and makes it current. */
static bool install(struct fetch *fetch, const struct channel_entry *entry, struct error *error) {
  const char *name = DIGEST_TEXT(&entry->release) + strlen("sha256:");
  cleanup_free char *staging = NULL;
  bool is_whole = renderings_read(fetch, name, false);
  if (!folder_stage(fetch, name, &staging, error) ||
      !(is_whole ? renderings_are_useful(fetch, name, error)
                 : release_install(fetch, entry, name, staging, error)))
    return false;

  int64_t begin_ns = clock_monotonic_ns();
  fetch->is_fresh = !is_whole || !string_equal(name, fetch->kept.name);
  json_put(fetch->state, "name", json_string(name));
  bool ok = folder_publish(fetch, name, staging, error);
  fetch->took_ns[WORK_WRITE] += clock_monotonic_ns() - begin_ns;

  return ok;
}

/* After 304: the channel did not change, but its entry may have expired since, and --format may
 * name new formats. */
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
  if (!entry_verify(fetch, json, &entry, error))
    return false;
  fetch->entry = TAKE(json);
  entry_note(fetch, &entry);
  json_put(fetch->state, "question", json_string(fetch->question));
  json_put(fetch->state, "etag", json_string(response->etag ? response->etag : ""));

  return install(fetch, &entry, error);
}

static bool fetch_now(struct fetch *fetch, struct error *error) {
  /* The entity tag is valid for the same question, if it came with the release that current points
   * at. */
  const struct kept *kept = &fetch->kept;
  bool is_known = kept->is_there && kept->has_entry && kept->is_trusted &&
                  string_equal(cli_member(fetch->state, "question"), fetch->question) &&
                  string_equal(cli_member(fetch->state, "name"), kept->name);
  const char *etag = is_known ? cli_member(fetch->state, "etag") : "";
  struct http_request request = {.path = fetch->question,
                                 .if_none_match = http_header_is_usable(etag) ? etag : NULL};
  cleanup_http_response struct http_response response = {0};
  if (!get(fetch, "no cache", request, &response, error)) {
    /* A proxy's 404 has no problem document. */
    cleanup_json json_t *problem = json_loadb(response.body, response.size, 0, NULL);
    fetch->is_unpublished = response.status == 404 && string_equal(cli_member(problem, "kind"),
                                                                   error_kind_name(ERROR_MISSING));
    return false;
  }

  if (response.status == 304 ? keep_current(fetch, error) : take_new(fetch, &response, error)) {
    folder_prune(fetch);
    return true;
  }

  folder_tidy(fetch); /* the disk may be full */
  return false;
}

/* Reporting */

/* Whether the kept cache may be used although the server's answer cannot be. */
static bool is_kept(const struct fetch *fetch) {
  return fetch->kept.is_there && fetch->kept.is_trusted;
}

static const char *outcome(const struct fetch *fetch, bool succeeded) {
  if (succeeded)
    return fetch->is_fresh ? "fresh" : "unchanged";
  return is_kept(fetch) ? "stale" : "nothing";
}

/* Prints why the fetch failed and whether a cache is kept. A refused answer has an exit code of its
 * own; for other failures the code states whether there is a cache. */
static int failure_report(const struct fetch *fetch, const struct error *error) {
  const struct kept *kept = &fetch->kept;
  char text[TIME_TEXT_SIZE] = "";
  const char *left = "there is no cache to fall back on";
  enum exit_code code = error_exit_code(error->kind), own = EXIT_NOTHING;
  if (kept->is_there && !kept->is_trusted) {
    left = "the cache in the folder is not used: no trusted key signed it";
  } else if (kept->is_there) {
    bool is_expired =
        kept->has_entry && kept->entry.expires_s && kept->entry.expires_s <= time(NULL);
    own = is_expired ? EXIT_EXPIRED : EXIT_STALE;
    left = is_expired ? "the last good cache is kept, which expired at "
                      : "the last good cache is kept";
    if (is_expired)
      time_text_format(kept->entry.expires_s, text);
  }

  fprintf(stderr, "wavetune: %s; %s%s\n", error->message, left, text);
  if (fetch->is_unpublished)
    return EXIT_UNPUBLISHED;
  return (int)(code == EXIT_UNREACHABLE || code == EXIT_REFUSED ? own : code);
}

static json_t *answer_make(const struct fetch *fetch, bool succeeded, const struct error *error) {
  static const char *const works[] = {"download", "verify", "read", "render", "write"};
  json_t *formats = json_array(), *took = json_object();
  for (size_t i = 0; i < fetch->n_formats; i++) {
    const json_t *rendering = fetch->renderings[i];
    if (!rendering)
      continue;
    cleanup_free char *folder = format_root(fetch, "current", i),
                      *path = xasprintf("%s/" SKIPPED_FILE, folder);
    json_t *skipped = NULL;
    struct error ignored;
    if (!json_parse_file(path, SKIPPED_MAX, &skipped, &ignored))
      skipped = json_array();
    json_push(formats,
              json_pack("{s:s, s:s, s:O, s:o, s:O*}", "format", fetch->formats[i]->name, "folder",
                        folder, "files", json_object_get(rendering, "files"), "skipped", skipped,
                        "reason", json_object_get(rendering, "reason")));
  }

  for (size_t i = 0; i < WORK_N; i++)
    json_put(took, works[i], json_real((double)fetch->took_ns[i] / 1e6));

  const json_t *entry = succeeded                                 ? fetch->entry
                        : is_kept(fetch) && fetch->kept.has_entry ? fetch->kept.entry_json
                                                                  : NULL;
  cleanup_free char *current = xasprintf("%s/current", fetch->to);
  json_t *folder = json_can_hold(current) ? json_string(current) : json_null();
  json_t *answer =
      json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:s*, s:O*}", "outcome", outcome(fetch, succeeded),
                "folder", folder, "asked", environment_to_json(&fetch->requested), "formats",
                formats, "variables", renderings_variables(fetch), "took_ms", took, "reason",
                succeeded ? NULL : error->message, "entry", entry);
  ALWAYS(answer != NULL);

  return answer;
}

static int answer_print(struct fetch *fetch, const struct options *options, bool succeeded,
                        const struct error *error) {
  bool as_json = option_flag(options, "json");
  int code = EXIT_OK;

  if (succeeded) {
    if (fetch->keys.n == 0)
      fputs("wavetune: nothing but digests was verified: name the publisher's key with "
            "--trusted-key\n",
            stderr);
    for (size_t i = 0; i < fetch->n_formats; i++) {
      const char *reason = cli_member(fetch->renderings[i], "reason");
      if (*reason)
        fprintf(stderr, "wavetune: %s\n", reason);
    }
    if (option_flag(options, "exit-code") && !fetch->is_fresh)
      code = EXIT_UNCHANGED;
  } else {
    code = failure_report(fetch, error);
    if (is_kept(fetch) && fetch->absolute)
      renderings_read(fetch, fetch->kept.name, true);
    else
      for (size_t i = 0; i < fetch->n_formats; i++)
        rendering_set(fetch, i, NULL);
  }

  if (option_flag(options, "print-env")) {
    cleanup_json json_t *variables = renderings_variables(fetch);
    if (as_json)
      cli_print_json(variables);
    else
      json_members (variables, name, value) { /* for a shell to eval */
        cleanup_free char *word = shell_quote(json_string_value(value));
        printf("export %s=%s\n", name, word);
      }
  } else if (as_json) {
    cleanup_json json_t *answer = answer_make(fetch, succeeded, error);
    cli_print_json(answer);
  } else if (succeeded) {
    printf("%s  %s/current  %s\n", outcome(fetch, true), fetch->to,
           cli_member(fetch->entry, "release"));
  }

  return code;
}

/* Options */

#define X(member, hardware)                                                                        \
  if (!requested->member && known->member)                                                         \
    requested->member = xstrdup(known->member);
/* Sets the members that were not given: first from the node, then from the image. */
static void environment_fill(struct environment *requested, const struct environment *known) {
  ENVIRONMENT_TEXTS(X)
  if (!requested->compute_units)
    requested->compute_units = known->compute_units;
}
#undef X

static void options_read(const struct options *options, struct fetch *fetch) {
  const char *match = option_text(options, "match"), *const * keys;
  size_t n_keys = option_list(options, "trusted-key", &keys);
  struct error error;
  if (!fetch->to)
    cli_refuse(EXIT_USAGE, "give --to FOLDER, a private, writable folder");
  fetch->formats = formats_of_option(options, &fetch->n_formats);
  fetch->renderings = xcalloc(fetch->n_formats, sizeof *fetch->renderings);
  if (!regime_parse(option_text(options, "regime"), &fetch->regime, &error))
    cli_fail(EXIT_USAGE, &error);
  if (!cache_rule_parse(match, &fetch->match))
    cli_refuse(EXIT_USAGE, "--match must be " CACHE_RULES ", not \"%.40s\"", match);
  if (!trusted_keys_add_all(&fetch->keys, keys, n_keys, &error))
    cli_fail(EXIT_USAGE, &error);
  fetch->identity = identity_of_option(options);
  cleanup_json json_t *given = cli_environment(options, "environment");
  if (!environment_parse(given, &fetch->requested, &error))
    cli_fail_in(EXIT_USAGE, &error, "--environment: ");

  /* A request for another platform does not mean this node's AMD GPU. */
  if (!fetch->requested.cuda && !fetch->requested.cpu) {
    struct node_folders folders = node_folders_default();
    cleanup_environment struct environment node = node_environment_read(&folders);
    environment_fill(&fetch->requested, &node);
  }

  if (fetch->identity) {
    struct environment image = {.torch = fetch->identity->torch,
                                .triton = fetch->identity->triton_version,
                                .gpu = fetch->identity->gpu};
    environment_fill(&fetch->requested, &image);
  }

  /* The default rule is not sent, because servers apply it by themselves; one that does not know it
   * yet accepts exact matches only. */
  cleanup_json json_t *environment = environment_to_json(&fetch->requested);
  cleanup_free char *query = cli_query(environment, "tag", fetch->tag, "channel", fetch->channel,
                                       fetch->match == CACHE_RULE_UNSTATED ? NULL : "match",
                                       cache_rule_name(fetch->match), NULL);
  const char *regime = regime_member(fetch->regime);
  fetch->question =
      xasprintf("/v1/cache%s%s%s", query, regime ? "&regime=" : "", regime ? regime : "");
}

static int command_fetch(struct options *options) {
  cleanup_by(fetch_release) struct fetch fetch = {
      .to = option_text(options, "to"),
      .channel = option_text(options, "channel"),
      .tag = option_text(options, "tag"),
      .deadline_ms = clock_monotonic_ms() + option_integer(options, "budget-ms"),
      .state = json_object(),
      .disk = -1,
  };
  struct error error;
  cleanup_fd int lock = -1;
  options_read(options, &fetch);
  fetch.client = cli_connect(options);
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
     .help = "a format to render below FOLDER/current/FORMAT; default: json"},
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
     .help = "the loosest rule by which a cache may be found: exact, unstated (members that the "
             "cache's environment does not state are not compared), minor (ROCm's patch level may "
             "differ), compatible (as an operator declared)"},
    {.name = "trusted-key",
     .type = OPTION_LIST,
     .argument = "FILE|FOLDER",
     .help = "a publisher's public key, or a folder of *.pub files: an entry that none of the keys "
             "signed is refused; WAVETUNE_TRUSTED_KEYS adds more, separated by ':'"},
    OPTION_IDENTITY,
    CLI_FLAG("print-env", "print only lines `export NAME='value'`, for the tools that read the "
                          "formats; on ROCm also HIP_FORCE_DEV_KERNARG=1, with which agents "
                          "measure, unless it is set"),
    CLI_FLAG("exit-code", "exit with 7 when the folder has the newest cache already"),
    {.name = "budget-ms",
     .type = OPTION_INTEGER,
     .argument = "MS",
     .default_text = "2000",
     .min = 1,
     .max = 600000,
     .help = "the time that the whole command may take"},
    SERVER_OPTIONS,
};

CLI_COMMAND(fetch, "fetch", "", fetch_options,
            "download a channel's cache to this machine; for container entrypoints",
            .description =
                "Exits with 0 when FOLDER/current is fresh or unchanged, with 5 when the server "
                "could not be reached and the last good cache was kept, with 6 when there is no "
                "cache, and with 8 when the release has no winner that the requested formats can "
                "express, so that trying again does not help. An answer is refused with 10 (its "
                "bytes do not have the stated digest), 11 (older than one that was seen), 12 "
                "(expired), 13 (not signed by a trusted key, or not what was requested) or 14 (cut "
                "short); the cache in the folder is kept then, and with 15, when nothing is "
                "published for this channel, tag, regime and environment.\n"
                "Members of the environment that are not given are read from this node's AMD GPUs "
                "and the image's identity. Releases that were replaced are removed after an hour, "
                "except for the last one.");
