/* wavetune export: writes a release as the files of one format, rendered here from data that was
 * verified against its digest. */
#include <dirent.h>
#include <errno.h>
#include <sys/stat.h>

#include "cli/channel.h"
#include "cli/file_stream.h"
#include "cli/oci.h"
#include "cli/source.h"
#include "common/base/file.h"

static struct release *release_download(struct http_client *client, const struct digest *digest) {
  struct release *release;
  char text[DIGEST_TEXT_SIZE];
  cleanup_free char *path = xasprintf("/v1/releases/%s", digest_format(digest, text));
  struct http_request request = {.method = "GET", .path = path, .response_max = RELEASE_SIZE_MAX};
  cleanup_http_response struct http_response response = {0};
  struct error error;
  if (!http_send(client, &request, &response, &error))
    cli_failed(&error);
  if (response.status != 200)
    cli_refused(&response, text);

  struct digest found = digest_of(response.body, response.size);
  if (!digest_equal(&found, digest))
    cli_refuse(EXIT_TAMPERED, "release %s arrived with other bytes; it was not used", text);
  if (!release_take(&response.body, response.size, digest, &release, &error))
    cli_fail_in(EXIT_REFUSED, &error, "release %s: ", text);
  return release;
}

/* Reads a release by its digest, else from an existing file, else by a channel.
 * *ret_client stays NULL for a file, which needs no server. */
static struct release *release_read(const struct options *options, const char *what,
                                    struct http_client **ret_client) {
  struct digest digest;
  struct stat status;
  struct error error;
  bool is_digest = digest_parse(what, &digest);
  if (!is_digest && stat(what, &status) == 0 && S_ISREG(status.st_mode))
    return release_of_file(what, "");

  *ret_client = cli_connect(options);
  if (!is_digest) {
    cleanup_free char *path = channel_path_of_options(options, what);
    cleanup_json json_t *answer = cli_get(*ret_client, path);
    cleanup_channel_entry struct channel_entry entry = {0};
    if (!channel_entry_parse(answer, &entry, &error))
      cli_fail_in(EXIT_REFUSED, &error, "the entry of channel \"%.64s\": ", what);
    digest = entry.release;
  }

  return release_download(*ret_client, &digest);
}

/* The absolute path of a folder that is absent or empty, for a rename to replace. Makes its parent.
 * The path is the caller's. */
static char *target_resolve(const char *to) {
  struct error error;
  cleanup_free char *trimmed = xstrdup(to);
  size_t length = strlen(trimmed), n_entries = 0;
  while (length > 1 && trimmed[length - 1] == '/')
    trimmed[--length] = '\0';
  const char *slash = strrchr(trimmed, '/'), *base = slash ? slash + 1 : trimmed;
  cleanup_free char *parent =
      slash ? xstrndup(trimmed, slash == trimmed ? 1 : (size_t)(slash - trimmed)) : xstrdup(".");

  struct stat status;
  if (lstat(trimmed, &status) == 0) {
    DIR *folder = S_ISDIR(status.st_mode) ? opendir(trimmed) : NULL;
    while (folder && readdir(folder))
      n_entries++;
    if (folder)
      closedir(folder);
    if (n_entries != 2) /* "." and ".." */
      cli_refuse(EXIT_USAGE, "%s is there already; name a folder that does not exist, or is empty",
                 to);
  } else if (!folder_make(parent, 0755, &error)) {
    cli_fail(EXIT_USAGE, &error);
  }

  cleanup_free char *absolute = realpath(parent, NULL);
  if (!absolute || !*base || string_equal(base, ".") || string_equal(base, ".."))
    cli_refuse(EXIT_USAGE, "cannot make the folder %s: %s", to,
               absolute ? "it has no name" : strerror(errno));
  return xasprintf("%s/%s", string_equal(absolute, "/") ? "" : absolute, base);
}

