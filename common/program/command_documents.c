/* Completion for bash, zsh and fish, and man pages, from the tables of commands and options.
 *
 * A script completes commands, flags, the words of an argument like "cold|warm", and files where an
 * argument is a FILE, FOLDER or DIR. Memory and threads: command_documents.h. */
#include "common/program/command_documents.h"

#include <ctype.h>
#include <errno.h>

static struct {
  const char *program, *summary;
  const struct command_spec *commands;
  size_t n;
} table;

void command_documents_of(const char *program, const char *summary,
                          const struct command_spec *commands, size_t n) {
  table.program = program;
  table.summary = summary;
  table.commands = commands;
  table.n = n;
}

/* The first word of a command's name, the caller's, and the second one, or NULL. */
static char *first_word(const struct command_spec *command) {
  return xstrndup(command->name, strcspn(command->name, " "));
}
static const char *second_word(const struct command_spec *command) {
  const char *space = strchr(command->name, ' ');
  return space ? space + 1 : NULL;
}

/* A copy of a text with `to` for each `from`; the caller's. */
static char *replaced(const char *text, char from, char to) {
  char *copy = xstrdup(text);
  for (char *c = copy; (c = strchr(c, from));)
    *c = to;
  return copy;
}

/* Whether no earlier command has this first word. */
static bool is_first_of_word(size_t index, const char *word) {
  size_t length = strlen(word);
  for (size_t i = 0; i < index; i++)
    if (strncmp(table.commands[i].name, word, length) == 0 &&
        strchr(" ", table.commands[i].name[length]))
      return false;
  return true;
}

enum values { VALUES_NONE, VALUES_FILES, VALUES_WORDS, VALUES_OTHER };

/* What an option's argument completes to. */
static enum values values_of(const struct option_spec *spec) {
  const char *argument = spec->argument;
  if (!argument)
    return VALUES_NONE;
  if (strstr(argument, "FILE") || strstr(argument, "FOLDER") || strstr(argument, "DIR"))
    return VALUES_FILES;
  bool is_words = strchr(argument, '|') != NULL;
  for (const char *c = argument; *c && is_words; c++)
    is_words = islower((unsigned char)*c) || *c == '|' || *c == '-';
  return is_words ? VALUES_WORDS : VALUES_OTHER;
}

/* Text in single quotes of a POSIX shell and of zsh. */
static void print_quoted(const char *text) {
  putchar('\'');
  for (; *text; text++)
    if (*text == '\'')
      fputs("'\\''", stdout);
    else
      putchar(*text == '\n' ? ' ' : *text);
  putchar('\'');
}

/* bash */

static void bash_flags(const struct command_spec *command) {
  bool is_first = true;
  fputs("    flags='", stdout);
  for (size_t i = 0; i < command_option_count(command); i++)
    printf("%s--%s", i ? " " : "", command_option(command, i)->name);
  puts("'");
  for (size_t i = 0; i < command_option_count(command); i++) {
    const struct option_spec *spec = command_option(command, i);
    enum values values = values_of(spec);
    if (values == VALUES_NONE)
      continue;
    if (is_first)
      puts("    case \"$previous\" in");
    is_first = false;
    printf("    --%s) ", spec->name);
    if (values == VALUES_FILES) {
      puts("files=1 ;;");
    } else if (values == VALUES_WORDS) {
      cleanup_free char *words = replaced(spec->argument, '|', ' ');
      printf("values='%s' ;;\n", words);
    } else {
      puts("return ;;");
    }
  }
  if (!is_first)
    puts("    esac");
}

/* A case for each command whose name has two words, or one. */
static void bash_cases(bool has_second) {
  for (size_t i = 0; i < table.n; i++)
    if (has_second == (second_word(&table.commands[i]) != NULL)) {
      printf("  '%s')\n", table.commands[i].name);
      bash_flags(&table.commands[i]);
      puts("    ;;");
    }
}

