/* Parsing of a command's flags, variables and configuration file by its table, and its --help.
 *
 * Memory: values are borrowed from argv, the environment or options->file; lists and secrets are
 * owned by the options. Threads: one, at start. */
#include "common/program/options.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>

#include "common/base/file.h"
#include "common/base/log.h"
#include "common/base/names.h"
#include "common/program/secret.h"

#define CONFIG_FILE_MAX (64 * 1024)
#define HELP_COLUMN_MAX 34
#define HELP_WIDTH 110

enum origin { ORIGIN_NONE, ORIGIN_DEFAULT, ORIGIN_FILE, ORIGIN_VARIABLE, ORIGIN_FLAG };

struct option_value {
  enum origin origin;
  const char *text;
  char *secret; /* what `text` points to where it was overwritten in its origin */
  int64_t integer;
  bool flag;
  size_t n_list, capacity;
  const char **list;
};

struct options {
  const char *program;
  const struct command_spec *command;
  struct option_value *values; /* one to each option of the command */
  const char *config_path;
  json_t *file;
  size_t n_arguments;
  char **arguments;
};

/* Every command has these beside its own. */
static const struct option_spec common_options[] = {
    {.name = "config",
     .type = OPTION_TEXT,
     .argument = "FILE",
     .help = "read options from this JSON file (default: ~/.config/wavetune/config.json, else "
             "/etc/wavetune/config.json)"},
    {.name = "help", .type = OPTION_FLAG, .help = "show this help and exit", .flag_only = true},
    {.name = "version",
     .type = OPTION_FLAG,
     .help = "show the version and exit",
     .flag_only = true},
};

/* What a configuration file may hold: options of any command of the three programs, which read the
 * same file. A system test holds it against their --help. */
static const char *const config_members[] = {"agent_token_days",
                                             "agent_token_ms",
                                             "budget_ms",
                                             "channel",
                                             "client_certificate",
                                             "client_key",
                                             "compilers",
                                             "config_timeout",
                                             "database",
                                             "database_timeout_ms",
                                             "demand",
                                             "demand_per_hour",
                                             "device",
                                             "environment",
                                             "event_threads",
                                             "final_rounds",
                                             "finalists",
                                             "format",
                                             "heartbeat_ms",
                                             "identity",
                                             "idle_exit",
                                             "insecure_http",
                                             "json",
                                             "lease_ms",
                                             "lease_target_ms",
                                             "listen",
                                             "log_format",
                                             "log_requests",
                                             "match",
                                             "migrate",
                                             "name",
                                             "open_timeout",
                                             "poll_ms",
                                             "port",
                                             "processes",
                                             "publisher_key",
                                             "python",
                                             "queue_max",
                                             "regime",
                                             "require_enrolment",
                                             "require_sandbox",
                                             "screen_rounds",
                                             "seed",
                                             "serve_role",
                                             "state",
                                             "tag",
                                             "tls_certificate",
                                             "tls_client_ca",
                                             "tls_key",
                                             "to",
                                             "token",
                                             "trusted_key",
                                             "trusted_proxy",
                                             "url",
                                             "worker_memory_mb",
                                             "worker_pids",
                                             "worker_user",
                                             "workers"};

no_return static void usage_error(const struct options *options, const char *format, ...)
    printf_like(2, 3);
static void usage_error(const struct options *options, const char *format, ...) {
  fprintf(stderr, "%s %s: ", options->program, options->command->name);
  va_list arguments;
  va_start(arguments, format);
  vfprintf(stderr, format, arguments);
  va_end(arguments);
  fprintf(stderr, "; see \"%s %s --help\"\n", options->program, options->command->name);
  exit(EXIT_USAGE);
}

/* "lease-seconds" as WAVETUNE_LEASE_SECONDS. */
static char *variable_name(const char *name) {
  char *variable = xasprintf("WAVETUNE_%s", name);
  for (char *c = variable; *c; c++)
    *c = *c == '-' ? '_' : (char)toupper((unsigned char)*c);
  return variable;
}

/* "lease-seconds" as lease_seconds. */
static char *member_name(const char *name) {
  char *member = xstrdup(name);
  for (char *c = member; *c; c++) {
    if (*c == '-')
      *c = '_';
  }
  return member;
}

/* Columns that UTF-8 text takes, for what stands in help: no wide characters. */
static size_t text_columns(const char *text) {
  size_t columns = 0;
  for (; *text; text++)
    columns += ((unsigned char)*text & 0xc0) != 0x80;
  return columns;
}

