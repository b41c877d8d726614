/* wavetune fetch: what a container's entrypoint calls. Brings the release that a channel names into a folder, rendered
 * for its consumer, whole or not at all.
 *
 *   TO/<64 hex digits>/      one folder for each release, never changed once it is there; release.json and the rendering
 *   TO/current               a symbolic link to one of them, swapped by rename
 *   TO/.fetch.json           the entry and entity tag that current came from: what makes a second fetch one 304
 *   TO/.lock                 fetches take turns
 *
 * A start is never blocked for longer than --budget-ms and never left without the cache it had: when the server is away,
 * or what it sends does not hold together, current stays as it is and the exit code says so (5), or that there is none
 * (6). Folders that were replaced are kept for an hour, for whoever still reads them, and the last one for longer. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>

#include "cli/cli.h"
#include "common/file.h"
#include "common/release.h"
#include "common/render.h"

#define HEX_DIGITS "0123456789abcdef"
#define RELEASE_NAME_LENGTH 64
#define KEEP_S 3600

struct fetch {
  struct http_client *client;
  const char *to;
  const char *format;
  int64_t deadline_ms;
  char *question; /* the /v1/cache path with its query: a changed one must not be answered by an old entity tag */
  json_t *last;   /* .fetch.json, or NULL */
};

static void fetch_release(struct fetch *fetch) {
  if (fetch->client)
    http_client_free(fetch->client);
  free(fetch->question);
  json_decref(fetch->last);
}

static int64_t time_left_ms(const struct fetch *fetch) {
  int64_t left = fetch->deadline_ms - clock_monotonic_ms();
  return left > 1 ? left : 1;
}

/* GET within the budget. False, with a sentence, when no answer came. */
static bool get(const struct fetch *fetch, const char *path, const char *if_none_match, struct http_response *ret,
                struct error *error) {
  struct http_request request = {
      .method = "GET", .path = path, .if_none_match = if_none_match, .timeout_ms = time_left_ms(fetch)};
  if (clock_monotonic_ms() >= fetch->deadline_ms)
    return error_set(error, "the time budget is used up");
  return http_send(fetch->client, &request, ret, error);
}

static bool status_refused(const struct http_response *response, const char *what, struct error *error) {
  cleanup_json json_t *problem = json_loadb(response->body, response->size, 0, NULL);
  const char *detail = cli_member(problem, "detail");
  return error_set(error, "%s: the server answered %d%s%s", what, response->status, detail[0] ? ": " : "", detail);
}

static bool is_release_name(const char *name) {
  return strspn(name, HEX_DIGITS) == RELEASE_NAME_LENGTH && name[RELEASE_NAME_LENGTH] == '\0';
}

/* What TO/current points at; false when it is no link that a fetch made. */
static bool current_read(const struct fetch *fetch, char name[RELEASE_NAME_LENGTH + 2]) {
  cleanup_free char *path = xasprintf("%s/current", fetch->to);
  ssize_t length = readlink(path, name, RELEASE_NAME_LENGTH + 1);
  name[length > 0 ? length : 0] = '\0';
  return is_release_name(name);
}

/* Writes release.json and the rendered files to TO/.<hex>.<random>, then renames it to TO/<hex>. */
static bool folder_write(const struct fetch *fetch, const struct release *release, const char *bytes, size_t size,
                         const char *name, struct error *error) {
  cleanup_free char *final = xasprintf("%s/%s", fetch->to, name);
  struct stat status;
  if (stat(final, &status) == 0)
    return true; /* fetched before; folders appear by rename, so it is whole */
  cleanup_rendered struct rendered rendered = {0};
  if (!render(fetch->format, release, &rendered, error))
    return false;
  char suffix[17];
  random_hex(suffix, 8);
  cleanup_free char *temporary = xasprintf("%s/.%s.%s", fetch->to, name, suffix);
  cleanup_free char *own = xasprintf("%s/release.json", temporary);
  bool ok = folder_make(temporary, 0755, error) && file_write_atomically(own, bytes, size, 0644, error);
  for (size_t i = 0; ok && i < rendered.n; i++) {
    cleanup_free char *path = xasprintf("%s/%s", temporary, rendered.files[i].path);
    cleanup_free char *parent = xstrndup(path, (size_t)(strrchr(path, '/') - path));
    ok = folder_make(parent, 0755, error) &&
         file_write_atomically(path, rendered.files[i].bytes, rendered.files[i].size, 0644, error);
  }
  if (ok && rename(temporary, final) < 0 && errno != EEXIST && errno != ENOTEMPTY)
    ok = error_set(error, "cannot rename %s to %s: %s", temporary, final, strerror(errno));
  struct error ignored;
  (void)!folder_remove(temporary, &ignored); /* absent after a rename */
  return ok;
}