static void bash_print(void) {
  cleanup_free char *function = replaced(table.program, '-', '_');
  printf("# bash completion of %s: eval \"$(%s completion bash)\"\n_%s() {\n", table.program,
         table.program, function);
  puts(
      "  local word=\"${COMP_WORDS[COMP_CWORD]}\" previous=\"${COMP_WORDS[COMP_CWORD-1]}\"\n"
      "  local first=\"${COMP_WORDS[1]}\" second=\"${COMP_WORDS[2]}\" flags='' values='' files=''\n"
      "  COMPREPLY=()");
  fputs("  if [ \"$COMP_CWORD\" -eq 1 ]; then\n    values='", stdout);
  for (size_t i = 0; i < table.n; i++) {
    cleanup_free char *word = first_word(&table.commands[i]);
    if (is_first_of_word(i, word))
      printf("%s%s", i ? " " : "", word);
  }
  puts(" --help --version'\n    COMPREPLY=($(compgen -W \"$values\" -- \"$word\"))\n    return\n"
       "  fi");

  /* The second words of a group. */
  puts("  if [ \"$COMP_CWORD\" -eq 2 ]; then\n    case \"$first\" in");
  for (size_t i = 0; i < table.n; i++) {
    cleanup_free char *word = first_word(&table.commands[i]);
    bool is_any = false;
    if (!is_first_of_word(i, word))
      continue;
    for (size_t j = 0; j < table.n; j++) {
      cleanup_free char *other = first_word(&table.commands[j]);
      const char *second = second_word(&table.commands[j]);
      if (!second || !string_equal(word, other))
        continue;
      if (!is_any)
        printf("    %s) values='", word);
      printf("%s%s", is_any ? " " : "", second);
      is_any = true;
    }
    if (is_any)
      puts("' ;;");
  }
  puts("    esac\n  fi");

  puts("  case \"$first $second\" in");
  bash_cases(true);
  puts("  *)\n  case \"$first\" in");
  bash_cases(false);
  puts("  esac\n    ;;\n  esac");
  printf("  if [ -n \"$files\" ]; then\n    COMPREPLY=($(compgen -f -- \"$word\"))\n"
         "  elif [ -n \"$values\" ] && [ \"${word#-}\" = \"$word\" ]; then\n"
         "    COMPREPLY=($(compgen -W \"$values\" -- \"$word\"))\n"
         "  elif [ \"${word#-}\" != \"$word\" ]; then\n"
         "    COMPREPLY=($(compgen -W \"$flags\" -- \"$word\"))\n"
         "  else\n    COMPREPLY=($(compgen -f -- \"$word\"))\n  fi\n}\n"
         "complete -o filenames -F _%s %s\n",
         function, table.program);
}

/* zsh */

/* A description between brackets of _arguments, or after the colon of _describe. */
static char *zsh_text(const char *text) {
  char *out = xcalloc(2 * strlen(text) + 1, 1), *to = out;
  for (; *text; text++) {
    if (strchr("[]:\\", *text))
      *to++ = '\\';
    *to++ = *text;
  }
  return out;
}

static void zsh_arguments(const struct command_spec *command) {
  puts("      _arguments -s \\");
  for (size_t i = 0; i < command_option_count(command); i++) {
    const struct option_spec *spec = command_option(command, i);
    enum values values = values_of(spec);
    cleanup_free char *help = zsh_text(spec->help), *argument = NULL, *line = NULL;
    if (values == VALUES_WORDS) {
      cleanup_free char *words = replaced(spec->argument, '|', ' ');
      argument = xasprintf(":value:(%s)", words);
    } else {
      argument = xstrdup(values == VALUES_NONE    ? ""
                         : values == VALUES_FILES ? ":file:_files"
                                                  : ":value: ");
    }
    line =
        xasprintf("%s--%s[%s]%s", spec->type == OPTION_LIST ? "*" : "", spec->name, help, argument);
    fputs("        ", stdout);
    print_quoted(line);
    puts(" \\");
  }
  puts("        '*:argument:_files'");
}