/* Writes a folder beside `to`, an absolute path, and renames it: it appears whole or not at all. */
static bool folder_export(const struct cache_files *files, const char *to, struct error *error) {
  char suffix[17];
  random_hex(suffix, 8);
  const char *base = strrchr(to, '/') + 1;
  cleanup_free char *temporary = xasprintf("%s.%s.tmp", to, suffix),
                    *parent = xstrndup(to, (size_t)(base - to));
  cleanup_file_stream struct file_stream *stream = NULL;
  bool ok = file_stream_new(parent, 0, &stream, error);
  if (ok) {
    file_stream_add(stream, temporary + (base - to), files);
    ok = file_stream_finish(stream, error);
  }

  if (ok && rename(temporary, to) < 0)
    ok = error_set(error, "cannot rename %s to %s: %s", temporary, to, strerror(errno));
  struct error ignored;
  if (!ok)
    (void)!folder_remove(temporary, &ignored);

  return ok;
}

static void answer_print(const struct cache_files *files, const struct release *release,
                         const char *to, bool as_json) {
  const char *text = DIGEST_TEXT(&release->digest);
  for (size_t i = 0; i < files->n_notes; i++)
    fprintf(stderr, "wavetune: %s\n", files->notes[i]);
  if (!as_json) {
    printf("%zu file%s of %s in %s\n", files->n, files->n == 1 ? "" : "s", text, to);
    for (size_t i = 0; i < files->n_skipped; i++) {
      const struct cache_skipped *skipped = &files->skipped[i];
      fprintf(stderr, "wavetune: left out: %s%s%s: %s\n", skipped->name, skipped->key ? " " : "",
              skipped->key ? skipped->key : "", skipped->reason);
    }
    return;
  }

  json_t *variables = json_object();
  for (size_t i = 0; i < files->n_variables; i++) {
    const struct cache_variable *variable = &files->variables[i];
    const char *below = variable->path;
    cleanup_free char *path = below ? xasprintf("%s%s%s", to, *below ? "/" : "", below) : NULL;
    json_put(variables, variable->name, json_string(path ? path : variable->literal));
  }

  cleanup_json json_t *answer =
      json_pack("{s:s, s:s, s:I, s:o, s:o}", "release", text, "to", to, "files",
                (json_int_t)files->n, "skipped", skipped_to_json(files), "variables", variables);
  cli_print_json(answer);
}

static bool tar_write(const struct cache_files *files, const char *path, struct error *error) {
  size_t size;
  cleanup_free char *bytes = cache_files_tar(files, &size);
  return file_write_atomically(path, bytes, size, 0644, error) ||
         error_prefix(error, "cannot write %s: ", path);
}

/* Where an export goes. */
struct target {
  const char *to;
  bool is_tar, is_image;
  char *folder;     /* absolute; NULL: a tar */
  const char *root; /* where the files will be; NULL: not known */
};

static void target_release(struct target *target) { free(target->folder); }

/* Reads --to, --oci, which implies the format, and --root. */
static void target_of_options(const struct options *options, struct target *ret,
                              const struct cache_format **format) {
  const char *to = option_text(options, "to"), *image = option_text(options, "oci"),
             *root = option_text(options, "root"), *const * names;
  ret->to = image ? image : to;
  ret->is_image = image != NULL;
  ret->is_tar = !image && string_ends(to, ".tar");
  ret->root = root ? root : image ? IMAGE_ROOT_DEFAULT : NULL;

  if (to && image)
    cli_refuse(EXIT_USAGE, "give --to or --oci, not both");
  if (!json_can_hold(ret->to))
    cli_refuse(EXIT_USAGE,
               "--%s %s is no UTF-8, so files of caches cannot name it; export elsewhere",
               image ? "oci" : "to", ret->to);
  if (root && (root[0] != '/' || !json_can_hold(root)))
    cli_refuse(EXIT_USAGE, "--root must be an absolute path, in UTF-8");
  if (image && option_list(options, "format", &names) > 0 &&
      !string_equal((*format)->name, "triton"))
    cli_refuse(EXIT_USAGE, "an image has a cache of Triton; omit --format, or export %s with --to",
               (*format)->name);

  struct error error;
  ALWAYS(!image || cache_format_find("triton", format, &error));
}