/* Prints words from the present `column` on, in lines of HELP_WIDTH that begin at `indent`. */
static void print_wrapped(const char *text, size_t indent, size_t column) {
  while (*text) {
    size_t length = strcspn(text, " ");
    cleanup_free char *word = xstrndup(text, length);
    size_t width = text_columns(word);
    if (column > indent && column + 1 + width > HELP_WIDTH) {
      printf("\n%*s", (int)indent, "");
      column = indent;
    } else if (column > indent) {
      putchar(' ');
      column++;
    }
    fputs(word, stdout);
    column += width;
    text += length;
    text += strspn(text, " ");
  }
  putchar('\n');
}

/* A newline begins a paragraph, or an entry of a list; within one, lines are broken here. */
static void print_paragraphs(const char *text) {
  putchar('\n');
  while (*text) {
    size_t length = strcspn(text, "\n");
    cleanup_free char *paragraph = xstrndup(text, length);
    print_wrapped(paragraph, 0, 0);
    text += length;
    text += *text == '\n';
  }
}

static char *option_left_column(const struct option_spec *spec) {
  return spec->argument ? xasprintf("--%s %s", spec->name, spec->argument)
                        : xasprintf("--%s", spec->name);
}

static void print_option(const struct option_spec *spec, size_t column) {
  cleanup_free char *left = option_left_column(spec);
  size_t width = 2 + text_columns(left);
  printf("  %s", left);
  if (width + 2 > column) {
    putchar('\n');
    width = 0;
  }
  printf("%*s", (int)(column - width), "");
  cleanup_free char *range =
      spec->type == OPTION_INTEGER && (spec->min || spec->max)
          ? xasprintf("%lld to %lld; ", (long long)spec->min, (long long)spec->max)
          : xstrdup("");
  cleanup_free char *repeated = xstrdup(spec->type == OPTION_LIST ? "may be repeated; " : "");
  cleanup_free char *standard =
      spec->default_text ? xasprintf("default %s; ", spec->default_text) : xstrdup("");
  cleanup_free char *variable = spec->flag_only ? xstrdup("") : variable_name(spec->name);
  cleanup_free char *notes = xasprintf("%s%s%s%s", range, repeated, standard, variable);
  size_t length = strlen(notes);
  if (length >= 2 && strcmp(notes + length - 2, "; ") == 0)
    notes[length - 2] = '\0';
  cleanup_free char *text =
      notes[0] ? xasprintf("%s (%s)", spec->help, notes) : xstrdup(spec->help);
  print_wrapped(text, column, column);
}

static void print_help(const char *program, const struct command_spec *command) {
  printf("usage: %s %s [OPTIONS]%s%s\n\n", program, command->name, command->arguments[0] ? " " : "",
         command->arguments);
  print_wrapped(command->summary, 0, 0);
  if (command->description)
    print_paragraphs(command->description);
  size_t column = 0;
  for (size_t i = 0; i < command->n_options + ARRAY_LENGTH(common_options); i++) {
    const struct option_spec *spec =
        i < command->n_options ? &command->options[i] : &common_options[i - command->n_options];
    cleanup_free char *left = option_left_column(spec);
    size_t width = 2 + text_columns(left) + 2;
    if (width > column && width <= HELP_COLUMN_MAX)
      column = width;
  }
  printf("\noptions:\n");
  for (size_t i = 0; i < command->n_options; i++)
    print_option(&command->options[i], column);
  for (size_t i = 0; i < ARRAY_LENGTH(common_options); i++)
    print_option(&common_options[i], column);
}

static void list_append(struct option_value *value, const char *text) {
  GROW(value->list, value->n_list, value->capacity);
  value->list[value->n_list++] = text;
}

static bool flag_parse(const char *text, bool *ret_flag) {
  if (string_equal(text, "true") || string_equal(text, "1"))
    *ret_flag = true;
  else if (string_equal(text, "false") || string_equal(text, "0"))
    *ret_flag = false;
  else
    return false;
  return true;
}

static bool integer_is_in_range(const struct option_spec *spec, int64_t integer) {
  return (spec->min == 0 && spec->max == 0) || (integer >= spec->min && integer <= spec->max);
}

no_return static void integer_error(const struct options *options, const struct option_spec *spec,
                                    const char *where, const char *text) {
  if (spec->min == 0 && spec->max == 0)
    usage_error(options, "%s must be an integer, not \"%.40s\"", where, text);
  usage_error(options, "%s must be an integer from %lld to %lld, not \"%.40s\"", where,
              (long long)spec->min, (long long)spec->max, text);
}

