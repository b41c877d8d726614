/* wavetune export: a release as the files of one format, rendered here from what was verified
 * against its digest. Memory: the command's own; one thread. */
#include <dirent.h>
#include <errno.h>
#include <sys/stat.h>

#include "cli/files.h"
#include "cli/source.h"
#include "common/base/file.h"
#include "common/cache/channel_entry.h"

/* What is exported, and from where the rest of it comes. */
struct export_from {
  struct http_client *client; /* NULL: a file, without a server */
  struct release *release;
};

static void export_from_release(struct export_from *from) {
  if (from->client)
    http_client_free(from->client);
  if (from->release)
    release_free(from->release);
}

static int release_download(struct export_from *from, const struct digest *digest) {
  char text[DIGEST_TEXT_SIZE];
  cleanup_free char *path = xasprintf("/v1/releases/%s", digest_format(digest, text));
  struct http_request request = {.method = "GET", .path = path, .response_max = RELEASE_SIZE_MAX};
  cleanup_http_response struct http_response response = {0};
  struct error error;
  if (!http_send(from->client, &request, &response, &error))
    return cli_failed(&error);
  if (response.status != 200)
    return cli_refused(&response, text);
  struct digest found = digest_of(response.body, response.size);
  if (!digest_equal(&found, digest)) {
    error_of(&error, ERROR_TAMPERED, "release %s arrived with other bytes; it was not used", text);
    return cli_failed(&error);
  }
  if (!release_take(&response.body, response.size, digest, &from->release, &error)) {
    error_prefix(&error, "release %s: ", text);
    return cli_fail(EXIT_REFUSED, &error);
  }
  return EXIT_OK;
}

static int channel_read(struct export_from *from, const struct options *options, const char *name) {
  cleanup_json json_t *environment = NULL, *answer = NULL;
  cleanup_channel_entry struct channel_entry entry = {0};
  struct error error;
  if (!cli_environment(options, &environment, &error))
    return cli_fail(EXIT_USAGE, &error);
  const char *regime = option_text(options, "regime");
  cleanup_free char *query = cli_query(environment, "tag", option_text(options, "tag"),
                                       cli_regime_member(regime), regime, NULL);
  cleanup_free char *escaped = http_escape(name),
                    *path = xasprintf("/v1/channels/%s%s", escaped, query);
  int code = cli_call(from->client, "GET", path, NULL, &answer);
  if (code != EXIT_OK)
    return code;
  if (!channel_entry_parse(answer, &entry, &error)) {
    error_prefix(&error, "the entry of channel \"%.64s\": ", name);
    return cli_fail(EXIT_REFUSED, &error);
  }
  return release_download(from, &entry.release);
}

static int file_export_read(struct export_from *from, const char *path) {
  cleanup_free char *bytes = NULL;
  size_t size;
  struct error error;
  if (!file_read(path, RELEASE_SIZE_MAX, &bytes, &size, &error))
    return cli_fail(EXIT_USAGE, &error);
  if (!release_parse(bytes, size, &from->release, &error)) {
    error_prefix(&error, "%s: ", path);
    return cli_fail(EXIT_USAGE, &error);
  }
  return EXIT_OK;
}

/* A digest, else a file that is there, else a channel. */
static int from_read(struct export_from *from, const struct options *options, const char *what) {
  struct digest digest;
  struct stat status;
  bool is_digest = digest_parse(what, &digest);
  if (!is_digest && stat(what, &status) == 0 && S_ISREG(status.st_mode))
    return file_export_read(from, what);
  from->client = cli_connect(options);
  if (!from->client)
    return EXIT_USAGE;
  return is_digest ? release_download(from, &digest) : channel_read(from, options, what);
}

static bool string_ends(const char *text, const char *end) {
  size_t length = strlen(text), end_length = strlen(end);
  return length > end_length && string_equal(text + length - end_length, end);
}

static bool folder_is_empty(const char *path) {
  DIR *folder = opendir(path);
  size_t n = 0;
  while (folder && readdir(folder))
    n++;
  if (folder)
    closedir(folder);
  return n == 2;
}

/* The absolute path of a folder that need not be there yet, while its parent must. The caller's. */
static bool target_resolve(const char *to, char **ret_path, struct error *error) {
  cleanup_free char *trimmed = xstrdup(to);
  size_t length = strlen(trimmed);
  while (length > 1 && trimmed[length - 1] == '/')
    trimmed[--length] = '\0';
  const char *slash = strrchr(trimmed, '/'), *base = slash ? slash + 1 : trimmed;
  cleanup_free char *parent =
      slash ? xstrndup(trimmed, slash == trimmed ? 1 : (size_t)(slash - trimmed)) : xstrdup(".");
  struct stat status;
  bool is_there = lstat(trimmed, &status) == 0;
  if (is_there && !(S_ISDIR(status.st_mode) && folder_is_empty(trimmed)))
    return error_set(error, "%s is there already; name a folder that is not, or is empty", to);
  if (!is_there && !folder_make(parent, 0755, error))
    return false;
  cleanup_free char *absolute = realpath(parent, NULL);
  if (!absolute || !*base || string_equal(base, ".") || string_equal(base, ".."))
    return error_set(error, "cannot make the folder %s: %s", to,
                     absolute ? "it has no name" : strerror(errno));
  *ret_path = xasprintf("%s/%s", string_equal(absolute, "/") ? "" : absolute, base);
  return true;
}

