/* Texts of a cache with tens of thousands of entries, for which a container start waits: a text
 * that grows, a set of pieces of one, and what a winner's line in a release says as slices of the
 * release's canonical bytes. Renderers copy those where numbers would have to be printed again:
 * canonical numbers are written as Python's repr writes them.
 *
 * Memory: who holds a buffer frees `bytes`, or hands it on after text_finish; sets borrow their
 * text; slices are borrowed from the release. Threads: one to a buffer or set; slices are pure
 * functions. */
#ifndef WAVETUNE_COMMON_CACHE_CACHE_TEXT_H
#define WAVETUNE_COMMON_CACHE_CACHE_TEXT_H

#include "common/cache/release.h"

struct text {
  char *bytes; /* not NUL-terminated before text_finish */
  size_t size, capacity;
};

static inline void text_add(struct text *text, const char *bytes, size_t size) {
  if (text->capacity - text->size <= size) { /* one byte stays for the NUL */
    text->capacity = 2 * text->capacity + size + 256;
    text->bytes = xreallocarray(text->bytes, text->capacity, 1);
  }
  memcpy(text->bytes + text->size, bytes, size);
  text->size += size;
}

static inline void text_add_string(struct text *text, const char *string) {
  text_add(text, string, strlen(string));
}

/* NUL-terminates; the bytes are the caller's, and the buffer is empty again. */
must_check static inline char *text_finish(struct text *text, size_t *ret_size) {
  text_add(text, "", 1);
  char *bytes = text->bytes;
  *ret_size = text->size - 1;
  *text = (struct text){0};
  return bytes;
}

static inline void text_release(struct text *text) {
  free(text->bytes);
  *text = (struct text){0};
}
#define cleanup_text __attribute__((cleanup(text_release)))

/* For tables of texts. FNV-1a. */
static inline uint64_t text_hash(const char *bytes, size_t size) {
  uint64_t hash = UINT64_C(0xcbf29ce484222325);
  for (size_t i = 0; i < size; i++)
    hash = (hash ^ (unsigned char)bytes[i]) * UINT64_C(0x100000001b3);
  return hash ^ hash >> 32;
}

/* Keys that stand in a text, as pieces of it: open addressing, at most half full. */
struct text_set {
  size_t n, capacity; /* a power of two */
  struct piece {
    uint64_t hash;
    size_t offset, size; /* size 0: free */
  } *pieces;
};

/* Whether the bytes, which will stand at `offset` of the text, are new; notes them. */
must_check bool text_set_add(struct text_set *set, const struct text *text, const char *bytes,
                             size_t size, size_t offset);
void text_set_clear(struct text_set *set); /* keeps its room */
void text_set_release(struct text_set *set);

struct slice {
  const char *bytes; /* not NUL-terminated */
  size_t size;
};

/* The key's values, n of them (the kernel's n_key_names), each canonical JSON of a scalar. */
void winner_key_slices(const struct release_winner *winner, struct slice *slices, size_t n);

/* The milliseconds, winner->n_ms of them. */
void winner_ms_slices(const struct release_winner *winner, struct slice slices[RELEASE_MS_MAX]);

/* Python's str() of a value that a slice is: true and null become True and None, a string loses its
 * quotes and escapes. */
void slice_add_str(struct text *text, struct slice slice);

#endif
