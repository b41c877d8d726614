/* Sets of texts, and slices of a winner's line. Memory and threads: cache_text.h. */
#include "common/cache/cache_text.h"

static struct piece *piece_find(const struct text_set *set, const char *text, uint64_t hash,
                                const char *bytes, size_t size) {
  for (size_t i = hash;; i++) {
    struct piece *piece = &set->pieces[i & (set->capacity - 1)];
    if (!piece->size || (piece->hash == hash && piece->size == size &&
                         memcmp(text + piece->offset, bytes, size) == 0))
      return piece;
  }
}

static void text_set_grow(struct text_set *set) {
  struct text_set larger = {.n = set->n, .capacity = set->capacity ? 2 * set->capacity : 64};
  larger.pieces = xcalloc(larger.capacity, sizeof *larger.pieces);
  for (size_t i = 0; i < set->capacity; i++) {
    if (set->pieces[i]
            .size) /* none is equal to another: the free place is found without looking at texts */
      *piece_find(&larger, NULL, set->pieces[i].hash, NULL, 0) = set->pieces[i];
  }
  free(set->pieces);
  *set = larger;
}

bool text_set_add(struct text_set *set, const struct text *text, const char *bytes, size_t size,
                  size_t offset) {
  if (2 * set->n >= set->capacity)
    text_set_grow(set);
  uint64_t hash = text_hash(bytes, size);
  struct piece *piece = piece_find(set, text->bytes, hash, bytes, size);
  if (piece->size)
    return false;
  *piece = (struct piece){hash, offset, size};
  set->n++;
  return true;
}

void text_set_clear(struct text_set *set) {
  if (set->capacity)
    memset(set->pieces, 0, set->capacity * sizeof *set->pieces);
  set->n = 0;
}

void text_set_release(struct text_set *set) {
  free(set->pieces);
  *set = (struct text_set){0};
}

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

/* Behind the key there are two indices, then the milliseconds in brackets: release_parse has seen
 * to it. */
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
