/* wavetune import and imports: tables that were tuned elsewhere become incumbents. All files are
 * read and checked before the first request, and the server takes all or nothing. */
#include <errno.h>
#include <fts.h>
#include <libgen.h>
#include <sys/stat.h>

#include "cli/cli.h"
#include "cli/oci.h"
#include "common/base/file.h"
#include "common/formats/tables.h"
#include "common/kernel/kernel_folder.h"
#include "common/program/terminal.h"

#define BODY_MAX ((size_t)64 << 20)
#define TIMEOUT_MS 600000
#define FILES_MAX 10000
#define FILE_MAX ((size_t)64 << 20)
#define BYTES_MAX ((size_t)256 << 20) /* of all files together */

/* The files to read. A path on the command line is a file, whatever its name, or a folder, of which
 * all files are read whose names end as those of tables do, at any depth, except below names that
 * begin with '.'. Links in a folder are not followed: one that stays inside leads to a file that is
 * read anyway, and one that leads out is refused. */
struct names {
  size_t n;
  char **all;   /* absolute */
  size_t bytes; /* of all of them, as their folders state */
  size_t n_roots;
  char **roots; /* real paths of the folders on the command line, and of the files' folders there */
};

struct import {
  const struct options *options;
  const struct cache_format *format;
  struct names names;
  struct cache_files files;     /* their paths are absolute, without the first '/', because formats
                                   read facts from the names of the folders above a table */
  struct kernel_folder *folder; /* of --kernel DIR */
  struct kernel *registered;    /* of --kernel HASH */
  struct imported imported;
  struct environment environment;
  json_t *body; /* what is posted */
};

static void import_release(struct import *import) {
  for (size_t i = 0; i < import->names.n; i++)
    free(import->names.all[i]);
  for (size_t i = 0; i < import->names.n_roots; i++)
    free(import->names.roots[i]);

  free(import->names.all);
  free(import->names.roots);

  cache_files_release(&import->files);
  if (import->folder)
    kernel_folder_free(import->folder);
  if (import->registered)
    kernel_free(import->registered);
  imported_release(&import->imported);
  environment_release(&import->environment);
  json_decref(import->body);
}

static void names_add(struct names *names, const char *path, off_t size) {
  for (const char *c = path; *c; c++)
    if ((unsigned char)*c < 0x20 || *c == 0x7f)
      cli_refuse(EXIT_USAGE, "%s: the name has control characters; rename it", path);
  if (names->n == FILES_MAX)
    cli_refuse(EXIT_USAGE, "more than %d files; import them in parts, one subfolder at a time",
               FILES_MAX);
  if (size > (off_t)FILE_MAX)
    cli_refuse(EXIT_USAGE, "%s has more than %zu MiB", path, FILE_MAX >> 20);
  names->bytes += (size_t)size;
  if (names->bytes > BYTES_MAX)
    cli_refuse(EXIT_USAGE,
               "more than %zu MiB of files; import them in parts, one subfolder at a time",
               BYTES_MAX >> 20);
  *APPEND(names->all, names->n) = xstrdup(path);
}

static void entry_take(FTS *tree, FTSENT *entry, const char *folder, struct names *names) {
  /* A Triton cache holds compiled code beside its tables, gigabytes of it. */
  static const char *const table_ends[] = {".json", ".csv", ".best_config"};
  const char *name = entry->fts_name, *path = entry->fts_path;
  if (entry->fts_level > 0 && name[0] == '.') {
    (void)fts_set(tree, entry, FTS_SKIP);
    return;
  }

  switch (entry->fts_info) {
  case FTS_DNR:
  case FTS_ERR:
  case FTS_NS:
    cli_refuse(EXIT_USAGE, "cannot read %s: %s", path, strerror(entry->fts_errno));
  case FTS_SL:
  case FTS_SLNONE: {
    cleanup_free char *target = realpath(path, NULL);
    size_t length = string_equal(folder, "/") ? 0 : strlen(folder);

    if (!target)
      cli_refuse(EXIT_USAGE, "%s is a link that leads nowhere; remove it", path);
    if (strncmp(target, folder, length) != 0 || target[length] != '/')
      cli_refuse(EXIT_USAGE, "%s is a link that leads out of %s; name what it leads to instead",
                 path, folder);
    return;
  }
  case FTS_F:
    for (size_t i = 0; i < ARRAY_LENGTH(table_ends); i++)
      if (string_ends(name, table_ends[i]))
        names_add(names, path, entry->fts_statp->st_size);
    return;
  default:
    return;
  }
}

static int entries_compare(const FTSENT **a, const FTSENT **b) {
  return strcmp((*a)->fts_name, (*b)->fts_name);
}

