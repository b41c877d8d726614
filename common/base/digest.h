/* SHA-256 digests, written as "sha256:" and 64 lower-case hexadecimal digits, and random
 * identifiers.
 *
 * Threads: any; a digest_stream belongs to one thread at a time. */
#ifndef WAVETUNE_COMMON_BASE_DIGEST_H
#define WAVETUNE_COMMON_BASE_DIGEST_H

#include "common/base/error.h"

#define DIGEST_SIZE 32
#define DIGEST_TEXT_SIZE (7 + 2 * DIGEST_SIZE + 1) /* "sha256:…" and its NUL */

struct digest {
  uint8_t bytes[DIGEST_SIZE];
};

struct digest digest_of(const void *bytes, size_t size);
bool digest_equal(const struct digest *a, const struct digest *b); /* in constant time */

/* HMAC-SHA256 (RFC 2104). */
struct digest digest_keyed(const uint8_t *key, size_t key_size, const void *message, size_t size);

/* Writes "sha256:…" to text and returns text. */
char *digest_format(const struct digest *digest, char text[DIGEST_TEXT_SIZE]);
/* The text in memory of the block that has the expression. */
#define DIGEST_TEXT(digest) digest_format((digest), (char[DIGEST_TEXT_SIZE]){0})

/* Accepts exactly "sha256:" + 64 lower-case hex digits. */
must_check bool digest_parse(const char *text, struct digest *ret_digest);

/* Hashes bytes that are not all in memory at the same time. */
struct digest_stream;
must_check struct digest_stream *digest_stream_new(void);
void digest_stream_add(struct digest_stream *stream, const void *bytes, size_t size);
struct digest digest_stream_finish(struct digest_stream *stream); /* frees the stream */

/* `bytes` random bytes from the operating system as 2 * bytes hex digits and a NUL. Aborts when
 * there is no entropy. */
void random_hex(char *text, size_t bytes);

#endif
