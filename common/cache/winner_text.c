/* Slices of a winner's line. Pure functions over a release's bytes; any thread. */
#include "common/cache/winner_text.h"

/* The end of the scalar at `at`, which a ',' or ']' follows. */
static const char *scalar_end(const char *at, const char *end) {
  if (at < end && *at == '"') {
    for (at++; *at != '"'; at++)
      at += *at == '\\'; /* and what it escapes */
    return at + 1;
  }
  while (at < end && *at != ',' && *at != ']')
    at++;
  return at;
}

static void scalars_split(const char *at, const char *end, struct slice *slices, size_t n) {
  for (size_t i = 0; i < n; i++) {
    const char *behind = scalar_end(at, end);
    slices[i] = (struct slice){at, (size_t)(behind - at)};
    at = behind + 1;
  }
}

void winner_key_slices(const struct release_winner *winner, struct slice *slices, size_t n) {
  scalars_split(winner->key + 1, winner->key + winner->key_size - 1, slices, n);
}

/* Behind the key there are two indices, then the milliseconds in brackets: release_parse has seen to it. */
void winner_ms_slices(const struct release_winner *winner, struct slice slices[RELEASE_MS_MAX]) {
  const char *begin = strchr(winner->key + winner->key_size, '[') + 1;
  scalars_split(begin, strchr(begin, ']'), slices, winner->n_ms);
}

void slice_add_str(struct text *text, struct slice slice) {
  switch (slice.bytes[0]) {
  case 't':
    text_add(text, "True", 4);
    break;
  case 'f':
    text_add(text, "False", 5);
    break;
  case 'n':
    text_add(text, "None", 4);
    break;
  case '"':
    if (memchr(slice.bytes, '\\', slice.size)) {
      cleanup_json json_t *string = json_loadb(slice.bytes, slice.size, JSON_DECODE_ANY, NULL);
      ALWAYS(string != NULL);
      text_add(text, json_string_value(string), json_string_length(string));
    } else {
      text_add(text, slice.bytes + 1, slice.size - 2);
    }
    break;
  default:
    text_add(text, slice.bytes, slice.size);
    break;
  }
}
