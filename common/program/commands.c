/* The table of commands that main() of every program hands its arguments to. */
#include <errno.h>

#include "common/base/names.h"
#include "common/program/options.h"

/* A program has fewer; more would be a slip in its table. */
#define COMMANDS_MAX 128

/* How many words of argv name the command: 0, 1 or 2. */
static int words_matched(const struct command_spec *command, int argc, char **argv) {
  const char *space = strchr(command->name, ' ');
  if (!space)
    return argc >= 1 && string_equal(argv[0], command->name);
  size_t length = (size_t)(space - command->name);
  bool is_same = argc >= 2 && strlen(argv[0]) == length &&
                 strncmp(argv[0], command->name, length) == 0 && string_equal(argv[1], space + 1);
  return is_same ? 2 : 0;
}

/* Lists the commands, or those whose first word is `group`. Returns how many there are. */
static size_t print_commands(FILE *out, const char *group, const struct command_spec *commands,
                             size_t n_commands) {
  size_t width = 0, listed = 0;
  cleanup_free char *prefix = group ? xasprintf("%s ", group) : xstrdup("");
  for (size_t i = 0; i < n_commands; i++) {
    if (string_starts(commands[i].name, prefix) && strlen(commands[i].name) > width)
      width = strlen(commands[i].name);
  }
  for (size_t i = 0; i < n_commands; i++) {
    if (string_starts(commands[i].name, prefix)) {
      fprintf(out, "  %-*s  %s\n", (int)width, commands[i].name, commands[i].summary);
      listed++;
    }
  }
  return listed;
}

static void print_program(FILE *out, const char *program, const char *summary,
                          const struct command_spec *commands, size_t n_commands) {
  fprintf(out, "usage: %s COMMAND [OPTIONS] …\n\n%s\n\ncommands:\n", program, summary);
  print_commands(out, NULL, commands, n_commands);
  fprintf(out,
          "\n\"%s COMMAND --help\" shows the options of a command, \"%s --version\" the version.\n",
          program, program);
}

static bool group_exists(const char *group, const struct command_spec *commands,
                         size_t n_commands) {
  size_t length = strlen(group);
  for (size_t i = 0; i < n_commands; i++) {
    if (strncmp(commands[i].name, group, length) == 0 && commands[i].name[length] == ' ')
      return true;
  }
  return false;
}

static int unknown_command(const char *program, const struct command_spec *commands,
                           size_t n_commands, int argc, char **argv) {
  ALWAYS(n_commands <= COMMANDS_MAX);
  const char *names[COMMANDS_MAX];
  for (size_t i = 0; i < n_commands; i++)
    names[i] = commands[i].name;
  bool is_pair = argc > 1 && argv[1][0] != '-';
  cleanup_free char *pair = is_pair ? xasprintf("%.64s %.64s", argv[0], argv[1]) : xstrdup(argv[0]);
  const char *nearest = name_nearest(pair, names, n_commands);
  if (!nearest)
    nearest = name_nearest(argv[0], names, n_commands);
  bool is_group = group_exists(argv[0], commands, n_commands);
  fprintf(stderr, "%s: unknown command \"%.128s\"", program, is_group ? pair : argv[0]);
  if (nearest)
    fprintf(stderr, " (did you mean \"%s\"?)", nearest);
  fprintf(stderr, "; see \"%s --help\"\n", program);
  return EXIT_USAGE;
}

/* A script must not take half an answer for the whole one: a full disk behind stdout is a
 * failure. */
static int output_checked(const char *program, int code) {
  bool is_written = fflush(stdout) == 0 && !ferror(stdout);
  if (is_written)
    return code;
  fprintf(stderr, "%s: stdout cannot be written: %s\n", program, strerror(errno));
  return code != EXIT_OK ? code : EXIT_FAILED;
}

int commands_run(const char *program, const char *summary, const struct command_spec *commands,
                 size_t n_commands, int argc, char **argv) {
  argc--;
  argv++;
  if (argc == 0) {
    print_program(stderr, program, summary, commands, n_commands);
    return EXIT_USAGE;
  }
  if (string_equal(argv[0], "--help") || string_equal(argv[0], "-h")) {
    print_program(stdout, program, summary, commands, n_commands);
    return EXIT_OK;
  }
  if (string_equal(argv[0], "--version")) {
    printf("%s %s\n", program, WAVETUNE_VERSION);
    return EXIT_OK;
  }
  /* Two words first: "kernel" may be a command beside "kernel push". */
  for (int words = 2; words >= 1; words--) {
    for (size_t i = 0; i < n_commands; i++) {
      if (words_matched(&commands[i], argc, argv) == words) {
        cleanup_options struct options *options = NULL;
        options_parse(program, &commands[i], argc - words, argv + words, &options);
        return output_checked(program, commands[i].run(options));
      }
    }
  }
  bool asks_help = argc > 1 && (string_equal(argv[1], "--help") || string_equal(argv[1], "-h"));
  if (group_exists(argv[0], commands, n_commands) && (argc == 1 || asks_help)) {
    FILE *out = asks_help ? stdout : stderr;
    fprintf(out, "usage: %s %s COMMAND [OPTIONS] …\n\ncommands:\n", program, argv[0]);
    print_commands(out, argv[0], commands, n_commands);
    return asks_help ? EXIT_OK : EXIT_USAGE;
  }
  return unknown_command(program, commands, n_commands, argc, argv);
}
