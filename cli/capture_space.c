/* wavetune captures space: an entry (kernels/tables/README.md) to edit, made of a recorded launch
 * of a function that takes its config as arguments.
 *
 * Whole numbers that are compiled in and are written in capitals, and Triton's options that the
 * launch states, are parameters of the space with the value that they had; other whole numbers that
 * are no strides are the key, and numbers that a member of the key has are stated by its name. A
 * builder takes the same arguments for a config's (python/wavetune/_captured/entries.py). */
#include <ctype.h>
#include <glob.h>

#include "cli/cli.h"
#include "common/base/file.h"

#define DOCUMENT_SIZE_MAX ((size_t)4 << 20)

static const char *const triton_options[] = {"num_warps",    "num_stages",           "num_ctas",
                                             "waves_per_eu", "matrix_instr_nonkdim", "kpack"};

/* What is made. `values`: of the key's members in the launch, by name. */
struct skeleton {
  json_t *values, *arguments, *defines, *constexprs, *config, *roles;
};

static void skeleton_release(struct skeleton *made) {
  json_decref(made->values);
  json_decref(made->arguments);
  json_decref(made->defines);
  json_decref(made->constexprs);
  json_decref(made->config);
  json_decref(made->roles);
}
#define cleanup_skeleton cleanup_by(skeleton_release)

static bool is_kind(const json_t *argument, const char *kind) {
  return string_equal(cli_member(argument, "kind"), kind);
}

/* Borrowed: the value, also that of a triton.language.constexpr. */
static json_t *value_of(const json_t *argument) {
  json_t *value = json_object_get(argument, "value"), *inner = json_object_get(value, "constexpr");
  return inner ? inner : value;
}

static bool is_of_config(const json_t *argument) {
  const char *name = cli_member(argument, "name");
  if (!is_kind(argument, "constexpr") || !json_is_integer(value_of(argument)) || !name[0] ||
      !name[1])
    return false;
  for (const char *c = name; *c; c++)
    if (islower((unsigned char)*c))
      return false;
  return true;
}

static bool is_of_key(const json_t *argument) {
  return is_kind(argument, "int") && json_is_integer(value_of(argument)) &&
         !strstr(cli_member(argument, "name"), "stride");
}

/* The name of the key's first member with the number, else the number; a new reference. */
static json_t *number_stated(const struct skeleton *made, const json_t *number) {
  json_members (made->values, name, value)
    if (json_integer_value(value) > 1 && json_equal(value, number))
      return json_string(name);
  return json_deep_copy(number);
}

static json_t *numbers_stated(const struct skeleton *made, const json_t *numbers) {
  json_t *stated = json_array();
  json_elements (numbers, i, number)
    json_push(stated, number_stated(made, number));
  return stated;
}

/* Python's text of a constexpr that expressions can say, the caller's; else NULL. */
static char *text_of(const json_t *value) {
  if (json_is_integer(value))
    return xasprintf("%lld", (long long)json_integer_value(value));
  if (json_is_string(value) && !strpbrk(json_string_value(value), "'\\"))
    return xasprintf("'%s'", json_string_value(value));
  if (json_is_boolean(value))
    return xstrdup(json_is_true(value) ? "True" : "False");
  return json_is_null(value) ? xstrdup("None") : NULL;
}

static void argument_add(struct skeleton *made, const json_t *argument) {
  const char *name = cli_member(argument, "name"), *dtype = cli_member(argument, "dtype");
  json_t *value = value_of(argument);
  cleanup_free char *text = text_of(value);
  if (is_kind(argument, "tensor")) {
    json_t *shape = numbers_stated(made, json_object_get(argument, "shape"));
    if (!json_array_size(shape))
      json_push(shape, json_integer(1));
    json_push(made->arguments, json_pack("{s:s, s:s, s:o, s:s, s:s}", "name", name, "dtype", dtype,
                                         "shape", shape, "access", "readwrite", "fill",
                                         strstr(dtype, "float") ? "normal" : "zeros"));
  } else if (is_of_config(argument)) {
    json_object_set(made->config, name, value);
  } else if (is_kind(argument, "int")) {
    json_t *stated = is_of_key(argument) ? json_string(name) : number_stated(made, value);
    json_push(made->arguments,
              json_pack("{s:s, s:s, s:o}", "name", name, "dtype", "int64", "value", stated));
  } else if (is_kind(argument, "bool")) {
    json_push(made->arguments,
              json_pack("{s:s, s:s, s:s*}", "name", name, "dtype", "bool", "value", text));
  } else if (is_kind(argument, "dtype")) {
    json_put(made->constexprs, name, json_pack("{s:O}", "dtype", value));
  } else if (text) {
    json_put(made->defines, name, json_string(text));
  } else {
    json_object_set(made->constexprs, name, value);
  }
}

static void skeleton_fill(struct skeleton *made, const json_t *launch) {
  const json_t *arguments = json_object_get(launch, "arguments"),
               *config =
                   json_object_get(json_array_get(json_object_get(launch, "configs"), 0), "config");
  *made = (struct skeleton){json_object(), json_array(),  json_object(),
                            json_object(), json_object(), json_object()};
  json_elements (arguments, i, argument)
    if (is_of_key(argument))
      json_object_set(made->values, cli_member(argument, "name"), value_of(argument));
  json_elements (arguments, i, argument)
    argument_add(made, argument);
  for (size_t i = 0; i < ARRAY_LENGTH(triton_options); i++) {
    json_t *value = json_object_get(config, triton_options[i]);
    if (!value || json_object_get(made->config, triton_options[i]))
      continue;
    json_object_set(made->config, triton_options[i], value);
    json_put(made->roles, triton_options[i], json_string("option"));
  }
}

