/* wavetune import: tables that were tuned elsewhere become incumbents. All files are read and
 * checked before the server hears of any, and it takes all or nothing. */
#include "cli/cli.h"
#include "cli/import_files.h"
#include "common/kernel/kernel_folder.h"
#include "common/program/table.h"

#define BODY_MAX ((size_t)64 << 20)
#define TIMEOUT_MS 600000

struct import {
  const struct options *options;
  const struct cache_format *format;
  struct import_files files;
  struct kernel_folder *folder; /* of --kernel DIR */
  struct kernel *registered;    /* of --kernel HASH */
  struct imported imported;
  json_t *body; /* what is posted */
};

static void import_release(struct import *import) {
  import_files_release(&import->files);
  if (import->folder)
    kernel_folder_free(import->folder);
  if (import->registered)
    kernel_free(import->registered);
  imported_release(&import->imported);
  json_decref(import->body);
}

static const struct kernel *kernel_of(const struct import *import) {
  return import->folder ? import->folder->kernel : import->registered;
}

static int kernel_get(struct import *import, struct http_client *client, const char *hash) {
  cleanup_json json_t *answer = NULL;
  cleanup_free char *escaped = http_escape(hash);
  cleanup_free char *path = xasprintf("/v1/kernels/%s", escaped);
  struct error error;
  int code = cli_call(client, "GET", path, NULL, &answer);
  if (code == EXIT_OK &&
      !kernel_parse(json_object_get(answer, "manifest"), &import->registered, &error)) {
    error_prefix(&error, "kernel %s: ", hash);
    code = cli_fail(EXIT_UNREACHABLE, &error);
  }
  return code;
}

/* The kernel that the tables are of: a folder, or one that the server knows. */
static int kernel_load(struct import *import, struct http_client *client) {
  const char *place = option_text(import->options, "kernel");
  struct error error;
  if (!place)
    return EXIT_OK;
  if (string_starts(place, "sha256:") && client)
    return kernel_get(import, client, place);
  if (string_starts(place, "sha256:")) {
    error_set(&error, "--dry-run asks no server what %.80s is; name the kernel's folder", place);
    return cli_fail(EXIT_USAGE, &error);
  }
  return kernel_folder_load(place, &import->folder, &error) ? EXIT_OK
                                                            : cli_fail(EXIT_USAGE, &error);
}

/* What the tables state, completed and corrected by --environment. A correction is said. */
static bool environment_complete(struct import *import, struct environment *ret,
                                 struct error *error) {
  cleanup_json json_t *stated = NULL, *read = json_copy(import->imported.environment);
  const char *name;
  json_t *value;
  if (!cli_environment(import->options, &stated, error))
    return false;
  json_object_foreach (stated, name, value) {
    const json_t *before = json_object_get(read, name);
    if (before && !json_is_null(before) && !json_equal(before, value)) {
      cleanup_free char *was = json_dumps(before, JSON_ENCODE_ANY),
                        *is = json_dumps(value, JSON_ENCODE_ANY);
      fprintf(stderr, "wavetune: the tables state \"%s\": %s; imported as %s\n", name, was, is);
    }
    ALWAYS(json_object_set(read, name, value) == 0);
  }
  return environment_parse(read, ret, error) || error_prefix(error, "the environment: ");
}

/* Where a table lay on this machine is nobody's business, and would make the same table another one
 * on each. */
static json_t *provenance_local(const struct import *import, const json_t *provenance) {
  json_t *local = provenance ? json_copy((json_t *)provenance) : json_object();
  const char *source = json_string_value(json_object_get(local, "source"));
  if (source) {
    cleanup_free char *name = xstrdup(import_files_name(&import->files, source));
    ALWAYS(json_object_set_new(local, "source", json_string(name)) == 0);
  }
  return local;
}

static json_t *entry_json(const struct import *import, const struct imported_entry *entry) {
  json_t *json = json_pack("{s:O, s:O, s:o, s:o}", "key", entry->key, "config", entry->config, "ms",
                           json_numbers(entry->ms, entry->n_ms), "provenance",
                           provenance_local(import, entry->provenance));
  ALWAYS(json != NULL);
  return json;
}

static json_t *kernel_json(const struct import *import, const struct imported_kernel *kernel) {
  json_t *entries = json_array();
  for (size_t i = 0; i < kernel->n_entries; i++)
    ALWAYS(json_array_append_new(entries, entry_json(import, &kernel->entries[i])) == 0);
  json_t *json =
      kernel->manifest
          ? json_pack("{s:O, s:o}", "manifest", kernel->manifest, "entries", entries)
          : json_pack("{s:o, s:o}", "kernel", json_digest_text(&kernel->hash), "entries", entries);
  ALWAYS(json != NULL);
  return json;
}