/* Takes a text from `where` ("--priority", "WAVETUNE_PRIORITY"). A nearer origin overrides a
 * farther one; only a list given by flags collects. */
static void value_set(struct options *options, size_t index, enum origin origin, const char *where,
                      const char *text) {
  const struct option_spec *spec = &options->command->options[index];
  struct option_value *value = &options->values[index];
  switch (spec->type) {
  case OPTION_FLAG:
    if (!flag_parse(text, &value->flag))
      usage_error(options, "%s must be true, false, 1 or 0", where);
    break;
  case OPTION_INTEGER: {
    char *end;
    errno = 0;
    long long integer = strtoll(text, &end, 10);
    bool is_plain =
        isdigit((unsigned char)text[0]) || (text[0] == '-' && isdigit((unsigned char)text[1]));
    if (!is_plain || *end || errno || !integer_is_in_range(spec, integer))
      integer_error(options, spec, where, text);
    value->integer = integer;
    break;
  }
  case OPTION_TEXT:
    value->text = text;
    if (spec->is_secret && origin == ORIGIN_FLAG) {
      free(value->secret);
      value->text = value->secret = xstrdup(text);
      argument_hide(text);
    }
    break;
  case OPTION_LIST:
    if (value->origin != origin)
      value->n_list = 0;
    list_append(value, text);
    break;
  }
  value->origin = origin;
}

static void set_defaults(struct options *options) {
  for (size_t i = 0; i < options->command->n_options; i++) {
    const struct option_spec *spec = &options->command->options[i];
    if (spec->default_text)
      value_set(options, i, ORIGIN_DEFAULT, spec->name, spec->default_text);
  }
}

static void set_from_variables(struct options *options) {
  for (size_t i = 0; i < options->command->n_options; i++) {
    const struct option_spec *spec = &options->command->options[i];
    if (spec->flag_only)
      continue;
    cleanup_free char *variable = variable_name(spec->name);
    char *secret = spec->is_secret ? environment_take(variable) : NULL;
    const char *text = spec->is_secret ? secret : getenv(variable);
    options->values[i].secret = secret;
    if (text && text[0])
      value_set(options, i, ORIGIN_VARIABLE, variable, text);
  }
}

/* Members of the file have JSON's types, so they do not go through value_set. */
static void set_from_member(struct options *options, size_t index, const char *where,
                            const json_t *member) {
  const struct option_spec *spec = &options->command->options[index];
  struct option_value *value = &options->values[index];
  switch (spec->type) {
  case OPTION_FLAG:
    if (!json_is_boolean(member))
      usage_error(options, "%s must be true or false", where);
    value->flag = json_is_true(member);
    break;
  case OPTION_INTEGER:
    if (!json_is_integer(member))
      usage_error(options, "%s must be an integer", where);
    value->integer = json_integer_value(member);
    if (!integer_is_in_range(spec, value->integer)) {
      cleanup_free char *text = xasprintf("%lld", (long long)value->integer);
      integer_error(options, spec, where, text);
    }
    break;
  case OPTION_TEXT:
    if (!json_is_string(member))
      usage_error(options, "%s must be a string", where);
    value->text = json_string_value(member);
    break;
  case OPTION_LIST: {
    size_t i;
    json_t *element;
    value->n_list = 0;
    if (!json_is_array(member))
      usage_error(options, "%s must be an array of strings", where);
    json_array_foreach (member, i, element) {
      if (!json_is_string(element))
        usage_error(options, "%s/%zu must be a string", where, i);
      list_append(value, json_string_value(element));
    }
    break;
  }
  }
  value->origin = ORIGIN_FILE;
}

/* The file to read: the one that was named, else the first default that is there; NULL: none. */
static char *config_file_path(const char *named) {
  if (!named) {
    named = getenv("WAVETUNE_CONFIG");
    if (named && !named[0])
      named = NULL;
  }
  if (named)
    return xstrdup(named);
  const char *home = getenv("HOME");
  if (home && home[0]) {
    cleanup_free char *path = xasprintf("%s/.config/wavetune/config.json", home);
    if (access(path, F_OK) == 0)
      return TAKE(path);
  }
  const char *everyones = "/etc/wavetune/config.json";
  return access(everyones, F_OK) == 0 ? xstrdup(everyones) : NULL;
}