/* Written beside, then moved: whole or not there. */
static bool folder_export(const struct cache_files *files, const char *to, struct error *error) {
  char suffix[17];
  struct error ignored;
  random_hex(suffix, 8);
  cleanup_free char *temporary = xasprintf("%s.%s.tmp", to, suffix);
  bool ok = files_write(files, temporary, error);
  if (ok && rename(temporary, to) < 0)
    ok = error_set(error, "cannot rename %s to %s: %s", temporary, to, strerror(errno));
  if (!ok)
    (void)!folder_remove(temporary, &ignored);
  return ok;
}

static void answer_print(const struct cache_files *files, const struct release *release,
                         const char *to, bool as_json) {
  char text[DIGEST_TEXT_SIZE];
  digest_format(&release->digest, text);
  if (!as_json) {
    printf("%zu file%s of %s in %s\n", files->n, files->n == 1 ? "" : "s", text, to);
    for (size_t i = 0; i < files->n_skipped; i++) {
      const struct cache_skipped *skipped = &files->skipped[i];
      fprintf(stderr, "wavetune: left out: %s%s%s: %s\n", skipped->name, skipped->key ? " " : "",
              skipped->key ? skipped->key : "", skipped->reason);
    }
    return;
  }
  cleanup_json json_t *skipped = json_array(), *variables = json_object();
  for (size_t i = 0; i < files->n_skipped; i++)
    ALWAYS(json_array_append_new(
               skipped, json_pack("{s:s, s:s?, s:s}", "name", files->skipped[i].name, "key",
                                  files->skipped[i].key, "reason", files->skipped[i].reason)) == 0);
  for (size_t i = 0; i < files->n_variables; i++) {
    const struct cache_variable *variable = &files->variables[i];
    cleanup_free char *path =
        variable->path ? xasprintf("%s%s%s", to, *variable->path ? "/" : "", variable->path) : NULL;
    ALWAYS(json_object_set_new(variables, variable->name,
                               json_string(path ? path : variable->literal)) == 0);
  }
  cleanup_json json_t *answer =
      json_pack("{s:s, s:s, s:I, s:O, s:O}", "release", text, "to", to, "files",
                (json_int_t)files->n, "skipped", skipped, "variables", variables);
  cli_print_json(answer);
}

static int export_write(const struct options *options, const struct export_from *from,
                        const struct cache_format *format, const struct identity *identity) {
  static const struct cache_source none = {0};
  const char *to = option_text(options, "to");
  cleanup_http_source struct http_source *source =
      from->client ? http_source_new(from->client, 0) : NULL;
  cleanup_cache_files struct cache_files files = {0};
  cleanup_free char *folder = NULL;
  struct error error;
  bool is_tar = string_ends(to, ".tar");
  if (!is_tar && !target_resolve(to, &folder, &error))
    return cli_fail(EXIT_USAGE, &error);
  struct render_request request = {.release = from->release,
                                   .source = source ? http_source_interface(source) : &none,
                                   .identity = identity,
                                   .root = folder};
  bool is_rendered = format->render(&request, &files, &error);
  if (source && !http_source_is_whole(source, &error))
    return cli_failed(&error);
  if (!is_rendered) {
    error_prefix(&error, "%s: ", format->name);
    return cli_fail(EXIT_FAILED, &error);
  }
  if (is_tar ? !files_write_tar(&files, to, &error) : !folder_export(&files, folder, &error))
    return cli_fail(EXIT_FAILED, &error);
  answer_print(&files, from->release, is_tar ? to : folder, option_flag(options, "json"));
  return EXIT_OK;
}

static int command_export(struct options *options) {
  __attribute__((cleanup(export_from_release))) struct export_from from = {0};
  cleanup_identity struct identity *identity = NULL;
  cleanup_free const struct cache_format **formats = NULL;
  size_t n_formats;
  char *const *arguments;
  struct error error;
  if (options_arguments(options, &arguments) != 1 || !option_text(options, "to")) {
    error_set(&error, "say what and where to: wavetune export RELEASE|FILE|CHANNEL --format FORMAT "
                      "--to FOLDER|FILE.tar");
    return cli_fail(EXIT_USAGE, &error);
  }
  if (!formats_of_option(options, &formats, &n_formats, &error) ||
      !identity_of_option(options, &identity, &error))
    return cli_fail(EXIT_USAGE, &error);
  if (!json_can_hold(option_text(options, "to"))) {
    error_set(&error, "--to %s is no UTF-8, which files of caches cannot name; export elsewhere",
              option_text(options, "to"));
    return cli_fail(EXIT_USAGE, &error);
  }
  if (n_formats > 1) {
    error_set(&error, "export writes one format at a time; give one --format");
    return cli_fail(EXIT_USAGE, &error);
  }
  int code = from_read(&from, options, arguments[0]);
  return code == EXIT_OK ? export_write(options, &from, formats[0], identity) : code;
}

static const struct option_spec export_options[] = {
    {.name = "format",
     .type = OPTION_LIST,
     .argument = "FORMAT",
     .help = "what to write; default: json",
     .flag_only = true},
    {.name = "to",
     .type = OPTION_TEXT,
     .argument = "FOLDER|FILE.tar",
     .help = "a folder that is not there yet or empty, or a tar file",
     .flag_only = true},
    OPTION_IDENTITY,
    OPTION_TAG,
    OPTION_REGIME,
    OPTION_ENVIRONMENT,
    SERVER_OPTIONS,
};

const struct command_spec spec_export = {
    .name = "export",
    .arguments = "RELEASE|FILE|CHANNEL",
    .summary = "write a release as the files of one cache format",
    .description =
        "A release by its digest, the release.json of one, or what a channel points at "
        "(--environment and "
        "--tag choose the entry). From a file it works without a server, for formats that need "
        "nothing but "
        "the winners. What the format cannot say is left out, and listed on stderr or with --json.",
    .options = export_options,
    .n_options = ARRAY_LENGTH(export_options),
    .run = command_export,
};
