/* Options of the programs: from flags, else from WAVETUNE_* variables, else from a file, else the
 * defaults.
 *
 * Each command has one table of options, from which come parsing, --help and the names of variables
 * and members of the file. Every command has --help, --version and --config FILE (default:
 * $WAVETUNE_CONFIG, else ~/.config/wavetune/config.json, else /etc/wavetune/config.json, if it
 * exists): a JSON object {"url": "…", "token": "…"} whose members are the options' names with
 * "_". An unknown flag is an error with the nearest name. An empty variable counts as not
 * set; a flag's variable is true, false, 1 or 0; a list's variable is one value, its member a
 * string or an array of strings. The three programs read the same file: a member that only other
 * commands have is ignored; one that no command has is an error with the nearest name. The values
 * of text options (tokens) are never printed: not in --help and not in an error.
 *
 * Memory: values are borrowed from argv, the environment or the options' own store, until
 * options_free. Threads: one, at start. */
#ifndef WAVETUNE_COMMON_PROGRAM_OPTIONS_H
#define WAVETUNE_COMMON_PROGRAM_OPTIONS_H

#include "common/base/json.h"
#include "common/program/error_codes.h"

enum option_type {
  OPTION_FLAG,
  OPTION_TEXT,
  OPTION_INTEGER,
  OPTION_LIST /* may be given several times */
};

struct option_spec {
  const char *name; /* "lease-seconds": --lease-seconds, WAVETUNE_LEASE_SECONDS, "lease_seconds" */
  enum option_type type;
  const char *argument;     /* what --help shows for the value: "SECONDS"; NULL for a flag */
  const char *default_text; /* NULL: none */
  int64_t min, max;         /* of an integer; both 0: any */
  const char *help;         /* one line */
  bool flag_only;           /* has neither a variable nor a member of the file */
  bool is_secret; /* a text that is overwritten in argv and in the environment after it was read */
  char letter;    /* 'o': -o VALUE is the same; 0: none */
};

/* The option of every command that logs; options_parse applies it. */
/* clang-format off */
#define OPTION_LOG_FORMAT \
  {.name = "log-format", .type = OPTION_TEXT, .argument = "FORMAT", .default_text = "text", \
   .help = "how the log on stderr is written: text, or json for one object a line"}
/* clang-format on */

/* Removes a variable from the environment and returns a copy of its value, the caller's; NULL when
 * it is not set. Overwrites its bytes, which unsetenv leaves where other processes of the user can
 * read them in /proc/PID/environ. To be called before threads start. */
must_check char *environment_take(const char *name);

struct options;

struct command_spec {
  const char *name;        /* "kernel push" */
  const char *arguments;   /* "DIR[:VERSION]…"; "": a positional argument is an error */
  const char *summary;     /* one line, for the list of commands */
  const char *description; /* for --help, which wraps it; each newline begins a paragraph; may be
                              NULL */
  const struct option_spec *options;
  size_t n_options;
  int (*run)(struct options *options); /* returns the exit code */
  bool awaits_signals; /* blocks SIGTERM and SIGINT from the start, for run() to wait for them */
};

/* Parses `argv`, which begins after the command's words: `--name value` and `--name=value`, before,
 * between and after positional arguments; all after `--` is positional. --help and --version print
 * and exit with 0; an error prints one sentence, which also states how to get help, and exits with
 * EXIT_USAGE. */
void options_parse(const char *program, const struct command_spec *command, int argc, char **argv,
                   struct options **ret_options);
void options_free(struct options *options);
DEFINE_CLEANUP(struct options *, cleanup_options_free, options_free)
#define cleanup_options cleanup_by(cleanup_options_free)

const char *option_text(const struct options *options,
                        const char *name); /* NULL: not given, no default */
int64_t option_integer(const struct options *options,
                       const char *name); /* aborts when it has no value */
bool option_flag(const struct options *options, const char *name);
size_t option_list(const struct options *options, const char *name, const char *const **ret_values);
/* The values of a list with commas between them, the caller's; NULL: not given. */
must_check char *option_list_join(const struct options *options, const char *name);
/* As JSON, a new reference; NULL: not given. They print an error and exit when it is not UTF-8. */
json_t *option_text_json(const struct options *options, const char *name);
json_t *option_list_json(const struct options *options, const char *name);
size_t options_arguments(const struct options *options,
                         char *const **ret_arguments); /* positional */

/* The options of a command, then those of every command; and what --help says of one, with its
 * limits, its default and its variable (the caller's). For command_documents.c. */
size_t command_option_count(const struct command_spec *command);
const struct option_spec *command_option(const struct command_spec *command, size_t i);
must_check char *option_description(const struct option_spec *spec);

/* Ends the program as commands_run does when a command returns `code`. */
no_return void command_end(int code);

/* The main() of the three programs: finds the command (one or two words) in the table, runs it and
 * returns its exit code; prints the list of commands for --help or without a command. Adds the
 * commands help, completion and man (command_documents.h). */
int commands_run(const char *program, const char *summary, const struct command_spec *commands,
                 size_t n_commands, int argc, char **argv);

#endif