static bool body_make(struct import *import, struct environment *ret_environment,
                      struct error *error) {
  cleanup_environment struct environment environment = {0};
  if (!environment_complete(import, &environment, error))
    return false;
  json_t *kernels = json_array();
  for (size_t i = 0; i < import->imported.n_kernels; i++)
    ALWAYS(json_array_append_new(kernels, kernel_json(import, &import->imported.kernels[i])) == 0);
  import->body = json_pack("{s:s, s:o, s:s, s:o}", "format", import->format->name, "environment",
                           environment_to_json(&environment), "tag",
                           option_text(import->options, "tag"), "kernels", kernels);
  ALWAYS(import->body != NULL);
  size_t size = json_dumpb(import->body, NULL, 0, JSON_COMPACT);
  if (size > BODY_MAX)
    return error_set(error,
                     "the tables make %zu MiB of JSON, the server takes %zu; import them in parts",
                     size >> 20, BODY_MAX >> 20);
  *ret_environment = environment;
  environment = (struct environment){0};
  return true;
}

/* A refusal names the file first: below the folder that was named it is shorter, and the sentence
 * is not cut. */
static bool tables_read(struct import *import, char *const *paths, size_t n_paths,
                        struct error *error) {
  if (!import_files_read(paths, n_paths, &import->files, error))
    return false;
  struct import_request request = {.files = &import->files.files, .kernel = kernel_of(import)};
  if (cache_format_read(import->format, &request, &import->imported, error))
    return true;
  const char *local = import_files_name(&import->files, error->message);
  memmove(error->message, local, strlen(local) + 1);
  return false;
}

/* Kernels of the body as the server names them in its answer. */
static bool kernels_describe(const struct import *import, json_t **ret_kernels,
                             struct error *error) {
  cleanup_json json_t *kernels = json_array();
  for (size_t i = 0; i < import->imported.n_kernels; i++) {
    const struct imported_kernel *imported = &import->imported.kernels[i];
    cleanup_kernel struct kernel *external = NULL;
    if (imported->manifest && !kernel_parse(imported->manifest, &external, error))
      return false;
    const struct kernel *kernel = external ? external : kernel_of(import);
    struct digest hash = external ? external->hash : imported->hash;
    json_array_append_new(kernels, json_pack("{s:o, s:s, s:I}", "kernel", json_digest_text(&hash),
                                             "name", kernel ? kernel->name : "", "entries",
                                             (json_int_t)imported->n_entries));
  }
  *ret_kernels = TAKE(kernels);
  return true;
}

static void answer_print(const struct import *import, const struct environment *environment,
                         const json_t *answer) {
  static const struct table_column columns[] = {
      {"kernel", false}, {"entries", true}, {"name", false}};
  cleanup_table struct table *table = table_new(columns, ARRAY_LENGTH(columns));
  cleanup_free char *text = environment_format(environment);
  const json_t *missing = json_object_get(answer, "missing");
  json_t *item;
  size_t i;
  json_array_foreach (json_object_get(answer, "kernels"), i, item) {
    table_cell(table, "%s", cli_member(item, "kernel"));
    table_cell(table, "%" JSON_INTEGER_FORMAT,
               json_integer_value(json_object_get(item, "entries")));
    table_cell(table, "%s", cli_member(item, "name"));
  }
  table_print(table, stdout);
  printf("for %s, tag %s\n", text, option_text(import->options, "tag"));
  const char *joint = "the environment lacks ";
  json_array_foreach (missing, i, item) {
    printf("%s%s", joint, json_string_value(item));
    joint = ", ";
  }
  if (i)
    puts("; --environment states what the tables do not");
}

static int import_dry(const struct import *import, const struct environment *environment) {
  json_t *kernels;
  struct error error;
  if (!kernels_describe(import, &kernels, &error))
    return cli_fail(EXIT_USAGE, &error);
  cleanup_json json_t *answer =
      json_pack("{s:s, s:o, s:o, s:s, s:o}", "format", import->format->name, "environment",
                environment_to_json(environment), "missing", environment_missing(environment),
                "tag", option_text(import->options, "tag"), "kernels", kernels);
  ALWAYS(answer != NULL);
  if (option_flag(import->options, "json")) {
    cli_print_json(answer);
    return EXIT_OK;
  }
  answer_print(import, environment, answer);
  puts("nothing was sent (--dry-run)");
  return EXIT_OK;
}

static int import_post(const struct import *import, struct http_client *client,
                       const struct environment *environment) {
  cleanup_json json_t *answer = NULL;
  struct error error;
  if (!http_json(client, "POST", "/v1/imports", import->body, TIMEOUT_MS, &answer, &error))
    return cli_failed(&error);
  if (option_flag(import->options, "json")) {
    cli_print_json(answer);
    return EXIT_OK;
  }
  answer_print(import, environment, answer);
  printf("%" JSON_INTEGER_FORMAT " added, %" JSON_INTEGER_FORMAT " changed, %" JSON_INTEGER_FORMAT
         " known\n",
         json_integer_value(json_object_get(answer, "added")),
         json_integer_value(json_object_get(answer, "changed")),
         json_integer_value(json_object_get(answer, "known")));
  return EXIT_OK;
}

