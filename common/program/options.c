/* Finds a program's command in its table, reads flags, variables and the configuration file by the
 * command's table of options.
 *
 * Memory: values are borrowed from argv, the environment or options->file; lists and secrets are
 * owned by the options. Threads: one, at start. */
#include "common/program/options.h"

#include <ctype.h>
#include <errno.h>
#include <signal.h>
#include <stdarg.h>

#include "common/base/error.h"
#include "common/base/file.h"
#include "common/base/log.h"
#include "common/program/command_documents.h"
#include "common/program/help.h"

#define CONFIG_FILE_MAX (64 * 1024)

enum origin { ORIGIN_NONE, ORIGIN_DEFAULT, ORIGIN_FILE, ORIGIN_VARIABLE, ORIGIN_FLAG };

struct option_value {
  enum origin origin;
  const char *text;
  char *secret; /* the copy that `text` points to after the original was overwritten */
  int64_t integer;
  bool flag;
  size_t n_list, capacity;
  const char **list;
};

struct options {
  const char *program;
  const struct command_spec *command;
  struct option_value *values; /* one to each option of the command */
  char *config_path;           /* of `file` */
  json_t *file;
  size_t n_arguments;
  char **arguments;
};

/* Every command has these in addition to its own. */
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

/* The members that a configuration file may have: the options of all commands of the three
 * programs, which read the same file. A system test compares it with their --help. */
static const char *const config_members[] = {"agent_token_days",
                                             "agent_token_ms",
                                             "bodies_mib",
                                             "body_rate",
                                             "body_timeout_ms",
                                             "budget_ms",
                                             "busy_file",
                                             "capture_days",
                                             "captures_per_day",
                                             "channel",
                                             "client_certificate",
                                             "client_key",
                                             "compilers",
                                             "config_timeout",
                                             "connections",
                                             "connections_per_address",
                                             "database",
                                             "database_timeout_ms",
                                             "demand",
                                             "device",
                                             "end_idle_transactions",
                                             "environment",
                                             "event_threads",
                                             "final_rounds",
                                             "finalists",
                                             "format",
                                             "free_seconds",
                                             "head_timeout_ms",
                                             "heartbeat_ms",
                                             "identity",
                                             "idle_exit",
                                             "insecure_http",
                                             "json",
                                             "keep_days",
                                             "lease_ms",
                                             "lease_target_ms",
                                             "listen",
                                             "log_format",
                                             "log_requests",
                                             "match",
                                             "migrate",
                                             "name",
                                             "oidc",
                                             "open_timeout",
                                             "poll_ms",
                                             "port",
                                             "processes",
                                             "publisher_key",
                                             "python",
                                             "queue_max",
                                             "regime",
                                             "remote_mib",
                                             "remote_share",
                                             "require_enrolment",
                                             "require_sandbox",
                                             "screen_rounds",
                                             "seed",
                                             "serve_role",
                                             "share_device",
                                             "sign_in",
                                             "sign_in_groups_header",
                                             "sign_in_secret",
                                             "sign_in_user_header",
                                             "state",
                                             "tag",
                                             "tls_certificate",
                                             "tls_client_ca",
                                             "tls_key",
                                             "to",
                                             "token",
                                             "token_agents",
                                             "token_command",
                                             "token_devices",
                                             "token_files_mib",
                                             "token_open_jobs",
                                             "token_requests",
                                             "trusted_key",
                                             "trusted_proxy",
                                             "unused_file_days",
                                             "url",
                                             "worker_memory_mb",
                                             "worker_pids",
                                             "worker_user",
                                             "workers",
                                             "yield_when_busy"};

/* The kernel writes arguments and the environment before main() runs, to memory that is writable.
 */
static void text_overwrite(const char *text) { memset((char *)(uintptr_t)text, 'x', strlen(text)); }

char *environment_take(const char *name) {
  const char *value = getenv(name);
  char *taken = value ? xstrdup(value) : NULL;
  size_t length = strlen(name);
  for (size_t i = 0; environ[i]; i++) /* a name may occur twice */
    if (strncmp(environ[i], name, length) == 0 && environ[i][length] == '=')
      text_overwrite(environ[i] + length + 1);
  unsetenv(name);
  return taken;
}

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

const struct option_spec *command_option(const struct command_spec *command, size_t i) {
  return i < command->n_options ? &command->options[i] : &common_options[i - command->n_options];
}

size_t command_option_count(const struct command_spec *command) {
  return command->n_options + ARRAY_LENGTH(common_options);
}