/* A case for each command whose name has two words, or one. */
static void zsh_cases(bool has_second) {
  for (size_t i = 0; i < table.n; i++)
    if (has_second == (second_word(&table.commands[i]) != NULL)) {
      printf("    '%s')\n      shift %swords; (( CURRENT -= %d ))\n", table.commands[i].name,
             has_second ? "2 " : "", has_second ? 2 : 1);
      zsh_arguments(&table.commands[i]);
      puts("      return ;;");
    }
}

static void zsh_print(void) {
  printf("#compdef %s\n# zsh completion of %s: eval \"$(%s completion zsh)\"\n_%s() {\n",
         table.program, table.program, table.program, table.program);
  puts("  local first=\"${words[2]}\" second=\"${words[3]}\"\n  local -a commands\n"
       "  if (( CURRENT == 2 )); then\n    commands=(");
  for (size_t i = 0; i < table.n; i++) {
    cleanup_free char *word = first_word(&table.commands[i]);
    cleanup_free char *line = NULL, *text = zsh_text(table.commands[i].summary);
    if (!is_first_of_word(i, word))
      continue;
    line = second_word(&table.commands[i]) ? xstrdup(word) : xasprintf("%s:%s", word, text);
    fputs("      ", stdout);
    print_quoted(line);
    putchar('\n');
  }
  puts("    )\n    _describe command commands\n    return\n  fi\n"
       "  if (( CURRENT == 3 )) && [[ \"${words[3]}\" != -* ]]; then\n    commands=()\n"
       "    case \"$first\" in");
  for (size_t i = 0; i < table.n; i++) {
    const char *second = second_word(&table.commands[i]);
    cleanup_free char *word = first_word(&table.commands[i]), *line = NULL,
                      *text = zsh_text(table.commands[i].summary);
    if (!second)
      continue;
    line = xasprintf("%s:%s", second, text);
    printf("      %s) commands+=(", word);
    print_quoted(line);
    puts(") ;|");
  }
  puts("    esac\n    (( ${#commands} )) && _describe command commands\n  fi\n"
       "  case \"$first $second\" in");
  zsh_cases(true);
  puts("  esac\n  case \"$first\" in");
  zsh_cases(false);
  /* As a file of a folder in $fpath the script is the body of the function, which is being called.
   */
  printf(
      "  esac\n}\nif [[ \"${funcstack[1]}\" == _%s ]]; then\n  _%s \"$@\"\nelse\n  compdef _%s %s\n"
      "fi\n",
      table.program, table.program, table.program, table.program);
}

/* fish */

static void fish_quoted(const char *text) {
  putchar('\'');
  for (; *text; text++) {
    if (*text == '\'' || *text == '\\')
      putchar('\\');
    putchar(*text == '\n' ? ' ' : *text);
  }
  putchar('\'');
}

static void fish_print(void) {
  printf("# fish completion of %s: %s completion fish | source\n", table.program, table.program);
  for (size_t i = 0; i < table.n; i++) {
    const struct command_spec *command = &table.commands[i];
    cleanup_free char *word = first_word(command), *condition = NULL;
    const char *second = second_word(command);
    if (is_first_of_word(i, word)) {
      printf("complete -c %s -f -n __fish_use_subcommand -a %s", table.program, word);
      if (!second) {
        fputs(" -d ", stdout);
        fish_quoted(command->summary);
      }
      putchar('\n');
    }
    if (second) {
      printf("complete -c %s -f -n '__fish_seen_subcommand_from %s' -a %s -d ", table.program, word,
             second);
      fish_quoted(command->summary);
      putchar('\n');
    }
    condition = second ? xasprintf("__fish_seen_subcommand_from %s; and "
                                   "__fish_seen_subcommand_from %s",
                                   word, second)
                       : xasprintf("__fish_seen_subcommand_from %s", word);
    for (size_t j = 0; j < command_option_count(command); j++) {
      const struct option_spec *spec = command_option(command, j);
      enum values values = values_of(spec);
      printf("complete -c %s -n '%s' -l %s", table.program, condition, spec->name);
      if (values == VALUES_FILES)
        fputs(" -r -F", stdout);
      else if (values == VALUES_OTHER)
        fputs(" -x", stdout);
      if (values == VALUES_WORDS) {
        cleanup_free char *words = replaced(spec->argument, '|', ' ');
        printf(" -x -a '%s'", words);
      }
      fputs(" -d ", stdout);
      fish_quoted(spec->help);
      putchar('\n');
    }
  }
}

