/* What the agent's unit tests share: a scratch folder, kernels made from C text, and their objects.
 *
 * Each test makes one fixture and frees it, so that leak checks find what the code under test did
 * not free. */
#ifndef WAVETUNE_TESTS_AGENT_FIXTURE_H
#define WAVETUNE_TESTS_AGENT_FIXTURE_H

#include <criterion/criterion.h>

#include "agent/compile/compile.h"
#include "common/base/file.h"

/* A compile pool starts /proc/self/exe with "rtc": without this a test program would run its tests
 * again in that process, which would do the same. */
__attribute__((constructor)) static void be_a_runtime_compiler(int argc, char **argv) {
  if (argc >= 2 && string_equal(argv[1], "rtc"))
    rtc_main(argc, argv);
}

struct fixture {
  char *folder; /* holds the sources, and the cache of compiled objects in "cache" */
  struct kernel *kernel;
  struct key key;
  struct space *space;
  struct compile_pool *pool;
};

static inline json_t *fixture_json(const char *text) {
  struct error error = {0};
  json_t *json = NULL;
  cr_assert(json_parse(text, strlen(text), &json, &error), "%s", error.message);
  return json;
}

/* Writes a source and returns {"path", "digest"} for a manifest. */
static inline json_t *fixture_source(const struct fixture *fixture, const char *name,
                                     const char *text) {
  struct error error = {0};
  char *path = xasprintf("%s/%s", fixture->folder, name);
  cr_assert(file_write_atomically(path, text, strlen(text), 0600, &error), "%s", error.message);
  free(path);
  struct digest digest = digest_of(text, strlen(text));
  return json_pack("{s:s, s:o}", "path", name, "digest", json_digest_text(&digest));
}

struct fixture_options {
  const char *arguments; /* JSON; default: y and x of n floats, and n */
  const char *defines;   /* JSON; default {} */
  const char *space;     /* JSON; default one config */
  const char *reference; /* C; default y = x + 1 */
  const char *output;    /* the argument that the reference computes with f_at; default y */
  int64_t n;             /* of the key; default 1000 */
};

#define FIXTURE_ARGUMENTS                                                                          \
  "[{\"name\":\"y\",\"dtype\":\"float32\",\"shape\":[\"n\"],\"access\":\"write\"},"                \
  "{\"name\":\"x\",\"dtype\":\"float32\",\"shape\":[\"n\"],\"access\":\"read\"},"                  \
  "{\"name\":\"n\",\"dtype\":\"int64\",\"value\":\"n\"}]"
#define FIXTURE_REFERENCE                                                                          \
  "#include <stdint.h>\ndouble f_at(int64_t i, float *y, const float *x, int64_t n) { return "     \
  "x[i] + 1.0; }\n"
/* The kernel that the default options describe, right. */
#define FIXTURE_GOOD                                                                               \
  "#include <stdint.h>\nvoid f(float *y, const float *x, int64_t n) {\n  for (int64_t i = 0; i < " \
  "n; i++) y[i] = x[i] "                                                                           \
  "+ 1;\n}\n"

static inline struct fixture fixture_new(const char *source, struct fixture_options options) {
  struct fixture fixture = {0};
  struct error error = {0};
  char folder[] = "/tmp/wavetune-test-XXXXXX";
  cr_assert_not_null(mkdtemp(folder));
  fixture.folder = xstrdup(folder);
  json_t *manifest = json_pack(
      "{s:s, s:s, s:s, s:[o], s:[s], s:o, s:o, s:{s:o, s:{s:s}, s:f, s:f, s:i}}", "name", "test",
      "language", "c", "entry", "f", "sources", fixture_source(&fixture, "kernel.c", source), "key",
      "n", "arguments", fixture_json(options.arguments ? options.arguments : FIXTURE_ARGUMENTS),
      "defines", fixture_json(options.defines ? options.defines : "{}"), "reference", "source",
      fixture_source(&fixture, "reference.c",
                     options.reference ? options.reference : FIXTURE_REFERENCE),
      "outputs", options.output ? options.output : "y", "f_at", "rtol", 1e-6, "atol", 1e-6,
      "samples", 256);
  cr_assert_not_null(manifest);
  cr_assert(kernel_parse(manifest, &fixture.kernel, &error), "%s: %s", error.pointer,
            error.message);
  json_decref(manifest);
  json_t *key = json_pack("{s:I}", "n", (json_int_t)(options.n ? options.n : 1000));
  cr_assert(key_parse(key, NULL, 0, &fixture.key, &error), "%s", error.message);
  json_decref(key);
  json_t *space =
      fixture_json(options.space ? options.space : "{\"parameters\": {\"BLOCK\": [1]}}");
  cr_assert(space_parse(space, &fixture.space, &error), "%s: %s", error.pointer, error.message);
  json_decref(space);
  char *cache = xasprintf("%s/cache", fixture.folder);
  cr_assert(compile_pool_new(cache, 2, &fixture.pool, &error), "%s", error.message);
  free(cache);
  return fixture;
}

static inline void fixture_free(struct fixture *fixture) {
  struct error error = {0};
  compile_pool_free(fixture->pool);
  kernel_free(fixture->kernel);
  key_release(&fixture->key);
  space_free(fixture->space);
  cr_expect(folder_remove(fixture->folder, &error), "%s", error.message);
  free(fixture->folder);
}

static inline struct compile_request fixture_request(const struct fixture *fixture, uint64_t config,
                                                     bool is_reference) {
  return (struct compile_request){.kernel = fixture->kernel,
                                  .key = &fixture->key,
                                  .space = fixture->space,
                                  .config = config,
                                  .is_reference = is_reference,
                                  .sources = fixture->folder,
                                  .gpu_name = "a CPU",
                                  .arch = "x86_64"};
}

static inline struct compile_result fixture_compile(const struct fixture *fixture,
                                                    uint64_t config) {
  struct compile_request request = fixture_request(fixture, config, false);
  return compile_pool_wait(fixture->pool, compile_pool_submit(fixture->pool, &request));
}

/* The path of an object that must compile; owned by the caller. */
static inline char *fixture_object(const struct fixture *fixture, uint64_t config,
                                   bool is_reference) {
  struct compile_request request = fixture_request(fixture, config, is_reference);
  struct compile_result result =
      compile_pool_wait(fixture->pool, compile_pool_submit(fixture->pool, &request));
  cr_assert(result.ok, "%s", result.error.message);
  return result.object;
}

/* Of a file's bytes as they are now. */
static inline struct digest fixture_digest(const char *path) {
  cleanup_free char *bytes = NULL;
  struct error error;
  size_t size;
  cr_assert(file_read(path, SIZE_MAX / 2, &bytes, &size, &error), "%s", error.message);
  return digest_of(bytes, size);
}

#endif