static void root_add(struct names *names, const char *folder) {
  for (size_t i = 0; i < names->n_roots; i++)
    if (string_equal(names->roots[i], folder))
      return;
  *APPEND(names->roots, names->n_roots) = xstrdup(folder);
}

/* The files of an image are read at once: they have no names of their own. */
static void path_collect(const char *path, struct import *import) {
  const struct cache_format *format = import->format;
  struct names *names = &import->names;
  struct stat status;
  cleanup_free char *copy = xstrdup(path), *other = xstrdup(path), *folder = NULL;
  bool is_there = stat(path, &status) == 0, is_folder = is_there && S_ISDIR(status.st_mode);
  if (is_there)
    folder = realpath(is_folder ? path : dirname(copy), NULL);
  if (!folder)
    cli_refuse(EXIT_USAGE, "cannot read %s: %s", path, strerror(errno));

  root_add(names, folder);
  struct error error;
  if (is_folder && image_is(folder)) {
    if (!image_tables_add(folder, format, folder + 1, &import->files, &error))
      cli_fail(EXIT_USAGE, &error);
    return;
  }

  /* A file keeps its own name even if it is a link, because names of tables have a meaning. */
  if (!is_folder) {
    cleanup_free char *whole =
        xasprintf("%s/%s", string_equal(folder, "/") ? "" : folder, basename(other));
    names_add(names, whole, status.st_size);
    return;
  }

  size_t before = names->n;
  FTS *tree = fts_open((char *const[]){folder, NULL}, FTS_PHYSICAL | FTS_NOCHDIR, entries_compare);
  if (!tree)
    cli_refuse(EXIT_USAGE, "cannot read %s: %s", folder, strerror(errno));
  for (FTSENT *entry; (entry = fts_read(tree));)
    entry_take(tree, entry, folder, names);
  fts_close(tree);
  if (names->n == before)
    cli_refuse(EXIT_USAGE,
               "%s holds no tables: no file that ends in .json, .csv or .best_config%s%s", folder,
               format->folder ? "; name " : "", format->folder ? format->folder : "");
}