static int command_completion(struct options *options) {
  static const struct {
    const char *name;
    void (*print)(void);
  } shells[] = {{"bash", bash_print}, {"zsh", zsh_print}, {"fish", fish_print}};
  char *const *arguments;
  size_t n = options_arguments(options, &arguments);
  for (size_t i = 0; n == 1 && i < ARRAY_LENGTH(shells); i++)
    if (string_equal(shells[i].name, arguments[0])) {
      shells[i].print();
      return EXIT_OK;
    }
  fprintf(stderr, "%s: name one shell: bash, zsh or fish\n", table.program);
  return EXIT_USAGE;
}

/* man */

/* Text of a page: a line that begins with a dot or a quote would be a request. */
static void man_text(FILE *out, const char *text) {
  bool is_start = true;
  for (; *text; text++) {
    if (is_start && (*text == '.' || *text == '\''))
      fputs("\\&", out);
    if (*text == '\\')
      fputs("\\e", out);
    else if (*text == '-')
      fputs("\\-", out);
    else if (*text == '\n')
      fputs("\n.PP\n", out);
    else
      fputc(*text, out);
    is_start = *text == '\n';
  }
}

/* An argument of a request, in quotes. */
static void man_quoted(FILE *out, const char *text) {
  fputc('"', out);
  for (; *text; text++)
    if (*text == '"')
      fputs("\\(dq", out);
    else if (*text == '\\')
      fputs("\\e", out);
    else if (*text == '-')
      fputs("\\-", out);
    else
      fputc(*text, out);
  fputc('"', out);
}

static void man_head(FILE *out, const char *name, const char *summary) {
  fputs(".TH ", out);
  for (const char *c = name; *c; c++)
    fputc(toupper((unsigned char)*c), out);
  fprintf(out, " 1 \"\" \"%s %s\"\n.SH NAME\n", table.program, WAVETUNE_VERSION);
  man_text(out, name);
  fputs(" \\- ", out);
  man_text(out, summary);
  fputc('\n', out);
}

static void man_options(FILE *out, const struct command_spec *command) {
  for (size_t i = 0; i < command_option_count(command); i++) {
    const struct option_spec *spec = command_option(command, i);
    cleanup_free char *text = option_description(spec),
                      *flag = xasprintf("--%s%s", spec->name, spec->argument ? " " : "");
    fputs(spec->argument ? ".TP\n.BI " : ".TP\n.B ", out);
    man_quoted(out, flag);
    if (spec->argument) {
      fputc(' ', out);
      man_quoted(out, spec->argument);
    }
    fputc('\n', out);
    man_text(out, text);
    fputc('\n', out);
  }
}

static void man_synopsis(FILE *out, const struct command_spec *command) {
  cleanup_free char *name = xasprintf("%s %s", table.program, command->name);
  fputs(".SH SYNOPSIS\n.B ", out);
  man_quoted(out, name);
  fputs("\n[OPTIONS] ", out);
  man_text(out, command->arguments);
  fputc('\n', out);
}

/* "wavetune-kernel-push"; of a NULL command the program's. The caller's. */
static char *page_name(const struct command_spec *command) {
  cleanup_free char *name =
      command ? xasprintf("%s-%s", table.program, command->name) : xstrdup(table.program);
  return replaced(name, ' ', '-');
}

