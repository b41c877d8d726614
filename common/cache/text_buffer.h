/* A text that grows, for files of a cache with tens of thousands of entries: a container start waits for them.
 *
 * Memory: who holds the buffer frees `bytes`, or hands it on after text_finish. Threads: one to a buffer. */
#ifndef WAVETUNE_COMMON_CACHE_TEXT_BUFFER_H
#define WAVETUNE_COMMON_CACHE_TEXT_BUFFER_H

#include "common/base/base.h"

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

static inline void text_add_string(struct text *text, const char *string) { text_add(text, string, strlen(string)); }

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

#endif