/* A misspelt option would be one that is silently not set. */
static void member_check(const struct options *options, const char *path, const char *name) {
  for (size_t i = 0; i < options->command->n_options; i++) {
    cleanup_free char *own = member_name(options->command->options[i].name);
    if (string_equal(own, name))
      return;
  }
  for (size_t i = 0; i < ARRAY_LENGTH(config_members); i++)
    if (string_equal(config_members[i], name))
      return;
  const char *nearest = name_nearest(name, config_members, ARRAY_LENGTH(config_members));
  if (nearest)
    usage_error(options, "%s: there is no option \"%.40s\" (did you mean \"%s\"?)", path, name,
                nearest);
  usage_error(options, "%s: there is no option \"%.40s\" that a file may hold", path, name);
}

static void set_from_file(struct options *options, const char *named) {
  cleanup_free char *path = config_file_path(named);
  if (!path)
    return;
  cleanup_free char *text = NULL;
  size_t size;
  struct error error;
  if (!file_read(path, CONFIG_FILE_MAX, &text, &size, &error))
    usage_error(options, "the configuration file cannot be read: %s", error.message);
  /* Not json_parse: its message quotes the text near the error, which may be the token. */
  json_error_t reason;
  options->file = json_loadb(text, size, JSON_REJECT_DUPLICATES, &reason);
  if (!options->file)
    usage_error(options, "%s:%d:%d: not a JSON document", path, reason.line, reason.column);
  if (!json_is_object(options->file))
    usage_error(options, "%s must hold a JSON object", path);
  const char *name;
  json_t *member;
  json_object_foreach (options->file, name, member) {
    if (!name[0] || name[strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_")])
      usage_error(
          options,
          "%s: \"%.40s\" is not the name of an option; names are written like \"lease_seconds\"",
          path, name);
    member_check(options, path, name);
  }
  for (size_t i = 0; i < options->command->n_options; i++) {
    if (options->command->options[i].flag_only)
      continue;
    cleanup_free char *member_text = member_name(options->command->options[i].name);
    member = json_object_get(options->file, member_text);
    cleanup_free char *where = xasprintf("%s: /%s", path, member_text);
    if (member && !json_is_null(member))
      set_from_member(options, i, where, member);
  }
}

no_return static void unknown_flag(const struct options *options, const char *name, size_t length) {
  const struct command_spec *command = options->command;
  size_t n = 0;
  cleanup_free const char **names =
      xreallocarray(NULL, command->n_options + ARRAY_LENGTH(common_options), sizeof *names);
  for (size_t i = 0; i < command->n_options; i++)
    names[n++] = command->options[i].name;
  for (size_t i = 0; i < ARRAY_LENGTH(common_options); i++)
    names[n++] = common_options[i].name;
  /* Only the name: what follows "=" may be a token. */
  cleanup_free char *given = xstrndup(name, length);
  const char *nearest = name_nearest(given, names, n);
  if (nearest)
    usage_error(options, "unknown flag --%s (did you mean --%s?)", given, nearest);
  usage_error(options, "unknown flag --%s", given);
}

/* A flag or a positional argument. argv is read twice: first for --help, --version and --config,
 * whose file comes before the flags in order, then for values. */
struct flag_found {
  const struct option_spec *spec; /* NULL: a positional argument */
  size_t index;     /* among the command's options; SIZE_MAX: one of the common ones */
  const char *text; /* NULL: none needed */
};

/* Reads the flag or argument at argv[*at] and moves *at behind it. */
static struct flag_found flag_next(const struct options *options, int argc, char **argv, int *at) {
  struct flag_found found = {.index = SIZE_MAX, .text = argv[*at]};
  const char *word = argv[(*at)++];
  if (string_equal(word, "-h")) {
    found.spec = &common_options[1];
    return found;
  }
  if (word[0] != '-' || !word[1] || isdigit((unsigned char)word[1]))
    return found;
  if (word[1] != '-')
    usage_error(options, "unknown flag -%c: flags have two dashes", word[1]);
  const char *name = word + 2;
  size_t length = strcspn(name, "=");
  const struct command_spec *command = options->command;
  for (size_t i = 0; i < command->n_options && !found.spec; i++) {
    if (strlen(command->options[i].name) == length &&
        strncmp(command->options[i].name, name, length) == 0) {
      found.spec = &command->options[i];
      found.index = i;
    }
  }
  for (size_t i = 0; i < ARRAY_LENGTH(common_options) && !found.spec; i++) {
    if (strlen(common_options[i].name) == length &&
        strncmp(common_options[i].name, name, length) == 0)
      found.spec = &common_options[i];
  }
  if (!found.spec)
    unknown_flag(options, name, length);
  if (name[length] == '=')
    found.text = name + length + 1;
  else if (found.spec->type == OPTION_FLAG)
    found.text = "true";
  else if (*at < argc)
    found.text = argv[(*at)++];
  else
    usage_error(options, "--%s needs a value: --%s %s", found.spec->name, found.spec->name,
                found.spec->argument);
  return found;
}

/* Handles what comes before any value; returns the file that --config names, or NULL. */
static const char *read_common_flags(const struct options *options, int argc, char **argv) {
  const char *config = NULL;
  for (int at = 0; at < argc && !string_equal(argv[at], "--");) {
    struct flag_found found = flag_next(options, argc, argv, &at);
    if (!found.spec || found.index != SIZE_MAX)
      continue;
    if (string_equal(found.spec->name, "config")) {
      config = found.text;
    } else if (string_equal(found.spec->name, "help")) {
      print_help(options->program, options->command);
      exit(EXIT_OK);
    } else {
      printf("%s %s\n", options->program, WAVETUNE_VERSION);
      exit(EXIT_OK);
    }
  }
  return config;
}

static void set_from_flags(struct options *options, int argc, char **argv) {
  int at = 0;
  while (at < argc && !string_equal(argv[at], "--")) {
    int position = at;
    struct flag_found found = flag_next(options, argc, argv, &at);
    if (!found.spec) {
      options->arguments[options->n_arguments++] = argv[position];
    } else if (found.index != SIZE_MAX) {
      cleanup_free char *where = xasprintf("--%s", found.spec->name);
      value_set(options, found.index, ORIGIN_FLAG, where, found.text);
    }
  }
  while (++at < argc)
    options->arguments[options->n_arguments++] = argv[at];
}

/* As early as it can be: what follows, a refusal too, is in the log's format. */
static void log_format_apply(const struct options *options) {
  for (size_t i = 0; i < options->command->n_options; i++) {
    enum log_format format;
    if (!string_equal(options->command->options[i].name, "log-format"))
      continue;
    if (!log_format_parse(options->values[i].text, &format))
      usage_error(options, "--log-format \"%.20s\" is unknown: it must be text or json",
                  options->values[i].text);
    log_set_format(format, options->program);
  }
}

void options_parse(const char *program, const struct command_spec *command, int argc, char **argv,
                   struct options **ret_options) {
  struct options *options = xcalloc(1, sizeof *options);
  *options = (struct options){.program = program, .command = command};
  options->values = xcalloc(command->n_options, sizeof *options->values);
  options->arguments = xcalloc((size_t)argc + 1, sizeof *options->arguments);
  const char *config = read_common_flags(options, argc, argv);
  set_defaults(options);
  set_from_file(options, config);
  set_from_variables(options);
  set_from_flags(options, argc, argv);
  if (options->n_arguments && !command->arguments[0])
    usage_error(options, "unexpected argument \"%.80s\": the command takes none",
                options->arguments[0]);
  log_format_apply(options);
  *ret_options = options;
}

void options_free(struct options *options) {
  for (size_t i = 0; i < options->command->n_options; i++) {
    free(options->values[i].list);
    free(options->values[i].secret);
  }
  free(options->values);
  free(options->arguments);
  json_decref(options->file);
  free(options);
}

static const struct option_value *value_of(const struct options *options, const char *name,
                                           enum option_type type) {
  for (size_t i = 0; i < options->command->n_options; i++) {
    const struct option_spec *spec = &options->command->options[i];
    if (string_equal(spec->name, name)) {
      ALWAYS(spec->type == type);
      return &options->values[i];
    }
  }
  die("%s %s has no option --%s", options->program, options->command->name, name);
}

const char *option_text(const struct options *options, const char *name) {
  return value_of(options, name, OPTION_TEXT)->text;
}

int64_t option_integer(const struct options *options, const char *name) {
  const struct option_value *value = value_of(options, name, OPTION_INTEGER);
  ALWAYS(value->origin != ORIGIN_NONE);
  return value->integer;
}

bool option_flag(const struct options *options, const char *name) {
  return value_of(options, name, OPTION_FLAG)->flag;
}

size_t option_list(const struct options *options, const char *name,
                   const char *const **ret_values) {
  const struct option_value *value = value_of(options, name, OPTION_LIST);
  *ret_values = value->list;
  return value->n_list;
}

json_t *option_list_json(const struct options *options, const char *name) {
  const struct option_value *value = value_of(options, name, OPTION_LIST);
  json_t *array = value->n_list ? json_array() : NULL;
  for (size_t i = 0; i < value->n_list; i++)
    ALWAYS(json_array_append_new(array, json_string(value->list[i])) == 0);
  return array;
}

size_t options_arguments(const struct options *options, char *const **ret_arguments) {
  *ret_arguments = options->arguments;
  return options->n_arguments;
}
