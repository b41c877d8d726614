/* Manifests and other JSON as texts, for tests that parse them.
 *
 * Memory: what functions return is the caller's. Threads: one. */
#ifndef WAVETUNE_TESTS_KERNEL_FIXTURE_H
#define WAVETUNE_TESTS_KERNEL_FIXTURE_H

#include <criterion/criterion.h>

#include "common/kernel/kernel.h"

#define DIGEST_A "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define DIGEST_B "sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"

static inline json_t *json_of(const char *text) {
  json_t *json = NULL;
  struct error error;
  cr_assert(json_parse(text, strlen(text), &json, &error), "%s in %s", error.message, text);
  return json;
}

static inline struct kernel *kernel_of_json(const json_t *json) {
  struct kernel *kernel = NULL;
  struct error error;
  cr_assert(kernel_parse(json, &kernel, &error), "%s: %s", error.pointer, error.message);
  return kernel;
}

static inline struct kernel *kernel_of(const char *text) {
  cleanup_json json_t *json = json_of(text);
  return kernel_of_json(json);
}

#endif
