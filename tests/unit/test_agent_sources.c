/* A kernel's sources on the agent's disk: all of them, with the digests of the manifest, or
 * none. */
#include "agent/compile/sources.h"

#include <sys/stat.h>

#include "agent_fixture.h"

/* Hands out the fixture's files and counts. */
struct library {
  const struct fixture *fixture;
  int reads;
  const char *wrong; /* the path whose bytes are others */
  const char *missing;
};

static bool library_read(void *context, const struct source *source, char **ret_bytes,
                         size_t *ret_size, struct error *error) {
  struct library *library = context;
  library->reads++;
  if (string_equal(library->missing, source->path))
    return error_set(error, "gone");
  cleanup_free char *path = xasprintf("%s/%s", library->fixture->folder, source->path);
  cr_assert(file_read(path, 1 << 20, ret_bytes, ret_size, error));
  if (string_equal(library->wrong, source->path))
    (*ret_bytes)[0] ^= 1;
  return true;
}

static bool prepare(struct library *library, char **ret_folder, struct error *error) {
  cleanup_free char *root = xasprintf("%s/kernels", library->fixture->folder);
  struct source_reader reader = {library_read, library};
  return sources_prepare(root, library->fixture->kernel, &reader, ret_folder, error);
}

Test(agent_sources, are_read_once_and_then_kept) {
  struct fixture fixture = fixture_new(FIXTURE_GOOD, (struct fixture_options){0});
  struct library library = {.fixture = &fixture};
  struct error error;
  char *folder = NULL, *again = NULL;
  cr_assert(prepare(&library, &folder, &error), "%s", error.message);
  cr_expect_eq(library.reads, 2, "the source and the reference");
  cleanup_free char *path = xasprintf("%s/kernel.c", folder);
  cr_expect_eq(access(path, R_OK), 0);
  cr_assert(prepare(&library, &again, &error));
  cr_expect_eq(library.reads, 2);
  cr_expect_str_eq(folder, again);
  free(folder);
  free(again);
  fixture_free(&fixture);
}

Test(agent_sources, are_read_again_when_one_is_damaged) {
  struct fixture fixture = fixture_new(FIXTURE_GOOD, (struct fixture_options){0});
  struct library library = {.fixture = &fixture};
  struct error error;
  char *folder = NULL, *again = NULL;
  cr_assert(prepare(&library, &folder, &error));
  cleanup_free char *path = xasprintf("%s/kernel.c", folder);
  cr_assert(file_write_atomically(path, "int x;", 6, 0600, &error));
  cr_assert(prepare(&library, &again, &error));
  cr_expect_eq(library.reads, 4);
  cleanup_free char *text = NULL;
  size_t size;
  cr_assert(file_read(path, 1 << 20, &text, &size, &error));
  cr_expect_str_eq(text, FIXTURE_GOOD);
  free(folder);
  free(again);
  fixture_free(&fixture);
}

/* Nothing may be left of a try that failed. */
static void expect_refused(struct library *library, const char *message) {
  struct error error;
  char *folder = NULL;
  cr_expect_not(prepare(library, &folder, &error));
  cr_expect_not_null(strstr(error.message, message), "%s", error.message);
  cleanup_free char *root = xasprintf("%s/kernels", library->fixture->folder);
  struct stat status;
  cr_assert_eq(stat(root, &status), 0);
  cr_expect_eq(status.st_nlink, 2, "no folder is left");
}

Test(agent_sources, are_refused_when_a_file_is_not_the_manifests) {
  struct fixture fixture = fixture_new(FIXTURE_GOOD, (struct fixture_options){0});
  struct library library = {.fixture = &fixture, .wrong = "reference.c"};
  expect_refused(&library, "reference.c of the kernel is not the one that its manifest names");
  fixture_free(&fixture);
}

Test(agent_sources, are_refused_when_a_file_cannot_be_had) {
  struct fixture fixture = fixture_new(FIXTURE_GOOD, (struct fixture_options){0});
  struct library library = {.fixture = &fixture, .missing = "kernel.c"};
  expect_refused(&library, "gone");
  fixture_free(&fixture);
}
