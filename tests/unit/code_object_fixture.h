/* Code objects for tests: files of the tree, those compiled now, and those put together byte by
 * byte.
 *
 * Memory: what functions return is the caller's; those that take a file free it. Threads: one. */
#ifndef WAVETUNE_TESTS_CODE_OBJECT_FIXTURE_H
#define WAVETUNE_TESTS_CODE_OBJECT_FIXTURE_H

#include <criterion/criterion.h>

#include "common/base/file.h"
#include "common/code/code_object.h"
#include "common/program/command.h"

struct code_file {
  char *bytes;
  size_t size;
};

static inline struct code_file code_file_read(const char *path) {
  struct code_file file;
  struct error error;
  cr_assert(file_read(path, 1 << 26, &file.bytes, &file.size, &error), "%s", error.message);
  return file;
}

static inline struct code_object *code_file_parse(struct code_file file) {
  struct code_object *object = NULL;
  struct error error;
  cr_assert(code_object_parse(file.bytes, file.size, &object, &error), "%s at %s", error.message,
            error.pointer);
  free(file.bytes);
  return object;
}

/* Asserts that the bytes are refused with a sentence that contains `words`. */
static inline void code_file_refused(struct code_file file, const char *words) {
  struct code_object *object = NULL;
  struct error error;
  cr_assert_not(code_object_parse(file.bytes, file.size, &object, &error), "was read, expected: %s",
                words);
  cr_assert_null(object);
  cleanup_free char *text = xasprintf("%s at %s", error.message, error.pointer);
  cr_assert_not_null(strstr(text, words), "%s\n  expected: %s", text, words);
  free(file.bytes);
}

/* Parses a copy of the exact size, so that a sanitizer sees one byte too far; whether it was
 * read. */
static inline bool code_file_survives(const char *bytes, size_t size) {
  cleanup_free char *exact = xmemdup(bytes, size);
  cleanup_code_object struct code_object *object = NULL;
  struct error error = {0};
  bool is_read = code_object_parse(exact, size, &object, &error);
  cr_assert(is_read || error.message[0]);
  return is_read;
}

/* That no beginning of the file is read, and that no byte of it can be changed so that reading it
 * crashes. */
static inline void code_file_torture(struct code_file file) {
  for (size_t size = 0; size < file.size; size++)
    cr_assert_not(code_file_survives(file.bytes, size), "the first %zu of %zu bytes were read",
                  size, file.size);
  for (size_t i = 0; i < file.size; i++) {
    static const unsigned char flips[] = {0x01, 0x80, 0xff};
    file.bytes[i] = (char)(file.bytes[i] ^ flips[i % 3]);
    code_file_survives(file.bytes, file.size);
    file.bytes[i] = (char)(file.bytes[i] ^ flips[i % 3]);
  }
  free(file.bytes);
}

/* Runs a program with what it says on stdout and stderr as the result; fails the test when it
 * does. */
static inline char *run_program(char *const *arguments) {
  struct command command = {.arguments = arguments,
                            .environment = (char *const[]){(char *)"LC_ALL=C", NULL},
                            .timeout_ms = 100000,
                            .cpu_seconds_max = 100,
                            .memory_bytes_max = (uint64_t)64 << 30,
                            .file_bytes_max = 1 << 26,
                            .output_max = 1 << 26,
                            .stop_fd = -1};
  struct command_result result;
  struct error error;
  cr_assert(command_run(&command, &result, &error), "%s", error.message);
  cr_assert(result.succeeded, "%s: %s", arguments[0], result.output);
  return result.output;
}

/* The path of a tool; skips the test with a sentence where it is not installed. */
static inline char *need_program(const char *name) {
  char *path = NULL;
  struct error error;
  if (!program_find(name, &path, &error))
    cr_skip("%s is not installed (Debian packages clang-19, lld-19 and llvm-19; tests/run.sh "
            "brings them)",
            name);
  return path;
}

/* Compiles HIP device code with clang 19 for `arch` at `path` (beside it, PATH.hip); returns the
 * compiler's remarks. */
static inline char *compile_hip(const char *source, const char *arch, const char *path) {
  cleanup_free char *clang = need_program("clang-19");
  free(need_program("ld.lld-19"));
  cleanup_free char *source_path = xasprintf("%s.hip", path),
                    *offload = xasprintf("--offload-arch=%s", arch);
  struct error error;
  cr_assert(file_write_atomically(source_path, source, strlen(source), 0600, &error), "%s",
            error.message);
  char *const arguments[] = {clang,
                             (char *)"-x",
                             (char *)"hip",
                             (char *)"--cuda-device-only",
                             offload,
                             (char *)"-nogpulib",
                             (char *)"-nogpuinc",
                             (char *)"-O3",
                             (char *)"--no-gpu-bundle-output",
                             (char *)"-fuse-cuid=none",
                             (char *)"-Rpass-analysis=kernel-resource-usage",
                             source_path,
                             (char *)"-o",
                             (char *)path,
                             NULL};
  return run_program(arguments);
}

#endif