/* Points TO/current at `name`: a new link renamed over the old one, so that a reader sees one or the other. */
static bool link_swap(const struct fetch *fetch, const char *name, struct error *error) {
  char suffix[17];
  random_hex(suffix, 8);
  cleanup_free char *current = xasprintf("%s/current", fetch->to);
  cleanup_free char *temporary = xasprintf("%s/.current.%s", fetch->to, suffix);
  if (symlink(name, temporary) < 0 || rename(temporary, current) < 0) {
    int reason = errno;
    unlink(temporary);
    return error_set(error, "cannot point %s at %s: %s", current, name, strerror(reason));
  }
  return true;
}

/* What a fetch that was killed left behind: half a folder, a link or a state that nobody renamed. */
static bool is_leftover(const char *name) {
  return (name[0] == '.' && strspn(name + 1, HEX_DIGITS) == RELEASE_NAME_LENGTH &&
          name[1 + RELEASE_NAME_LENGTH] == '.') ||
         string_starts(name, ".current.") || string_starts(name, ".fetch.json.");
}

/* Removes what is neither current nor the last one before it and was left alone for KEEP_S. Holding the lock. Links are
 * removed, never followed; what cannot be removed is tried again by the next fetch. */
static void folder_prune(const struct fetch *fetch, const char *previous) {
  char current[RELEASE_NAME_LENGTH + 2];
  DIR *folder = current_read(fetch, current) ? opendir(fetch->to) : NULL;
  if (!folder)
    return;
  time_t now = time(NULL);
  for (const struct dirent *entry; (entry = readdir(folder));) {
    const char *name = entry->d_name;
    struct stat status;
    bool is_release = is_release_name(name) && !string_equal(name, current) && !string_equal(name, previous);
    if ((!is_release && !is_leftover(name)) || fstatat(dirfd(folder), name, &status, AT_SYMLINK_NOFOLLOW) < 0 ||
        (is_release && !S_ISDIR(status.st_mode)) || now - status.st_mtime < KEEP_S)
      continue;
    cleanup_free char *path = xasprintf("%s/%s", fetch->to, name);
    struct error ignored;
    (void)!folder_remove(path, &ignored);
  }
  closedir(folder);
}

/* The hour of a replaced folder begins now, however old it is. Returns its name; owned by the caller. */
static char *previous_note(const struct fetch *fetch, const char *name) {
  char before[RELEASE_NAME_LENGTH + 2];
  if (!current_read(fetch, before) || string_equal(before, name))
    return xstrdup(cli_member(fetch->last, "previous"));
  cleanup_free char *path = xasprintf("%s/%s", fetch->to, before);
  utimensat(AT_FDCWD, path, NULL, AT_SYMLINK_NOFOLLOW);
  return xstrdup(before);
}

