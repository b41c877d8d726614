/* The folder of migrations: their numbers and names. */
#include "server/db/migrate.h"

#include <criterion/criterion.h>

#include "common/base/file.h"

static struct error error;
static char folder[] = "/tmp/wavetune-migrations-XXXXXX";

static void setup(void) {
  cr_assert_not_null(mkdtemp(folder));
  setenv("WAVETUNE_MIGRATIONS", folder, 1);
}
static void teardown(void) { cr_assert(folder_remove(folder, &error)); }

TestSuite(migrations, .init = setup, .fini = teardown);

static void put(const char *name) {
  cleanup_free char *path = xasprintf("%s/%s", folder, name);
  cr_assert(file_write_atomically(path, "SELECT 1;", 9, 0600, &error), "%s", error.message);
}

static void expect_refused(const char *reason) {
  struct migrations *migrations = NULL;
  cr_expect_not(migrations_load(&migrations, &error));
  cr_expect(strstr(error.message, reason), "%s", error.message);
}

Test(migrations, the_base_is_version_100_however_many_files_it_has) {
  put("02_jobs.sql");
  put("01_tokens.sql");
  put("README");
  cleanup_migrations struct migrations *migrations = NULL;
  cr_assert(migrations_load(&migrations, &error), "%s", error.message);
  cr_expect_eq(migrations_version(migrations), 100);
}

Test(migrations, the_newest_file_is_the_version) {
  put("0102_newest.sql");
  put("0101_next.sql");
  put("01_base.sql");
  cleanup_migrations struct migrations *migrations = NULL;
  cr_assert(migrations_load(&migrations, &error), "%s", error.message);
  cr_expect_eq(migrations_version(migrations), 102);
}

Test(migrations, a_gap_is_refused) {
  put("01_base.sql");
  put("0102_later.sql");
  expect_refused("0101 is missing or there twice");
}

Test(migrations, a_gap_in_the_base_is_refused) {
  put("01_tokens.sql");
  put("03_jobs.sql");
  expect_refused(": 02 is missing or there twice");
}

Test(migrations, a_number_that_occurs_twice_is_refused) {
  put("01_base.sql");
  put("0101_one.sql");
  put("0101_other.sql");
  expect_refused("0102 is missing or there twice");
}

Test(migrations, a_folder_without_the_base_is_refused) {
  put("0101_next.sql");
  expect_refused(": 01 is missing or there twice");
}

Test(migrations, a_file_with_a_malformed_name_is_refused) {
  put("1_base.sql");
  expect_refused("NNNN_name.sql");
}

Test(migrations, an_empty_folder_is_refused) { expect_refused("no migrations"); }

Test(migrations, a_missing_folder_is_refused) {
  setenv("WAVETUNE_MIGRATIONS", "/nowhere", 1);
  expect_refused("/nowhere");
}

Test(migrations, the_migrations_of_this_tree_load) {
  setenv("WAVETUNE_MIGRATIONS", SOURCE_FOLDER "/migrations", 1);
  cleanup_migrations struct migrations *migrations = NULL;
  cr_assert(migrations_load(&migrations, &error), "%s", error.message);
  cr_expect_geq(migrations_version(migrations), 100);
}
