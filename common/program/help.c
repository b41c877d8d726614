/* Prints words in lines. Memory and threads: help.h. */
#include "common/program/help.h"

#include <ctype.h>

#define HELP_COLUMN_MAX 34
#define HELP_WIDTH 110

char *option_variable(const char *name) {
  char *variable = xasprintf("WAVETUNE_%s", name);
  for (char *c = variable; *c; c++)
    *c = *c == '-' ? '_' : (char)toupper((unsigned char)*c);
  return variable;
}

/* The width in columns of UTF-8 text without wide characters. */
static size_t text_columns(const char *text) {
  size_t columns = 0;
  for (; *text; text++)
    columns += ((unsigned char)*text & 0xc0) != 0x80;
  return columns;
}

/* Prints words in lines of HELP_WIDTH that begin at `indent`; the cursor is at `column`. A newline
 * in the text begins a line too. */
static void print_wrapped(const char *text, size_t indent, size_t column) {
  while (*text) {
    size_t length = strcspn(text, " \n");
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
    if (*text == '\n') {
      printf("\n%*s", (int)indent, "");
      column = indent;
      text++;
    }
    text += strspn(text, " ");
  }
  putchar('\n');
}

static char *option_left_column(const struct option_spec *spec) {
  return spec->argument ? xasprintf("--%s %s", spec->name, spec->argument)
                        : xasprintf("--%s", spec->name);
}

char *option_description(const struct option_spec *spec) {
  char *text = NULL;
  size_t size;
  cleanup_free char *variable = option_variable(spec->name);
  FILE *out = open_memstream(&text, &size);
  ALWAYS(out != NULL);
  fputs(spec->help, out);

  const char *joint = " (";
  if (spec->type == OPTION_INTEGER && (spec->min || spec->max)) {
    fprintf(out, "%s%lld to %lld", joint, (long long)spec->min, (long long)spec->max);
    joint = "; ";
  }
  if (spec->type == OPTION_LIST) {
    fprintf(out, "%smay be repeated", joint);
    joint = "; ";
  }
  if (spec->default_text) {
    fprintf(out, "%sdefault %s", joint, spec->default_text);
    joint = "; ";
  }
  if (!spec->flag_only) {
    fprintf(out, "%s%s", joint, variable);
    joint = "; ";
  }
  if (*joint == ';')
    fputc(')', out);

  ALWAYS(fclose(out) == 0);
  return text;
}

static void print_option(const struct option_spec *spec, size_t column) {
  cleanup_free char *left = option_left_column(spec), *text = option_description(spec);
  size_t width = 2 + text_columns(left);

  printf("  %s", left);
  if (width + 2 > column) {
    putchar('\n');
    width = 0;
  }
  printf("%*s", (int)(column - width), "");
  print_wrapped(text, column, column);
}

void help_print(const char *program, const struct command_spec *command) {
  printf("usage: %s %s [OPTIONS]%s%s\n\n", program, command->name, command->arguments[0] ? " " : "",
         command->arguments);
  print_wrapped(command->summary, 0, 0);
  if (command->description) {
    putchar('\n');
    print_wrapped(command->description, 0, 0);
  }

  size_t column = 0;
  for (size_t i = 0; i < command_option_count(command); i++) {
    cleanup_free char *left = option_left_column(command_option(command, i));
    size_t width = 2 + text_columns(left) + 2;
    if (width > column && width <= HELP_COLUMN_MAX)
      column = width;
  }

  printf("\noptions:\n");
  for (size_t i = 0; i < command_option_count(command); i++)
    print_option(command_option(command, i), column);
}