/* kernel.json, a new reference. */
static json_t *kernel_of(const struct skeleton *made, const char *function, const json_t *launch) {
  const char *colon = strchr(function, ':'), *dot = strrchr(function, '.');
  const char *entry = dot && dot > colon ? dot + 1 : colon + 1, *name = entry;
  cleanup_free char *module = xstrndup(function, (size_t)(colon - function));
  cleanup_free char *package = xstrndup(module, strcspn(module, "."));
  const json_t *grid =
      json_object_get(json_array_get(json_object_get(launch, "configs"), 0), "grid");
  json_t *key = json_array(), *places = json_object();
  json_members (made->values, member, value) {
    json_push(key, json_string(member));
    json_put(places, member, json_string(member));
  }
  while (*name == '_')
    name++;

  json_t *version = json_pack("{s:s, s:s, s:{s:s}, s:{s:o}}", "language", "triton", "entry", entry,
                              "from", "module", module, "captured", "key", places);
  if (json_object_size(made->constexprs))
    json_object_set(version, "constexprs", made->constexprs);
  json_t *kernel = json_pack("{s:s, s:o, s:O, s:O, s:{s:o}, s:{s:o}}", "name", name, "key", key,
                             "arguments", made->arguments, "defines", made->defines, "launch",
                             "grid", numbers_stated(made, grid), "versions", package, version);
  ALWAYS(kernel != NULL);
  return kernel;
}

static json_t *space_of(const struct skeleton *made) {
  json_t *parameters = json_object();
  json_members (made->config, name, value)
    json_put(parameters, name, json_pack("[O]", value));
  return json_pack("{s:o, s:O, s:O}", "parameters", parameters, "roles", made->roles, "default",
                   made->config);
}

static void file_add(const char *folder, const char *name, json_t *document) {
  cleanup_free char *path = xasprintf("%s/%s", folder, name);
  cleanup_free char *text = json_dumps(document, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
  struct error error;
  json_decref(document);
  if (access(path, F_OK) == 0)
    cli_refuse(EXIT_USAGE, "%s is there; name another folder with --to", path);
  if (!folder_make(folder, 0777, &error) ||
      !file_write_atomically(path, text, strlen(text), 0666, &error))
    cli_fail(EXIT_FAILED, &error);
}

/* The first of the files that match, which has the member `name` if that is stated; a new
 * reference, or NULL. */
static json_t *document_find(const char *pattern, const char *name) {
  glob_t found = {0};
  json_t *document = NULL;
  struct error error;
  int code = glob(pattern, 0, NULL, &found);
  for (size_t i = 0; code == 0 && !document && i < found.gl_pathc; i++) {
    if (!json_parse_file(found.gl_pathv[i], DOCUMENT_SIZE_MAX, &document, &error))
      cli_fail(EXIT_USAGE, &error);
    if (name && !string_equal(cli_member(document, "name"), name)) {
      json_decref(document);
      document = NULL;
    }
  }
  globfree(&found);
  return document;
}

/* The documents of a function and of a launch of it; NULL: there is none. */
static void documents_find(const struct options *options, const char *which, json_t **ret_function,
                           json_t **ret_launch) {
  const char *folder = option_text(options, "captures");
  if (folder) {
    cleanup_free char *functions = xasprintf("%s/functions/*.json", folder);
    *ret_function = document_find(functions, which);
    const char *closure = cli_member(*ret_function, "closure");
    cleanup_free char *launches =
        xasprintf("%s/launches/%s-*.json", folder, closure + strcspn(closure, ":") + !!*closure);
    *ret_launch = *ret_function ? document_find(launches, NULL) : NULL;
    return;
  }

  cleanup_free char *path = cli_path("/v1/captures/", which, "");
  cleanup_json json_t *answer = cli_request(options, "GET", path, NULL);
  *ret_function = json_incref(json_object_get(answer, "function"));
  *ret_launch = json_incref(json_object_get(answer, "example"));
}

static int command_captures_space(struct options *options) {
  char *const *which = cli_arguments(
      options, 1,
      "name one function by its id, as `wavetune captures` prints it; with --captures by its name");
  const char *to = option_text(options, "to");
  cleanup_json json_t *function = NULL, *launch = NULL;
  if (!to)
    cli_refuse(EXIT_USAGE, "name the entry's folder with --to");
  documents_find(options, *which, &function, &launch);
  const char *name = cli_member(function, "name");
  if (!strchr(name, ':') || !json_array_size(json_object_get(launch, "arguments")))
    cli_refuse(EXIT_FAILED, "no launch of %s was recorded", *which);

  cleanup_skeleton struct skeleton made;
  skeleton_fill(&made, launch);
  if (!json_object_size(made.config))
    cli_refuse(EXIT_FAILED, "no argument of %s looks like a member of a config", name);
  file_add(to, "kernel.json", kernel_of(&made, name, launch));
  file_add(to, "space.json", space_of(&made));
  printf("%s: state the values of space.json, and of kernel.json the grid, and shapes, access and "
         "fill of buffers; then give it to builders (python3 -m wavetune build --entries %s)\n",
         to, to);
  return EXIT_OK;
}

static const struct option_spec space_options[] = {
    CLI_TEXT("to", "FOLDER", "where the entry goes"),
    CLI_TEXT("captures", "FOLDER",
             "a folder that WAVETUNE_CAPTURE_TO named, in place of the server; the function is "
             "named MODULE:FUNCTION"),
    SERVER_OPTIONS,
};

CLI_COMMAND(captures_space, "captures space", "ID|MODULE:FUNCTION", space_options,
            "write an entry to edit, for a function that takes its config as arguments",
            .description =
                "Of a function without an autotuner a builder cannot know which configs it could "
                "have: an entry says so, what its key is, and how a launch gives that "
                "(kernels/tables/README.md).");
