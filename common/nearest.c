/* Optimal string alignment distance over three rows. */
#include "common/nearest.h"

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

static size_t distance(const char *a, size_t a_length, const char *b, size_t b_length) {
  size_t rows[3][NEAREST_MAX + 1];
  size_t *before_last = rows[0], *last = rows[1], *current = rows[2];
  for (size_t j = 0; j <= b_length; j++)
    last[j] = j;
  for (size_t i = 1; i <= a_length; i++) {
    current[0] = i;
    for (size_t j = 1; j <= b_length; j++) {
      size_t replaced = last[j - 1] + (a[i - 1] != b[j - 1]);
      current[j] = least(replaced, 1 + least(last[j], current[j - 1]));
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        current[j] = least(current[j], before_last[j - 2] + 1);
    }
    size_t *recycled = before_last;
    before_last = last;
    last = current;
    current = recycled;
  }
  return last[b_length];
}

const char *nearest_name(const char *text, const char *const *names, size_t n_names) {
  size_t length = strlen(text);
  if (length > NEAREST_MAX)
    return NULL;
  const char *best = NULL;
  size_t best_distance = SIZE_MAX;
  for (size_t i = 0; i < n_names; i++) {
    size_t name_length = strlen(names[i]);
    if (name_length > NEAREST_MAX)
      continue;
    size_t d = distance(text, length, names[i], name_length);
    if (d <= 1 + name_length / 3 && d < name_length && d < best_distance) {
      best = names[i];
      best_distance = d;
    }
  }
  return best;
}
