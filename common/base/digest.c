/* SHA-256 through OpenSSL's EVP. */
#include "common/base/digest.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <pthread.h>

struct digest_stream {
  EVP_MD_CTX *context;
};

/* OpenSSL 3 searches for the algorithm by name at each use of EVP_sha256(); fetching it once is
 * several times faster. */
static EVP_MD *sha256;
static pthread_once_t sha256_once = PTHREAD_ONCE_INIT;

static void sha256_fetch(void) {
  sha256 = EVP_MD_fetch(NULL, "SHA256", NULL);
  ALWAYS(sha256 != NULL);
}

struct digest digest_of(const void *bytes, size_t size) {
  struct digest digest;
  pthread_once(&sha256_once, sha256_fetch);
  ALWAYS(EVP_Digest(bytes, size, digest.bytes, NULL, sha256, NULL) == 1);
  return digest;
}

struct digest digest_keyed(const uint8_t *key, size_t key_size, const void *message, size_t size) {
  struct digest digest;
  pthread_once(&sha256_once, sha256_fetch);
  ALWAYS(HMAC(sha256, key, (int)key_size, message, size, digest.bytes, NULL) != NULL);
  return digest;
}

bool digest_equal(const struct digest *a, const struct digest *b) {
  return CRYPTO_memcmp(a->bytes, b->bytes, DIGEST_SIZE) == 0;
}

static const char hex_digits[] = "0123456789abcdef";

static void hex_write(char *text, const uint8_t *bytes, size_t size) {
  for (size_t i = 0; i < size; i++) {
    text[2 * i] = hex_digits[bytes[i] >> 4];
    text[2 * i + 1] = hex_digits[bytes[i] & 15];
  }
  text[2 * size] = '\0';
}

char *digest_format(const struct digest *digest, char text[DIGEST_TEXT_SIZE]) {
  memcpy(text, "sha256:", 7);
  hex_write(text + 7, digest->bytes, DIGEST_SIZE);
  return text;
}

static int hex_value(char c) { return (int)(strchr(hex_digits, c) - hex_digits); }

bool digest_parse(const char *text, struct digest *ret_digest) {
  if (!string_starts(text, "sha256:") || strlen(text) != DIGEST_TEXT_SIZE - 1 ||
      strspn(text + 7, hex_digits) != 2 * DIGEST_SIZE)
    return false;
  for (size_t i = 0; i < DIGEST_SIZE; i++)
    ret_digest->bytes[i] = (uint8_t)(hex_value(text[7 + 2 * i]) << 4 | hex_value(text[8 + 2 * i]));
  return true;
}

struct digest_stream *digest_stream_new(void) {
  struct digest_stream *stream = xcalloc(1, sizeof *stream);
  pthread_once(&sha256_once, sha256_fetch);
  stream->context = EVP_MD_CTX_new();
  ALWAYS(stream->context && EVP_DigestInit_ex(stream->context, sha256, NULL) == 1);
  return stream;
}

void digest_stream_add(struct digest_stream *stream, const void *bytes, size_t size) {
  ALWAYS(EVP_DigestUpdate(stream->context, bytes, size) == 1);
}

struct digest digest_stream_finish(struct digest_stream *stream) {
  struct digest digest;
  ALWAYS(EVP_DigestFinal_ex(stream->context, digest.bytes, NULL) == 1);
  EVP_MD_CTX_free(stream->context);
  free(stream);
  return digest;
}

void random_hex(char *text, size_t bytes) {
  uint8_t buffer[64];
  ALWAYS(bytes <= sizeof buffer);
  ALWAYS(RAND_bytes(buffer, (int)bytes) == 1);
  hex_write(text, buffer, bytes);
}