static bool current_exists(const struct fetch *fetch) {
  cleanup_free char *path = xasprintf("%s/current", fetch->to);
  struct stat status;
  return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

/* Downloads what `entry` names, checks its digest, renders it and swaps the link. */
static bool install(const struct fetch *fetch, const json_t *entry, const char *etag, struct error *error) {
  struct digest wanted;
  if (!json_get_digest(entry, "", "release", JSON_REQUIRED, &wanted, error))
    return error_prefix(error, "the server's channel entry: ");
  char text[DIGEST_TEXT_SIZE];
  digest_format(&wanted, text);
  cleanup_free char *path = xasprintf("/v1/releases/%s", text);
  cleanup_http_response struct http_response response = {0};
  if (!get(fetch, path, NULL, &response, error))
    return false;
  if (response.status != 200)
    return status_refused(&response, text, error);
  struct digest got = digest_of(response.body, response.size);
  if (!digest_equal(&got, &wanted))
    return error_set(error, "release %s arrived with other bytes; it was not used", text);
  cleanup_release struct release *release = NULL;
  if (!release_parse(response.body, response.size, &release, error))
    return error_prefix(error, "release %s: ", text);
  const char *name = text + strlen("sha256:");
  if (!folder_write(fetch, release, response.body, response.size, name, error))
    return false;
  cleanup_free char *previous = previous_note(fetch, name);
  if (!link_swap(fetch, name, error))
    return false;
  cleanup_json json_t *state =
      json_pack("{s:s, s:s, s:s, s:s, s:O}", "question", fetch->question, "etag", etag ? etag : "", "format",
                fetch->format, "previous", previous, "entry", entry);
  cleanup_free char *state_text = json_canonical(state);
  cleanup_free char *state_path = xasprintf("%s/.fetch.json", fetch->to);
  if (!file_write_atomically(state_path, state_text, strlen(state_text), 0644, error))
    return false;
  folder_prune(fetch, previous);
  return true;
}

/* The entity tag that a second fetch may ask with: only for the same question and format, and while current is there. */
static const char *known_etag(const struct fetch *fetch) {
  bool is_same = fetch->last && string_equal(cli_member(fetch->last, "question"), fetch->question) &&
                 string_equal(cli_member(fetch->last, "format"), fetch->format) && current_exists(fetch);
  const char *etag = is_same ? cli_member(fetch->last, "etag") : "";
  return etag[0] ? etag : NULL;
}

enum fetched { FETCHED_FRESH, FETCHED_UNCHANGED, FETCHED_NOT };

static enum fetched fetch_now(const struct fetch *fetch, json_t **ret_entry, struct error *error) {
  const char *etag = known_etag(fetch);
  cleanup_http_response struct http_response response = {0};
  if (!get(fetch, fetch->question, etag, &response, error))
    return FETCHED_NOT;
  if (response.status == 304 && etag) {
    folder_prune(fetch, cli_member(fetch->last, "previous"));
    *ret_entry = json_incref(json_object_get(fetch->last, "entry"));
    return FETCHED_UNCHANGED;
  }
  if (response.status != 200) {
    status_refused(&response, "no cache", error);
    return FETCHED_NOT;
  }
  cleanup_json json_t *entry = NULL;
  if (!json_parse(response.body, response.size, &entry, error) || !install(fetch, entry, response.etag, error))
    return FETCHED_NOT;
  *ret_entry = TAKE(entry);
  return FETCHED_FRESH;
}

static int answer_print(const struct fetch *fetch, const struct options *options, enum fetched fetched,
                        const json_t *entry, const struct error *error) {
  bool is_kept = fetched == FETCHED_NOT && current_exists(fetch);
  const char *outcome = fetched == FETCHED_FRESH       ? "fresh"
                        : fetched == FETCHED_UNCHANGED ? "unchanged"
                        : is_kept                      ? "stale"
                                                       : "nothing";
  if (fetched == FETCHED_NOT)
    fprintf(stderr, "wavetune: %s; %s\n", error->message,
            is_kept ? "the last good cache is kept" : "there is no cache to fall back on");
  if (option_flag(options, "json")) {
    cleanup_json json_t *answer = json_pack("{s:s, s:s+}", "outcome", outcome, "folder", fetch->to, "/current");
    if (fetched == FETCHED_NOT)
      json_object_set_new(answer, "reason", json_string(error->message));
    if (entry)
      json_object_set(answer, "entry", (json_t *)entry);
    cli_print_json(answer);
  } else if (fetched != FETCHED_NOT) {
    printf("%s  %s/current  %s\n", outcome, fetch->to, cli_member(entry, "release"));
  }
  return fetched != FETCHED_NOT ? EXIT_OK : is_kept ? EXIT_STALE : EXIT_NOTHING;
}

/* Two fetches into one folder take turns; the one that waited finds the work done. */
static bool folder_lock(const struct fetch *fetch, int *ret_fd, struct error *error) {
  cleanup_free char *path = xasprintf("%s/.lock", fetch->to);
  cleanup_fd int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0)
    return error_set(error, "cannot write to %s: %s", fetch->to, strerror(errno));
  while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
    if (clock_monotonic_ms() >= fetch->deadline_ms)
      return error_set(error, "another fetch into %s did not end within the budget", fetch->to);
    usleep(10000);
  }
  *ret_fd = fd;
  fd = -1;
  return true;
}