/* Replaces the files by those of an image of them. */
static bool image_replace(struct cache_files *files, const struct digest *release,
                          struct error *error) {
  cleanup_cache_files struct cache_files cache = *files;
  *files = (struct cache_files){.n_skipped = cache.n_skipped, .skipped = TAKE(cache.skipped)};
  cache.n_skipped = 0;
  return image_make(&cache, release, files, error);
}

/* Renders the release and writes the files. */
static void release_export(const struct render_request *request, const struct cache_format *format,
                           struct http_source *source, const struct target *target, bool as_json) {
  cleanup_cache_files struct cache_files files = {0};
  struct error error;
  bool is_rendered = format->render(request, &files, &error);
  if (source && !http_source_check(source, &error))
    cli_failed(&error);
  if (!is_rendered ||
      (target->is_image && !image_replace(&files, &request->release->digest, &error))) {
    cli_fail_in(EXIT_FAILED, &error, "%s: ", format->name);
  }

  if (target->is_tar ? !tar_write(&files, target->to, &error)
                     : !folder_export(&files, target->folder, &error))
    cli_fail(EXIT_FAILED, &error);
  answer_print(&files, request->release, target->is_tar ? target->to : target->folder, as_json);
}

static int command_export(struct options *options) {
  static const struct cache_source none = {0};
  char *const *arguments;
  cleanup_by(target_release) struct target target = {0};
  cleanup_http_client struct http_client *client = NULL;
  size_t n_formats;
  if (options_arguments(options, &arguments) != 1 ||
      (!option_text(options, "to") && !option_text(options, "oci")))
    cli_refuse(EXIT_USAGE, "name what and where to export: wavetune export RELEASE|FILE|CHANNEL "
                           "--format FORMAT --to FOLDER|FILE.tar, or --oci FOLDER");

  cleanup_free const struct cache_format **formats = formats_of_option(options, &n_formats);
  cleanup_identity struct identity *identity = identity_of_option(options);
  if (n_formats > 1)
    cli_refuse(EXIT_USAGE, "export writes one format at a time; give one --format");
  target_of_options(options, &target, formats);

  cleanup_release struct release *release = release_read(options, arguments[0], &client);
  if (!target.is_tar)
    target.folder = target_resolve(target.to);

  cleanup_http_source struct http_source *source = client ? http_source_new(client, 0) : NULL;
  struct render_request request = {.release = release,
                                   .source = source ? http_source_interface(source) : &none,
                                   .identity = identity,
                                   .root = target.root ? target.root : target.folder};
  release_export(&request, formats[0], source, &target, option_flag(options, "json"));
  return EXIT_OK;
}

static const struct option_spec export_options[] = {
    CLI_LIST("format", "FORMAT", "the format to write; default: json"),
    CLI_TEXT("to", "FOLDER|FILE.tar", "a folder that does not exist or is empty, or a tar file"),
    CLI_TEXT("oci", "FOLDER",
             "instead of --to: write Triton's cache as an OCI image layout, which GKM's mcv "
             "extracts and skopeo copies to a registry"),
    CLI_TEXT("root", "PATH",
             "where the files will be when they are used, for formats with absolute paths in "
             "them; default: FOLDER, with --oci " IMAGE_ROOT_DEFAULT),
    OPTION_IDENTITY,
    OPTION_TAG,
    OPTION_REGIME,
    OPTION_ENVIRONMENT,
    SERVER_OPTIONS,
};

CLI_COMMAND(
    export, "export", "RELEASE|FILE|CHANNEL", export_options,
    "write a release as the files of one cache format",
    .description =
        "RELEASE is a digest, FILE a release.json, CHANNEL a channel that points at the release "
        "(--environment and --tag choose the entry). With FILE, formats that need only the winners "
        "need no server. Winners that the format cannot express are left out, and listed on "
        "stderr or with --json.");
