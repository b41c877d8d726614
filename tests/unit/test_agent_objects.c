/* The folder of compiled objects keeps what was used last. */
#include "agent/compile/compile.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>

#include "tests/unit/agent_fixture.h"

static char folder[] = "/tmp/wavetune-test-XXXXXX";

static void folder_setup(void) { cr_assert_not_null(mkdtemp(folder)); }

static void folder_teardown(void) {
  struct error error;
  cr_expect(folder_remove(folder, &error), "%s", error.message);
}

TestSuite(agent_objects, .init = folder_setup, .fini = folder_teardown);

static char *path_of(const char *name) { return xasprintf("%s/%s", folder, name); }

static bool is_there(const char *name) {
  cleanup_free char *path = path_of(name);
  return access(path, F_OK) == 0;
}

static void age(const char *path, int64_t age_s) {
  struct timespec times[2] = {{.tv_sec = time(NULL) - age_s}, {.tv_sec = time(NULL) - age_s}};
  cr_assert_eq(utimensat(AT_FDCWD, path, times, 0), 0);
}

/* A file of 1,000 bytes, last used age_s seconds ago. */
static void object_make(const char *name, int64_t age_s) {
  struct error error;
  char bytes[1000] = {0};
  cleanup_free char *path = path_of(name);
  cr_assert(file_write_atomically(path, bytes, sizeof bytes, 0600, &error), "%s", error.message);
  age(path, age_s);
}

Test(agent_objects, what_was_not_used_for_longest_goes_first) {
  object_make("a.so", 300);
  object_make("b.so", 500);
  object_make("c.so", 400);
  objects_prune(folder, 1500, 60);
  cr_expect(is_there("a.so"));
  cr_expect_not(is_there("b.so"));
  cr_expect_not(is_there("c.so"));
}

Test(agent_objects, what_is_used_counts_as_new_and_keeps_its_time_of_compile) {
  struct stat before, after;
  object_make("a.so", 500);
  object_make("b.so", 400);
  cleanup_free char *path = path_of("a.so");
  cr_assert_eq(stat(path, &before), 0);
  object_touch(path);
  cr_assert_eq(stat(path, &after), 0);
  cr_expect_eq(before.st_mtime, after.st_mtime);
  objects_prune(folder, 1000, 60);
  cr_expect(is_there("a.so"));
  cr_expect_not(is_there("b.so"));
}

Test(agent_objects, what_fits_or_was_used_a_moment_ago_stays) {
  object_make("a.so", 500);
  object_make("b.so", 400);
  objects_prune(folder, 2000, 60);
  cr_expect(is_there("a.so") && is_there("b.so"));
  objects_prune(folder, 0, 450);
  cr_expect_not(is_there("a.so"));
  cr_expect(is_there("b.so"));
}

Test(agent_objects, nothing_but_objects_and_old_scratch_folders_is_touched) {
  cleanup_free char *old = path_of("a.so.1234.scratch"), *fresh = path_of("b.so.1234.scratch"),
                    *other = path_of("c");
  object_make("notes.txt", 500);
  cr_assert_eq(mkdir(old, 0700), 0);
  cr_assert_eq(mkdir(fresh, 0700), 0);
  cr_assert_eq(mkdir(other, 0700), 0);
  age(old, 500);
  age(other, 500);
  objects_prune(folder, 0, 60);
  cr_expect(is_there("notes.txt"));
  cr_expect_not(is_there("a.so.1234.scratch"));
  cr_expect(is_there("b.so.1234.scratch"));
  cr_expect(is_there("c"));
}

Test(agent_objects, a_pool_prunes_its_cache_and_notes_what_it_uses) {
  struct fixture fixture = fixture_new(FIXTURE_GOOD, (struct fixture_options){0});
  struct error error;
  struct stat status;
  cleanup_free char *object = fixture_object(&fixture, 0, false),
                    *cache = xasprintf("%s/cache", fixture.folder);
  cleanup_free char *left = xasprintf("%s.1234.scratch", object);
  age(object, 2 * OBJECTS_RECENT_S);
  cr_assert_eq(mkdir(left, 0700), 0);
  age(left, 2 * OBJECTS_RECENT_S);
  compile_pool_free(fixture.pool);
  cr_assert(compile_pool_new(cache, 1, &fixture.pool, &error), "%s", error.message);
  cr_expect(access(left, F_OK) < 0, "a killed agent had left it");
  cleanup_free char *again = fixture_object(&fixture, 0, false);
  cr_expect_str_eq(again, object);
  cr_assert_eq(stat(object, &status), 0);
  cr_expect_gt(status.st_atime, time(NULL) - OBJECTS_RECENT_S);
  fixture_free(&fixture);
}