/* "lease-seconds" as lease_seconds. */
static char *member_name(const char *name) {
  char *member = xstrdup(name);
  for (char *c = member; (c = strchr(c, '-'));)
    *c = '_';
  return member;
}

/* Sets an option to a text from `where` ("--priority", "WAVETUNE_PRIORITY"). Called with origins in
 * the order of their enum: each replaces the value of those before, and a list holds the values of
 * one. */
static void value_set(struct options *options, size_t index, enum origin origin, const char *where,
                      const char *text) {
  const struct option_spec *spec = &options->command->options[index];
  struct option_value *value = &options->values[index];
  switch (spec->type) {
  case OPTION_FLAG:
    value->flag = string_equal(text, "true") || string_equal(text, "1");
    if (!value->flag && !string_equal(text, "false") && !string_equal(text, "0"))
      usage_error(options, "%s must be true, false, 1 or 0", where);
    break;
  case OPTION_INTEGER: {
    bool is_bounded = spec->min || spec->max;
    char *end;
    errno = 0;
    value->integer = strtoll(text, &end, 10);
    if (!isdigit((unsigned char)text[text[0] == '-']) || *end || errno ||
        (is_bounded && (value->integer < spec->min || value->integer > spec->max))) {
      cleanup_free char *range =
          is_bounded ? xasprintf(" from %lld to %lld", (long long)spec->min, (long long)spec->max)
                     : xstrdup("");
      usage_error(options, "%s must be an integer%s, not \"%.40s\"", where, range, text);
    }
    break;
  }
  case OPTION_TEXT:
    value->text = text;
    if (spec->is_secret && origin == ORIGIN_FLAG) {
      free(value->secret);
      value->text = value->secret = xstrdup(text);
      text_overwrite(text);
    }
    break;
  case OPTION_LIST:
    if (value->origin != origin)
      value->n_list = 0;
    GROW(value->list, value->n_list, value->capacity);
    value->list[value->n_list++] = text;
    break;
  }

  value->origin = origin;
}

/* A member must have the JSON type of its option; its value is then set as text. */
static void set_from_member(struct options *options, size_t index, const char *where,
                            const json_t *member) {
  static const char *const types[] = {[OPTION_FLAG] = "true or false",
                                      [OPTION_TEXT] = "a string",
                                      [OPTION_INTEGER] = "an integer",
                                      [OPTION_LIST] = "a string or an array of strings"};
  enum option_type type = options->command->options[index].type;
  if (!(type == OPTION_FLAG      ? json_is_boolean(member)
        : type == OPTION_TEXT    ? json_is_string(member)
        : type == OPTION_INTEGER ? json_is_integer(member)
                                 : json_is_array(member) || json_is_string(member)))
    usage_error(options, "%s must be %s", where, types[type]);

  if (json_is_array(member)) {
    json_elements (member, i, element) {
      if (!json_is_string(element))
        usage_error(options, "%s/%zu must be a string", where, i);
      value_set(options, index, ORIGIN_FILE, where, json_string_value(element));
    }
  } else if (json_is_string(member)) {
    value_set(options, index, ORIGIN_FILE, where, json_string_value(member));
  } else {
    cleanup_free char *text = json_dumps(member, JSON_ENCODE_ANY);
    value_set(options, index, ORIGIN_FILE, where, text);
  }
}

/* The file to read: the named one, else the first default file that exists; NULL: none. */
static char *config_file_path(const char *named) {
  const char *variable = getenv("WAVETUNE_CONFIG"), *home = getenv("HOME"),
             *shared = "/etc/wavetune/config.json";
  if (!named && variable && variable[0])
    named = variable;
  if (named)
    return xstrdup(named);

  cleanup_free char *own = xasprintf("%s/.config/wavetune/config.json", home ? home : "");
  if (home && home[0] && access(own, F_OK) == 0)
    return TAKE(own);
  return access(shared, F_OK) == 0 ? xstrdup(shared) : NULL;
}