static bool format_check(const char *format, struct error *error) {
#define X(name)                                                                                                        \
  if (string_equal(format, #name))                                                                                     \
    return true;
  RENDERERS(X)
#undef X
#define X(name) " " #name
  return error_set(error, "--format \"%.64s\" is unknown; there are:%s", format, RENDERERS(X));
#undef X
}

static int command_fetch(struct options *options) {
  __attribute__((cleanup(fetch_release))) struct fetch fetch = {
      .to = option_text(options, "to"),
      .format = option_text(options, "format"),
      .deadline_ms = clock_monotonic_ms() + option_integer(options, "budget-ms"),
  };
  struct error error;
  cleanup_json json_t *environment = NULL, *entry = NULL;
  if (!fetch.to) {
    error_set(&error, "say where to: --to FOLDER, a private, writable place");
    return cli_fail(EXIT_USAGE, &error);
  }
  if (!format_check(fetch.format, &error) || !cli_environment(options, &environment, &error))
    return cli_fail(EXIT_USAGE, &error);
  cleanup_free char *query =
      cli_query(environment, "tag", option_text(options, "tag"), "channel", option_text(options, "channel"), NULL);
  fetch.question = xasprintf("/v1/cache%s", query);
  fetch.client = cli_connect(options);
  if (!fetch.client)
    return EXIT_USAGE;
  cleanup_fd int lock = -1;
  if (!folder_make(fetch.to, 0755, &error) || !folder_lock(&fetch, &lock, &error))
    return answer_print(&fetch, options, FETCHED_NOT, NULL, &error);
  cleanup_free char *state_path = xasprintf("%s/.fetch.json", fetch.to);
  struct error ignored;
  if (!json_parse_file(state_path, 1 << 20, &fetch.last, &ignored))
    fetch.last = NULL; /* the first fetch, or a state to do without */
  enum fetched fetched = fetch_now(&fetch, &entry, &error);
  return answer_print(&fetch, options, fetched, entry, &error);
}

static const struct option_spec fetch_options[] = {
    {.name = "to",
     .type = OPTION_TEXT,
     .argument = "FOLDER",
     .help = "where caches are kept; FOLDER/current is the one to use"},
    {.name = "channel",
     .type = OPTION_TEXT,
     .argument = "NAME",
     .default_text = "stable",
     .help = "the channel to follow"},
    OPTION_TAG,
    OPTION_ENVIRONMENT,
    {.name = "format",
     .type = OPTION_TEXT,
     .argument = "FORMAT",
     .default_text = "json",
     .help = "what to render: json"},
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
    .description = "Exits with 0 when FOLDER/current is fresh or unchanged, with 5 when the server was away (or sent "
                   "what does not hold together) and the last good cache was kept, with 6 when there is none at all. "
                   "Releases that were replaced are removed after an hour, but for the last one.",
    .options = fetch_options,
    .n_options = ARRAY_LENGTH(fetch_options),
    .run = command_fetch,
};