static void man_command(FILE *out, const struct command_spec *command) {
  cleanup_free char *name = page_name(command);
  man_head(out, name, command->summary);
  man_synopsis(out, command);
  if (command->description) {
    fputs(".SH DESCRIPTION\n", out);
    man_text(out, command->description);
    fputc('\n', out);
  }
  fputs(".SH OPTIONS\n", out);
  man_options(out, command);
  fputs(".SH SEE ALSO\n.BR ", out);
  man_quoted(out, table.program);
  fputs(" (1)\n", out);
}

static void man_program(FILE *out) {
  man_head(out, table.program, table.summary);
  fputs(".SH SYNOPSIS\n.B ", out);
  man_quoted(out, table.program);
  fputs("\nCOMMAND [OPTIONS]\n.SH COMMANDS\n", out);
  for (size_t i = 0; i < table.n; i++) {
    const struct command_spec *command = &table.commands[i];
    cleanup_free char *page = page_name(command);
    fputs(".TP\n.B ", out);
    man_quoted(out, command->name);
    fputc('\n', out);
    man_text(out, command->summary);
    fputs("; see\n.BR ", out);
    man_quoted(out, page);
    fputs(" (1)\n", out);
  }
}

/* Writes a page to FOLDER/NAME.1; a NULL command: the program's. */
static bool man_write(const char *folder, const struct command_spec *command) {
  cleanup_free char *name = page_name(command), *path = xasprintf("%s/%s.1", folder, name);
  FILE *out = fopen(path, "we");
  bool ok = out != NULL;
  if (ok && command)
    man_command(out, command);
  else if (ok)
    man_program(out);
  ok = ok && !ferror(out);
  if (out && fclose(out) != 0)
    ok = false;
  if (!ok)
    fprintf(stderr, "%s: %s cannot be written: %s\n", table.program, path, strerror(errno));
  return ok;
}

static int command_man(struct options *options) {
  const char *folder = option_text(options, "to");
  char *const *words;
  size_t n = options_arguments(options, &words);
  if (folder) {
    bool ok = man_write(folder, NULL);
    for (size_t i = 0; ok && i < table.n; i++)
      ok = man_write(folder, &table.commands[i]);
    return ok ? EXIT_OK : EXIT_FAILED;
  }
  if (n == 0) {
    man_program(stdout);
    return EXIT_OK;
  }

  cleanup_free char *name = n > 1 ? xasprintf("%s %s", words[0], words[1]) : xstrdup(words[0]);
  for (size_t i = 0; i < table.n; i++)
    if (string_equal(table.commands[i].name, name)) {
      man_command(stdout, &table.commands[i]);
      return EXIT_OK;
    }
  fprintf(stderr, "%s: there is no command \"%.80s\"; see \"%s --help\"\n", table.program, name,
          table.program);
  return EXIT_USAGE;
}

/* commands_run answers it before: only its own --help gets here. */
static int command_help(struct options *options) {
  (void)options;
  return EXIT_USAGE;
}

static const struct option_spec man_specs[] = {
    {.name = "to",
     .type = OPTION_TEXT,
     .argument = "FOLDER",
     .flag_only = true,
     .help = "write the pages of the program and of all commands into this folder instead"},
};

const struct command_spec command_documents[COMMAND_DOCUMENTS] = {
    {.name = "help",
     .arguments = "[COMMAND]",
     .summary = "show the commands, or the options of a command",
     .run = command_help},
    {.name = "completion",
     .arguments = "bash|zsh|fish",
     .summary = "print a script that completes commands and options in a shell",
     .description = "For bash and zsh: eval \"$(… completion bash)\" in ~/.bashrc or ~/.zshrc; for "
                    "fish: … completion fish | source.",
     .run = command_completion},
    {.name = "man",
     .arguments = "[COMMAND]",
     .summary = "print the manual page of the program or of a command",
     .description = "man -l <(… man COMMAND) shows it. With --to, man -M finds the pages if the "
                    "folder is a man1.",
     .options = man_specs,
     .n_options = ARRAY_LENGTH(man_specs),
     .run = command_man},
};