static int command_import(struct options *options) {
  __attribute__((cleanup(import_release))) struct import import = {.options = options};
  cleanup_http_client struct http_client *client = NULL;
  cleanup_environment struct environment environment = {0};
  char *const *arguments;
  struct error error;
  size_t n = options_arguments(options, &arguments);
  if (n < 2) {
    error_set(&error,
              "name a format and at least one file or folder, e.g. wavetune import dejavu FOLDER");
    return cli_fail(EXIT_USAGE, &error);
  }
  if (!cache_format_find(arguments[0], &import.format, &error))
    return cli_fail(EXIT_USAGE, &error);
  bool is_dry = option_flag(options, "dry-run");
  if (!is_dry && !(client = cli_connect(options)))
    return EXIT_USAGE;
  int code = kernel_load(&import, client);
  if (code != EXIT_OK)
    return code;
  if (!tables_read(&import, arguments + 1, n - 1, &error) ||
      !body_make(&import, &environment, &error))
    return cli_fail(EXIT_USAGE, &error);
  return is_dry ? import_dry(&import, &environment) : import_post(&import, client, &environment);
}

static int command_imports(struct options *options) {
  cleanup_json json_t *filters = json_object(), *items = NULL;
  static const char *const names[] = {"kernel", "format", "tag"};
  for (size_t i = 0; i < ARRAY_LENGTH(names); i++)
    if (option_text(options, names[i]))
      json_object_set_new(filters, names[i], json_string(option_text(options, names[i])));
  cleanup_free char *query = cli_query(filters, NULL);
  cleanup_free char *path = xasprintf("/v1/imports%s", query);
  int code = cli_list_or_json(options, path, &items);
  if (!items)
    return code;
  static const struct table_column columns[] = {
      {"name", false}, {"key", false},    {"config", false},  {"ms", true},
      {"tag", false},  {"format", false}, {"imported", false}};
  cleanup_table struct table *table = table_new(columns, ARRAY_LENGTH(columns));
  json_t *item;
  size_t i;
  json_array_foreach (items, i, item) {
    cleanup_free char *key = json_dumps(json_object_get(item, "key"), 0);
    cleanup_free char *config = json_dumps(json_object_get(item, "config"), 0);
    const json_t *ms = json_array_get(json_object_get(item, "ms"), 0);
    table_cell(table, "%s", cli_member(item, "name"));
    table_cell(table, "%s", key);
    table_cell(table, "%s", config);
    if (ms)
      table_cell(table, "%.4f", json_number_value(ms));
    else
      table_cell(table, "-");
    table_cell(table, "%s", cli_member(item, "tag"));
    table_cell(table, "%s", cli_member(item, "format"));
    table_cell(table, "%s", cli_member(item, "imported_at"));
  }
  table_print(table, stdout);
  return EXIT_OK;
}

/* clang-format off */
static const struct option_spec import_options[] = {
    {.name = "environment", .type = OPTION_TEXT, .argument = "JSON|@FILE", .flag_only = true,
     .help = "what the tables hold for, beside what they state themselves, e.g. '{\"arch\": "
             "\"gfx942\"}'"},
    OPTION_TAG,
    {.name = "kernel", .type = OPTION_TEXT, .argument = "DIR[:VERSION]|HASH", .flag_only = true,
     .help = "the registered kernel that the tables are of, by its \"exports\"; else each is "
             "known by name only"},
    {.name = "dry-run", .type = OPTION_FLAG, .flag_only = true,
     .help = "read and check, show what was found, send nothing"},
    SERVER_OPTIONS,
};
static const struct option_spec imports_options[] = {
    {.name = "kernel", .type = OPTION_TEXT, .argument = "HASH", .flag_only = true,
     .help = "only those of this kernel"},
    {.name = "format", .type = OPTION_TEXT, .argument = "FORMAT", .flag_only = true,
     .help = "only those of this format"},
    {.name = "tag", .type = OPTION_TEXT, .argument = "TAG", .flag_only = true,
     .help = "only those of this deployment scenario"},
    SERVER_OPTIONS,
};
/* clang-format on */

const struct command_spec spec_import = {
    .name = "import",
    .arguments = "FORMAT PATH…",
    .summary = "take over tables that were tuned elsewhere",
    .description = "Reads caches that other tools wrote: FORMAT is a cache format (an unknown one "
                   "lists those there "
                   "are), PATH a file "
                   "or a folder with such files. All of them are read and checked before anything "
                   "is sent, and the "
                   "server takes all "
                   "or nothing. What is imported is the first incumbent of its key: releases serve "
                   "it until a job has "
                   "tuned the key, "
                   "and jobs measure against it. Importing the same again changes nothing.",
    .options = import_options,
    .n_options = ARRAY_LENGTH(import_options),
    .run = command_import,
};
const struct command_spec spec_imports = {
    .name = "imports",
    .arguments = "",
    .summary = "list what was imported",
    .options = imports_options,
    .n_options = ARRAY_LENGTH(imports_options),
    .run = command_imports,
};