static int texts_compare(const void *a, const void *b) {
  return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Collects all names first, so that errors in a folder are reported before a file is read. */
static void files_read(char *const *paths, size_t n_paths, struct import *import) {
  struct names *names = &import->names;
  for (size_t i = 0; i < n_paths; i++)
    path_collect(paths[i], import);
  if (names->n)
    qsort(names->all, names->n, sizeof *names->all, texts_compare);

  for (size_t i = 1; i < names->n; i++)
    if (string_equal(names->all[i - 1], names->all[i]))
      cli_refuse(EXIT_USAGE, "%s is named twice", names->all[i]);

  /* What states where a table was measured is read with it, named or not. */
  size_t n_named = names->n;
  for (size_t i = 0; import->format->is_table && i < names->n_roots; i++) {
    cleanup_free char *path = xasprintf("%s/" TABLES_FILE, names->roots[i]);
    struct stat status;
    bool is_there = stat(path, &status) == 0 && S_ISREG(status.st_mode);
    for (size_t j = 0; is_there && j < n_named; j++)
      is_there = !string_equal(names->all[j], path);
    if (is_there)
      names_add(names, path, status.st_size);
  }

  struct progress progress = progress_start(stderr, "files", names->n);
  for (size_t i = 0; i < names->n; i++) {
    char *bytes;
    size_t size;
    struct error error;
    progress_show(&progress, i, "");
    if (!file_read(names->all[i], FILE_MAX, &bytes, &size, &error)) {
      progress_end(&progress);
      cli_fail(EXIT_USAGE, &error);
    }
    cache_files_add(&import->files, names->all[i] + 1, bytes, size);
  }
  progress_end(&progress);
}

/* The part of a read file's path that is below its root, which does not depend on this machine.
 * Borrowed from `path`. */
static const char *local_name(const struct names *names, const char *path) {
  for (size_t i = 0; i < names->n_roots; i++) {
    const char *root = names->roots[i] + 1;
    size_t length = strlen(root);
    if (length && strncmp(path, root, length) == 0 && path[length] == '/')
      return path + length + 1;
  }
  return path;
}

static const struct kernel *kernel_of(const struct import *import) {
  return import->folder ? import->folder->kernel : import->registered;
}

/* Loads the kernel of --kernel, from a folder or from the server. `client` is NULL with
 * --dry-run. */
static void kernel_load(struct import *import, struct http_client *client) {
  const char *place = option_text(import->options, "kernel");
  struct error error;
  if (!place)
    return;
  if (!string_starts(place, "sha256:")) {
    if (!kernel_folder_load(place, &import->folder, &error))
      cli_fail(EXIT_USAGE, &error);
    return;
  }
  if (!client)
    cli_refuse(
        EXIT_USAGE,
        "--dry-run sends no request, and kernel %.80s is on the server; name the kernel's folder",
        place);

  cleanup_free char *path = cli_path("/v1/kernels/", place, "");
  cleanup_json json_t *answer = cli_get(client, path);
  if (!kernel_parse(json_object_get(answer, "manifest"), &import->registered, &error))
    cli_fail_in(EXIT_UNREACHABLE, &error, "kernel %s: ", place);
}

/* The tables' environment, completed and corrected by --environment. A correction is reported. */
static void environment_complete(struct import *import) {
  cleanup_json json_t *stated = cli_environment(import->options, "environment"),
                      *read = json_copy(import->imported.environment);
  struct error error;
  json_members (stated, name, value) {
    const json_t *before = json_object_get(read, name);
    if (before && !json_is_null(before) && !json_equal(before, value)) {
      cleanup_free char *was = json_dumps(before, JSON_ENCODE_ANY),
                        *is = json_dumps(value, JSON_ENCODE_ANY);
      fprintf(stderr, "wavetune: the tables state \"%s\": %s; imported as %s\n", name, was, is);
    }
    json_put(read, name, json_incref(value));
  }

  if (!environment_parse(read, &import->environment, &error))
    cli_fail_in(EXIT_USAGE, &error, "the environment: ");
}

static json_t *entry_json(const struct import *import, const struct imported_entry *entry) {
  json_t *provenance = entry->provenance ? json_copy(entry->provenance) : json_object();
  const char *source = json_text(provenance, "source");
  /* The folders above a table are private, and would make the same table differ between machines.
   */
  if (source)
    json_put(provenance, "source", json_string(local_name(&import->names, source)));
  json_t *json = json_pack("{s:O, s:O, s:o, s:o}", "key", entry->key, "config", entry->config, "ms",
                           json_numbers(entry->ms, entry->n_ms), "provenance", provenance);
  ALWAYS(json != NULL);
  return json;
}

static void body_make(struct import *import) {
  environment_complete(import);
  json_t *kernels = json_array();
  for (size_t i = 0; i < import->imported.n_kernels; i++) {
    const struct imported_kernel *kernel = &import->imported.kernels[i];
    json_t *entries = json_array();
    for (size_t j = 0; j < kernel->n_entries; j++)
      json_push(entries, entry_json(import, &kernel->entries[j]));
    json_push(kernels,
              kernel->manifest
                  ? json_pack("{s:O, s:o}", "manifest", kernel->manifest, "entries", entries)
                  : json_pack("{s:o, s:o}", "kernel", json_digest_text(&kernel->hash), "entries",
                              entries));
  }

  import->body = json_pack("{s:s, s:o, s:s, s:o}", "format", import->format->name, "environment",
                           environment_to_json(&import->environment), "tag",
                           option_text(import->options, "tag"), "kernels", kernels);
  ALWAYS(import->body != NULL);

  size_t size = json_dumpb(import->body, NULL, 0, JSON_COMPACT);
  if (size > BODY_MAX)
    cli_refuse(EXIT_USAGE,
               "the tables make %zu MiB of JSON, and the server accepts %zu; import them in parts",
               size >> 20, BODY_MAX >> 20);
}

/* The members of the server's answer that are known without the server. */
static json_t *dry_answer(const struct import *import) {
  json_t *kernels = json_array();
  struct error error;
  for (size_t i = 0; i < import->imported.n_kernels; i++) {
    const struct imported_kernel *imported = &import->imported.kernels[i];
    cleanup_kernel struct kernel *external = NULL;
    if (imported->manifest && !kernel_parse(imported->manifest, &external, &error))
      cli_fail(EXIT_USAGE, &error);
    const struct kernel *kernel = external ? external : kernel_of(import);
    struct digest hash = external ? external->hash : imported->hash;
    json_push(kernels,
              json_pack("{s:o, s:s, s:I}", "kernel", json_digest_text(&hash), "name",
                        kernel ? kernel->name : "", "entries", (json_int_t)imported->n_entries));
  }

  json_t *answer = json_pack("{s:s, s:o, s:o, s:s, s:o}", "format", import->format->name,
                             "environment", environment_to_json(&import->environment), "missing",
                             environment_missing(&import->environment), "tag",
                             option_text(import->options, "tag"), "kernels", kernels);
  ALWAYS(answer != NULL);
  return answer;
}

static int command_import(struct options *options) {
  static const struct cli_column columns[] = {{"kernel"}, {"entries", "entries", true}, {"name"}};
  cleanup_by(import_release) struct import import = {.options = options};
  cleanup_http_client struct http_client *client = NULL;
  cleanup_json json_t *answer = NULL;
  char *const *arguments;
  struct error error;
  size_t n = options_arguments(options, &arguments);
  bool is_dry = option_flag(options, "dry-run");
  if (n < 2)
    cli_refuse(EXIT_USAGE,
               "name a format and at least one file or folder, e.g. wavetune import dejavu FOLDER");
  if (!cache_format_find(arguments[0], &import.format, &error))
    cli_fail(EXIT_USAGE, &error);
  if (!is_dry)
    client = cli_connect(options);
  kernel_load(&import, client);

  struct import_request request = {.files = &import.files, .kernel = kernel_of(&import)};
  files_read(arguments + 1, n - 1, &import);
  if (!cache_format_read(import.format, &request, &import.imported, &error)) {
    /* An error begins with the file's path; the shorter local name leaves room for the rest. */
    const char *local = local_name(&import.names, error.message);
    memmove(error.message, local, strlen(local) + 1);
    cli_fail(EXIT_USAGE, &error);
  }

  body_make(&import);
  if (is_dry)
    answer = dry_answer(&import);
  else if (!http_json(client, "POST", "/v1/imports", import.body, TIMEOUT_MS, &answer, &error))
    cli_failed(&error);

  if (option_flag(options, "json")) {
    cli_print_json(answer);
    return EXIT_OK;
  }

  cli_print_table(json_object_get(answer, "kernels"), columns);
  cleanup_free char *environment = environment_format(&import.environment),
                    *missing = json_texts_join(json_object_get(answer, "missing"), ", ");
  printf("for %s, tag %s\n", environment, option_text(options, "tag"));
  if (*missing)
    printf("the environment lacks %s; state what the tables do not with --environment\n", missing);
  if (is_dry)
    puts("nothing was sent (--dry-run)");
  else
    printf("%lld added, %lld changed, %lld known\n", cli_integer(answer, "added"),
           cli_integer(answer, "changed"), cli_integer(answer, "known"));

  return EXIT_OK;
}

static char *format_spaced(const json_t *object) { return json_dumps(object, 0); }

static char *format_first_ms(const json_t *ms) {
  const json_t *first = json_array_get(ms, 0);
  return first ? xasprintf("%.4f", json_number_value(first)) : xstrdup("-");
}

static int command_imports(struct options *options) {
  static const struct cli_column columns[] = {{"name"},
                                              {"key", "key", false, format_spaced},
                                              {"config", "config", false, format_spaced},
                                              {"ms", "ms", true, format_first_ms},
                                              {"tag"},
                                              {"format"},
                                              {"imported", "imported_at"}};
  cleanup_json json_t *members = cli_options_json(options, "kernel", "format", "tag", NULL);
  cleanup_free char *query = cli_query(members, NULL), *path = xasprintf("/v1/imports%s", query);

  return cli_print_list(options, path, columns);
}

static const struct option_spec import_options[] = {
    CLI_TEXT("environment", "JSON|@FILE",
             "environment members that the tables do not state, or state wrongly, e.g. "
             "'{\"arch\": \"gfx942\"}'"),
    OPTION_TAG,
    CLI_TEXT("kernel", "DIR[:VERSION]|HASH",
             "the registered kernel whose \"exports\" map its keys and configs to the tables; "
             "default: kernels that are known by name only"),
    CLI_FLAG("dry-run", "read and check, show what was found, send nothing"),
    SERVER_OPTIONS,
};
static const struct option_spec imports_options[] = {
    CLI_TEXT("kernel", "HASH", "only entries of this kernel"),
    CLI_TEXT("format", "FORMAT", "only entries of this format"),
    CLI_TEXT("tag", "TAG", "only entries of this deployment scenario"),
    SERVER_OPTIONS,
};

CLI_COMMAND(import, "import", "FORMAT PATH…", import_options,
            "import tables that other tools tuned",
            .description =
                "Reads caches that other tools wrote: FORMAT is a cache format (an unknown name "
                "lists the known ones), PATH is a file, a folder of such files, or (triton) a "
                "folder with an OCI image of a cache (oci-layout). All files are "
                "read and checked before anything is sent, and the server accepts all or none. An "
                "imported entry is the first incumbent of its key: releases serve it until a job "
                "has tuned the key, and jobs measure against it. Importing the same tables again "
                "changes nothing.");
CLI_COMMAND(imports, "imports", "", imports_options, "list what was imported");
