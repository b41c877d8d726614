/* Texts of caches: built in pieces, and byte for byte as CPython writes them, because tools written
 * in Python read them and hash them.
 *
 * A container's start waits for caches with tens of thousands of entries. So parts of winners are
 * copied from the release's canonical bytes, in which numbers are written as Python's repr writes
 * them.
 *
 * Memory: results are the caller's; a text owns `bytes` until text_finish; sets borrow their text,
 * slices borrow from the release. Threads: one for each text or set; pure functions otherwise. */
#ifndef WAVETUNE_COMMON_CACHE_TEXT_H
#define WAVETUNE_COMMON_CACHE_TEXT_H

#include "common/cache/release.h"

struct text {
  char *bytes; /* not NUL-terminated before text_finish */
  size_t size, capacity;
};

static inline void text_add(struct text *text, const char *bytes, size_t size) {
  if (text->capacity - text->size <= size) { /* one byte is kept for the NUL */
    text->capacity = 2 * text->capacity + size + 256;
    text->bytes = xreallocarray(text->bytes, text->capacity, 1);
  }
  memcpy(text->bytes + text->size, bytes, size);
  text->size += size;
}

static inline void text_add_string(struct text *text, const char *string) {
  text_add(text, string, strlen(string));
}

/* NUL-terminates; the bytes are the caller's, and the text is empty again. */
must_check static inline char *text_finish(struct text *text, size_t *ret_size) {
  text_add(text, "", 1);
  char *bytes = text->bytes;
  *ret_size = text->size - 1;
  *text = (struct text){0};
  return bytes;
}

static inline void text_release(struct text *text) { free(text->bytes); }
#define cleanup_text cleanup_by(text_release)

/* A hash for tables of texts: FNV-1a. */
static inline uint64_t text_hash(const char *bytes, size_t size) {
  uint64_t hash = UINT64_C(0xcbf29ce484222325);
  for (size_t i = 0; i < size; i++)
    hash = (hash ^ (unsigned char)bytes[i]) * UINT64_C(0x100000001b3);
  return hash ^ hash >> 32;
}

/* A set of pieces of one text: open addressing, at most half full. */
struct text_set {
  size_t n, capacity; /* a power of two */
  struct piece {
    uint64_t hash;
    size_t offset, size; /* size 0: free */
  } *pieces;
};

/* Adds the bytes to the set and returns whether they were new. The caller adds them to the text at
 * `offset`. */
must_check bool text_set_add(struct text_set *set, const struct text *text, const char *bytes,
                             size_t size, size_t offset);
void text_set_clear(struct text_set *set); /* keeps its memory */
void text_set_release(struct text_set *set);

struct slice {
  const char *bytes; /* not NUL-terminated */
  size_t size;
};

/* The key's values, n of them (the kernel's n_key_names), each canonical JSON of a scalar. */
void winner_key_slices(const struct release_winner *winner, struct slice *slices, size_t n);

/* The milliseconds, winner->n_ms of them. */
void winner_ms_slices(const struct release_winner *winner, struct slice slices[RELEASE_MS_MAX]);

/* Adds Python's str() of a slice's value: true and null become True and None, a string loses its
 * quotes and escapes. */
void text_add_slice_str(struct text *text, struct slice slice);

/* repr() of a tuple: "()", "(1,)", "(1, 'a')". False for a string outside ASCII: what Python
 * escapes of it depends on the Unicode tables of its version. */
must_check bool python_tuple_repr(const struct value *values, size_t n, char **ret_text,
                                  struct error *error);

/* The value whose str() (value_format) is exactly `text`, when it is None, a bool, an int of 64
 * bits or a finite float; else the text as a string, which is borrowed. */
struct value python_value(const char *text);

struct strings {
  size_t n, capacity;
  char **all;
};
void strings_release(struct strings *strings);
#define cleanup_strings cleanup_by(strings_release)

/* The elements of a tuple of strings as its repr has them: "('16', 'torch.float16')". Anything else
 * is refused, with the column (1-based): other elements, other spacing, escapes that repr would not
 * write, more than n_max elements. *ret is empty before, and is released by the caller in any
 * case. */
must_check bool python_string_tuple_parse(const char *text, size_t n_max, struct strings *ret,
                                          struct error *error);

/* json.dump(value, indent=indent, ensure_ascii=True), members in the object's own order; indent 0
 * writes one line, as Python's None does, with ", " and ": ". */
must_check char *python_json(const json_t *value, unsigned indent, size_t *ret_size);

#endif