/* Refuses a member that is no option: a misspelt one would otherwise be ignored. */
static void member_check(const struct options *options, const char *path, const char *name) {
  if (!name[0] || name[strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_")])
    usage_error(
        options,
        "%s: \"%.40s\" is not the name of an option; names are written like \"lease_seconds\"",
        path, name);

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
  usage_error(options, "%s: there is no option \"%.40s\" that a file may contain", path, name);
}

/* Reads the configuration file, if there is one, and checks its members. */
static void file_load(struct options *options, const char *named) {
  cleanup_free char *path = config_file_path(named), *text = NULL;
  size_t size;
  struct error error;
  json_error_t reason;
  if (!path)
    return;

  if (!file_read(path, CONFIG_FILE_MAX, &text, &size, &error))
    usage_error(options, "the configuration file cannot be read: %s", error.message);

  /* Not json_parse: its message quotes the text near the error, which may be the token. */
  options->file = json_loadb(text, size, JSON_REJECT_DUPLICATES, &reason);
  if (!options->file)
    usage_error(options, "%s:%d:%d: not a JSON document", path, reason.line, reason.column);
  if (!json_is_object(options->file))
    usage_error(options, "%s must contain a JSON object", path);

  json_members (options->file, name, member)
    member_check(options, path, name);
  options->config_path = TAKE(path);
}

/* Sets an option from its default, then the file, then its variable. */
static void set_from_origins(struct options *options, size_t index) {
  const struct option_spec *spec = &options->command->options[index];
  if (spec->default_text)
    value_set(options, index, ORIGIN_DEFAULT, spec->name, spec->default_text);
  if (spec->flag_only)
    return;

  cleanup_free char *name = member_name(spec->name), *variable = option_variable(spec->name);
  const json_t *member = json_object_get(options->file, name);
  if (member && !json_is_null(member)) {
    cleanup_free char *where = xasprintf("%s: /%s", options->config_path, name);
    set_from_member(options, index, where, member);
  }

  char *secret = spec->is_secret ? environment_take(variable) : NULL;
  const char *text = spec->is_secret ? secret : getenv(variable);
  options->values[index].secret = secret;
  if (text && text[0])
    value_set(options, index, ORIGIN_VARIABLE, variable, text);
}

/* A flag or a positional argument. */
struct flag_found {
  const struct option_spec *spec; /* NULL: a positional argument */
  size_t index;                   /* of command_option */
  const char *text;
};

/* Which of the command's own options -LETTER is; n_options: none. */
static size_t letter_find(const struct command_spec *command, char letter) {
  size_t i = 0;
  while (i < command->n_options && command->options[i].letter != letter)
    i++;
  return i;
}

/* Reads the flag or argument at argv[*at] and moves *at behind it. */
static struct flag_found flag_next(const struct options *options, int argc, char **argv, int *at) {
  const struct command_spec *command = options->command;
  const char *word = argv[(*at)++];
  struct flag_found found = {.text = word};
  if (string_equal(word, "-h"))
    word = "--help";
  if (word[0] != '-' || !word[1] || isdigit((unsigned char)word[1]))
    return found;

  /* -o VALUE, -o=VALUE or -oVALUE. */
  size_t of_letter = word[1] == '-' ? command->n_options : letter_find(command, word[1]);
  bool is_letter = of_letter < command->n_options;
  if (word[1] != '-' && !is_letter)
    usage_error(options, "unknown flag -%c: flags have two dashes", word[1]);

  /* Without the text after "=", which may be a token. */
  cleanup_free char *name = is_letter ? xstrdup(command->options[of_letter].name)
                                      : xstrndup(word + 2, strcspn(word + 2, "="));
  cleanup_free const char **names = xcalloc(command_option_count(command), sizeof *names);

  for (size_t i = 0; i < command_option_count(command) && !found.spec; i++) {
    names[i] = command_option(command, i)->name;
    if (string_equal(names[i], name)) {
      found.spec = command_option(command, i);
      found.index = i;
    }
  }

  if (!found.spec) {
    const char *nearest = name_nearest(name, names, command_option_count(command));
    if (nearest)
      usage_error(options, "unknown flag --%s (did you mean --%s?)", name, nearest);
    usage_error(options, "unknown flag --%s", name);
  }

  const char *equals = is_letter ? NULL : strchr(word, '=');
  if (equals)
    found.text = equals + 1;
  else if (is_letter && word[2])
    found.text = word + 2 + (word[2] == '=');
  else if (found.spec->type == OPTION_FLAG)
    found.text = "true";
  else if (*at < argc)
    found.text = argv[(*at)++];
  else
    usage_error(options, "--%s needs a value: --%s %s", name, name, found.spec->argument);

  return found;
}

static void version_print(const char *program) {
  printf("%s %s\nbugs: %s\n", program, WAVETUNE_VERSION, WAVETUNE_REPORT_TO);
}

/* Called twice: with `is_first` reads only --help, --version and --config, because the file's
 * values are set before the flags'; then the other flags and the arguments. Returns the file that
 * --config names, or NULL. */
static const char *flags_read(struct options *options, bool is_first, int argc, char **argv) {
  const char *config = NULL;
  int at = 0;
  while (at < argc && !string_equal(argv[at], "--")) {
    char *word = argv[at];
    struct flag_found found = flag_next(options, argc, argv, &at);
    bool is_common = found.spec && found.index >= options->command->n_options;

    if (is_common != is_first)
      continue;

    if (!found.spec) {
      options->arguments[options->n_arguments++] = word;
    } else if (!is_common) {
      cleanup_free char *where = xasprintf("--%s", found.spec->name);
      value_set(options, found.index, ORIGIN_FLAG, where, found.text);
    } else if (string_equal(found.spec->name, "config")) {
      config = found.text;
    } else {
      if (string_equal(found.spec->name, "help"))
        help_print(options->program, options->command);
      else
        version_print(options->program);
      exit(EXIT_OK);
    }
  }

  while (!is_first && ++at < argc)
    options->arguments[options->n_arguments++] = argv[at];
  return config;
}

void options_parse(const char *program, const struct command_spec *command, int argc, char **argv,
                   struct options **ret_options) {
  struct options *options = xcalloc(1, sizeof *options);
  options->program = program;
  options->command = command;
  options->values = xcalloc(command->n_options, sizeof *options->values);
  options->arguments = xcalloc((size_t)argc + 1, sizeof *options->arguments);

  file_load(options, flags_read(options, true, argc, argv));
  for (size_t i = 0; i < command->n_options; i++)
    set_from_origins(options, i);
  flags_read(options, false, argc, argv);

  if (options->n_arguments && !command->arguments[0])
    usage_error(options, "unexpected argument \"%.80s\": the command takes none",
                options->arguments[0]);

  /* The format of the log must be set before anything is logged. */
  for (size_t i = 0; i < command->n_options; i++) {
    const char *text = options->values[i].text;
    enum log_format format;

    if (!string_equal(command->options[i].name, "log-format"))
      continue;
    if (!log_format_parse(text, &format))
      usage_error(options, "--log-format \"%.20s\" is unknown: it must be text or json", text);
    log_set_format(format, program);
  }

  *ret_options = options;
}

void options_free(struct options *options) {
  for (size_t i = 0; i < options->command->n_options; i++) {
    free(options->values[i].list);
    free(options->values[i].secret);
  }
  free(options->values);
  free(options->arguments);
  free(options->config_path);
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

char *option_list_join(const struct options *options, const char *name) {
  const char *const *values;
  char *all = NULL;
  size_t n = option_list(options, name, &values);
  for (size_t i = 0; i < n; i++) {
    cleanup_free char *before = all;
    all = before ? xasprintf("%s,%s", before, values[i]) : xstrdup(values[i]);
  }
  return all;
}

/* Exits when JSON cannot hold an option's text: a request without it would mean something else. */
static json_t *text_json(const struct options *options, const char *name, const char *text) {
  json_t *json = json_string(text);
  if (!json)
    usage_error(options, "--%s must be UTF-8", name);
  return json;
}

json_t *option_text_json(const struct options *options, const char *name) {
  const char *text = option_text(options, name);
  return text ? text_json(options, name, text) : NULL;
}

json_t *option_list_json(const struct options *options, const char *name) {
  const struct option_value *value = value_of(options, name, OPTION_LIST);
  json_t *array = value->n_list ? json_array() : NULL;
  for (size_t i = 0; i < value->n_list; i++)
    json_push(array, text_json(options, name, value->list[i]));
  return array;
}

size_t options_arguments(const struct options *options, char *const **ret_arguments) {
  *ret_arguments = options->arguments;
  return options->n_arguments;
}

/* Lists the commands whose names begin with `prefix`. */
static void print_commands(FILE *out, const char *prefix, const struct command_spec *commands,
                           size_t n_commands) {
  size_t width = 0;
  for (size_t i = 0; i < n_commands; i++)
    if (string_starts(commands[i].name, prefix) && strlen(commands[i].name) > width)
      width = strlen(commands[i].name);
  for (size_t i = 0; i < n_commands; i++)
    if (string_starts(commands[i].name, prefix))
      fprintf(out, "  %-*s  %s\n", (int)width, commands[i].name, commands[i].summary);
}

static int table_run(const char *program, const char *summary, const struct command_spec *commands,
                     size_t n_commands, int argc, char **argv);

static bool is_help(const char *argument) {
  return string_equal(argument, "--help") || string_equal(argument, "-h");
}

/* "help COMMAND" as "COMMAND --help". */
static int help_run(const char *program, const char *summary, const struct command_spec *commands,
                    size_t n_commands, int argc, char **argv) {
  cleanup_free char **words = xcalloc((size_t)argc + 2, sizeof *words);
  char help[] = "--help";
  int n = 0;
  words[n++] = argv[0];
  for (int i = 2; i < argc; i++)
    words[n++] = argv[i];
  words[n++] = help;
  return table_run(program, summary, commands, n_commands, n, words);
}

int commands_run(const char *program, const char *summary, const struct command_spec *commands,
                 size_t n_commands, int argc, char **argv) {
  cleanup_free struct command_spec *all = xcalloc(n_commands + COMMAND_DOCUMENTS, sizeof *all);
  memcpy(all, commands, n_commands * sizeof *all);
  memcpy(all + n_commands, command_documents, COMMAND_DOCUMENTS * sizeof *all);
  n_commands += COMMAND_DOCUMENTS;
  command_documents_of(program, summary, all, n_commands);

  bool is_help_of = argc > 1 && string_equal(argv[1], "help") && (argc < 3 || !is_help(argv[2]));
  return (is_help_of ? help_run : table_run)(program, summary, all, n_commands, argc, argv);
}

static void signals_block(void) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  ALWAYS(sigprocmask(SIG_BLOCK, &signals, NULL) == 0);
}

static const char *running; /* the program */

/* Completes stdout, and the exit code where that fails. */
static int end_code(int code) {
  if (code == EXIT_INTERNAL)
    fprintf(stderr, "%s: this should not happen; report it: %s\n", running, WAVETUNE_REPORT_TO);

  /* Otherwise a script would use an incomplete answer when the disk of stdout is full. */
  if (fflush(stdout) == 0 && !ferror(stdout))
    return code;
  fprintf(stderr, "%s: stdout cannot be written: %s\n", running, strerror(errno));
  return code != EXIT_OK ? code : EXIT_FAILED;
}

void command_end(int code) { exit(end_code(code)); }

static int table_run(const char *program, const char *summary, const struct command_spec *commands,
                     size_t n_commands, int argc, char **argv) {
  argc--;
  argv++;
  if (argc == 0 || is_help(argv[0])) {
    FILE *out = argc ? stdout : stderr;
    fprintf(out, "usage: %s COMMAND [OPTIONS] …\n\n%s\n\ncommands:\n", program, summary);
    print_commands(out, "", commands, n_commands);
    fprintf(out,
            "\n\"%s COMMAND --help\" shows the options of a command, \"%s --version\" the "
            "version.\n",
            program, program);
    return argc ? EXIT_OK : EXIT_USAGE;
  }

  if (string_equal(argv[0], "--version")) {
    version_print(program);
    return EXIT_OK;
  }

  /* Two words first, because there may be a command "kernel" and a command "kernel push". */
  cleanup_free char *group = xasprintf("%s ", argv[0]),
                    *pair = xasprintf("%s%s", group, argc > 1 ? argv[1] : "");
  for (int words = 2; words >= 1; words--)
    for (size_t i = 0; i < n_commands; i++) {
      bool is_pair = strchr(commands[i].name, ' ') != NULL; /* needs two arguments */
      if (is_pair != (words == 2) || !string_equal(commands[i].name, words == 2 ? pair : argv[0]))
        continue;

      /* Not only in run(): a signal that comes while options are read would end the process. */
      if (commands[i].awaits_signals)
        signals_block();
      cleanup_options struct options *options = NULL;
      options_parse(program, &commands[i], argc - words, argv + words, &options);
      running = program;
      return end_code(commands[i].run(options));
    }

  cleanup_free const char **names = xcalloc(n_commands, sizeof *names);
  bool is_group = false, asks_help = argc > 1 && is_help(argv[1]);
  for (size_t i = 0; i < n_commands; i++) {
    names[i] = commands[i].name;
    is_group = is_group || string_starts(names[i], group);
  }

  if (is_group && (argc == 1 || asks_help)) {
    FILE *out = asks_help ? stdout : stderr;
    fprintf(out, "usage: %s %s COMMAND [OPTIONS] …\n\ncommands:\n", program, argv[0]);
    print_commands(out, group, commands, n_commands);
    return asks_help ? EXIT_OK : EXIT_USAGE;
  }

  const char *given = argc > 1 && argv[1][0] != '-' ? pair : argv[0],
             *nearest = name_nearest(given, names, n_commands);
  if (!nearest)
    nearest = name_nearest(argv[0], names, n_commands);
  fprintf(stderr, "%s: unknown command \"%.128s\"", program, is_group ? given : argv[0]);
  if (nearest)
    fprintf(stderr, " (did you mean \"%s\"?)", nearest);
  fprintf(stderr, "; see \"%s --help\"\n", program);
  return EXIT_USAGE;
}
