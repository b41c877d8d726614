/* Names in messages. No state, no allocation; any thread. */
#include "common/base/names.h"

#include <ctype.h>

char *name_cut(const char *name, size_t length, char text[NAME_TEXT_SIZE]) {
  const size_t fits = NAME_TEXT_SIZE - 4;
  bool cut = length > fits;
  if (cut) {
    length = fits;
    while (length > 0 && ((unsigned char)name[length] & 0xc0) == 0x80)
      length--;
  }
  snprintf(text, NAME_TEXT_SIZE, "%.*s%s", (int)length, name, cut ? "..." : "");
  return text;
}

/* Levenshtein's distance where a whole edit costs 2 and a change of case 1. */
static unsigned distance(const char *a, size_t n_a, const char *b, size_t n_b) {
  unsigned row[NAME_TEXT_SIZE];
  for (size_t j = 0; j <= n_b; j++)
    row[j] = (unsigned)(2 * j);
  for (size_t i = 1; i <= n_a; i++) {
    unsigned diagonal = row[0];
    row[0] = (unsigned)(2 * i);
    for (size_t j = 1; j <= n_b; j++) {
      unsigned char x = (unsigned char)a[i - 1], y = (unsigned char)b[j - 1];
      unsigned replaced = diagonal + (x == y ? 0 : tolower(x) == tolower(y) ? 1 : 2);
      diagonal = row[j];
      unsigned inserted = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 2;
      row[j] = replaced < inserted ? replaced : inserted;
    }
  }
  return row[n_b];
}

const char *name_nearest(const char *name, const char *const *names, size_t n_names) {
  size_t length = strlen(name);
  if (length >= NAME_TEXT_SIZE)
    return NULL;
  const char *nearest = NULL;
  /* Half a name of case changes, or a third of it of edits, is still a slip; more is another
   * word. */
  unsigned limit = (unsigned)(2 + 2 * length / 3);
  for (size_t i = 0; i < n_names; i++) {
    size_t n = strlen(names[i]);
    if (n >= NAME_TEXT_SIZE)
      continue;
    unsigned d = distance(name, length, names[i], n);
    if (d <= limit && d < 2 * length) {
      nearest = names[i];
      limit = d ? d - 1 : 0;
      if (d == 0)
        break;
    }
  }
  return nearest;
}

void error_suggest(struct error *error, const char *name, const char *const *names,
                   size_t n_names) {
  char *message = error->message;
  size_t size = sizeof error->message, used = strlen(message);
  char text[NAME_TEXT_SIZE];
  const char *nearest = name_nearest(name, names, n_names);
  if (nearest) {
    snprintf(message + used, size - used, "; did you mean \"%s\"?", nearest);
    return;
  }
  const size_t listed_max = 6;
  for (size_t i = 0; i < n_names && i <= listed_max; i++) {
    used = strlen(message);
    if (i == listed_max)
      snprintf(message + used, size - used, ", …");
    else
      snprintf(message + used, size - used, "%s%s",
               i ? ", " : "; known: ", name_cut(names[i], strlen(names[i]), text));
  }
}

char *name_plain(const char *text, size_t length) {
  char *copy = xstrndup(text, length);
  for (char *c = copy; *c; c++) {
    if (*c < ' ' || *c > '~')
      *c = '?';
  }
  return copy;
}
