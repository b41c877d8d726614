/* Files and folders: bounded reading, atomic writing, and errors that name the path. */
#include "common/base/file.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>

static char folder[] = "/tmp/wavetune-test-XXXXXX";
static struct error error;

static void folder_start(void) {
  cr_assert_not_null(mkdtemp(folder));
  umask(022);
}
static void folder_end(void) { cr_expect(folder_remove(folder, &error)); }
TestSuite(file, .init = folder_start, .fini = folder_end);

static char *inside(const char *name) { return xasprintf("%s/%s", folder, name); }

static void write_file(const char *path, const char *text) {
  cr_assert(file_write_atomically(path, text, strlen(text), 0644, &error), "%s", error.message);
}

static size_t entries_count(void) {
  DIR *entries = opendir(folder);
  size_t n = 0;
  for (struct dirent *entry; (entry = readdir(entries));)
    n += entry->d_name[0] != '.';
  closedir(entries);
  return n;
}

Test(file, a_written_file_is_read_back) {
  cleanup_free char *path = inside("a"), *text = NULL;
  size_t size;
  write_file(path, "two\nlines");
  cr_assert(file_read(path, 9, &text, &size, &error));
  cr_expect_eq(size, (size_t)9);
  cr_expect_str_eq(text, "two\nlines");
}

Test(file, an_empty_file_reads_as_an_empty_text) {
  cleanup_free char *path = inside("a"), *text = NULL;
  size_t size;
  write_file(path, "");
  cr_assert(file_read(path, 0, &text, &size, &error));
  cr_expect_eq(size, (size_t)0);
  cr_expect_str_eq(text, "");
}

Test(file, more_than_the_limit_is_refused) {
  cleanup_free char *path = inside("a"), *text = NULL;
  size_t size;
  write_file(path, "12345");
  cr_expect_not(file_read(path, 4, &text, &size, &error));
  cr_expect_neq(strstr(error.message, "more than the limit of 4"), NULL, "%s", error.message);
  cr_expect_neq(strstr(error.message, path), NULL);
}

Test(file, a_file_of_size_zero_is_read_to_its_end) {
  cleanup_free char *text = NULL;
  size_t size;
  cr_assert(file_read("/proc/self/status", 1 << 20, &text, &size, &error), "%s", error.message);
  cr_expect(string_starts(text, "Name:"));
  cr_expect_eq(strlen(text), size);
}

Test(file, a_file_of_size_zero_has_the_same_limit) {
  cleanup_free char *text = NULL;
  size_t size;
  cr_expect_not(file_read("/proc/self/status", 10, &text, &size, &error));
  cr_expect_neq(strstr(error.message, "limit of 10"), NULL, "%s", error.message);
}

Test(file, a_missing_file_is_named) {
  cleanup_free char *path = inside("absent"), *text = NULL;
  size_t size;
  cr_expect_not(file_read(path, 10, &text, &size, &error));
  cr_expect_neq(strstr(error.message, path), NULL);
  cr_expect_neq(strstr(error.message, strerror(ENOENT)), NULL);
}

Test(file, a_folder_is_not_read) {
  cleanup_free char *text = NULL;
  size_t size;
  cr_expect_not(file_read(folder, 10, &text, &size, &error));
  cr_expect_neq(strstr(error.message, "not a regular file"), NULL);
}

Test(file, a_fifo_is_refused_at_once) {
  cleanup_free char *path = inside("fifo"), *text = NULL;
  size_t size;
  cr_assert_eq(mkfifo(path, 0600), 0);
  cr_expect_not(file_read(path, 10, &text, &size, &error));
}

Test(file, writing_replaces_the_file_and_leaves_no_temporary_file) {
  cleanup_free char *path = inside("a"), *text = NULL;
  size_t size;
  write_file(path, "old");
  write_file(path, "new");
  cr_assert(file_read(path, 10, &text, &size, &error));
  cr_expect_str_eq(text, "new");
  cr_expect_eq(entries_count(), (size_t)1);
}

Test(file, writing_sets_the_permissions) {
  cleanup_free char *path = inside("token");
  struct stat status;
  cr_assert(file_write_atomically(path, "t", 1, 0600, &error));
  cr_assert_eq(stat(path, &status), 0);
  cr_expect_eq(status.st_mode & 0777, 0600u);
}

Test(file, writing_into_an_absent_folder_is_refused) {
  cleanup_free char *path = inside("absent/a");
  cr_expect_not(file_write_atomically(path, "t", 1, 0600, &error));
  cr_expect_neq(strstr(error.message, path), NULL);
}

Test(file, writing_over_a_folder_is_refused_and_leaves_no_temporary_file) {
  cleanup_free char *path = inside("taken");
  cr_assert(folder_make(path, 0755, &error));
  cr_expect_not(file_write_atomically(path, "t", 1, 0600, &error));
  cr_expect_neq(strstr(error.message, "cannot write"), NULL);
  cr_expect_eq(entries_count(), (size_t)1);
}

Test(file, folder_make_makes_the_parents) {
  cleanup_free char *path = inside("a/b//c/");
  struct stat status;
  cr_assert(folder_make(path, 0755, &error), "%s", error.message);
  cr_expect(stat(path, &status) == 0 && S_ISDIR(status.st_mode));
  cr_expect(folder_make(path, 0755, &error), "a folder that exists is success");
}

Test(file, the_root_folder_exists) { cr_expect(folder_make("/", 0755, &error)); }

Test(file, a_folder_without_a_name_is_refused) {
  cr_expect_not(folder_make("", 0755, &error));
  cr_expect_not_null(strstr(error.message, "cannot make a folder without a name"), "%s",
                     error.message);
}

Test(file, folder_make_private_makes_a_folder_for_its_owner_only) {
  cleanup_free char *path = inside("private");
  struct stat status;
  cr_assert(folder_make_private(path, &error), "%s", error.message);
  cr_assert_eq(stat(path, &status), 0);
  cr_expect_eq(status.st_mode & 0777, 0700);
  cr_expect(folder_make_private(path, &error), "one's own folder is taken as it is");
}

Test(file, folder_make_private_refuses_a_folder_that_all_users_may_write_to) {
  cleanup_free char *path = inside("open");
  cr_assert(folder_make(path, 0700, &error));
  cr_assert_eq(chmod(path, 01777), 0);
  cr_expect_not(folder_make_private(path, &error));
  cr_expect_not_null(strstr(error.message, "all users may write to the folder"), "%s",
                     error.message);
}

Test(file, folder_make_private_refuses_a_folder_of_another_user) {
  cleanup_free char *path = inside("theirs");
  cr_assert(folder_make(path, 0700, &error));
  if (chown(path, 12345, (gid_t)-1) < 0)
    cr_skip("only root can give a folder away");
  cr_expect_not(folder_make_private(path, &error));
  cr_expect_not_null(strstr(error.message, "belongs to user 12345"), "%s", error.message);
}

Test(file, folder_make_refuses_the_name_of_a_file) {
  cleanup_free char *path = inside("a"), *below = inside("a/b");
  write_file(path, "");
  cr_expect_not(folder_make(path, 0755, &error));
  cr_expect_neq(strstr(error.message, "something else has that name"), NULL, "%s", error.message);
  cr_expect_not(folder_make(below, 0755, &error));
  cr_expect_neq(strstr(error.message, strerror(ENOTDIR)), NULL, "%s", error.message);
}

Test(file, folder_remove_removes_the_content) {
  cleanup_free char *top = inside("top"), *below = inside("top/a/b"),
                    *path = inside("top/a/b/file");
  cr_assert(folder_make(below, 0755, &error));
  write_file(path, "x");
  cr_expect(folder_remove(top, &error), "%s", error.message);
  cr_expect_eq(access(top, F_OK), -1);
}

Test(file, folder_remove_does_not_follow_links) {
  cleanup_free char *kept = inside("kept"), *kept_file = inside("kept/file"), *top = inside("top"),
                    *link_path = inside("top/link");
  cr_assert(folder_make(kept, 0755, &error) && folder_make(top, 0755, &error));
  write_file(kept_file, "x");
  cr_assert_eq(symlink(kept, link_path), 0);
  cr_expect(folder_remove(top, &error));
  cr_expect_eq(access(kept_file, F_OK), 0);
}

/* As in a container: the files' st_dev is not that of their folders. */
Test(file, folder_remove_removes_files_of_an_overlay_whose_layers_are_of_two_file_systems) {
  cleanup_free char *lower = inside("lower"), *other = inside("other"), *upper = inside("other/u"),
                    *work = inside("other/w"), *merged = inside("merged"),
                    *below = inside("merged/a/b"), *path = inside("merged/a/b/file"),
                    *top = inside("merged/a"),
                    *layers = xasprintf("lowerdir=%s,upperdir=%s,workdir=%s", lower, upper, work);
  cr_assert(folder_make(lower, 0755, &error) && folder_make(other, 0755, &error) &&
            folder_make(merged, 0755, &error));
  if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
      mount("none", other, "tmpfs", 0, NULL) < 0 || mkdir(upper, 0755) < 0 ||
      mkdir(work, 0755) < 0 || mount("none", merged, "overlay", 0, layers) < 0)
    cr_skip_test("overlayfs cannot be mounted: %s", strerror(errno));

  cr_assert(folder_make(below, 0755, &error));
  write_file(path, "x");
  cr_expect(folder_remove(top, &error), "%s", error.message);
  cr_expect_eq(access(top, F_OK), -1);
  umount2(merged, MNT_DETACH);
  umount2(other, MNT_DETACH);
}

Test(file, removing_an_absent_folder_is_success) {
  cleanup_free char *path = inside("absent");
  cr_expect(folder_remove(path, &error));
}

Test(file, a_folder_that_cannot_be_removed_is_named) {
  cr_expect_not(folder_remove("/proc/self/fdinfo", &error));
  cr_expect_neq(strstr(error.message, "/proc/self/fdinfo"), NULL);
}

Test(file, a_descriptor_that_cannot_be_written_is_an_error) {
  cleanup_fd int fd = open("/dev/full", O_WRONLY | O_CLOEXEC);
  cr_expect_not(fd_write_all(fd, "x", 1));
  cr_expect_eq(errno, ENOSPC);
}

Test(file, a_failed_write_keeps_the_old_file) {
  cleanup_free char *path = inside("a"), *text = NULL;
  size_t size;
  write_file(path, "old");
  struct rlimit limit, none = {.rlim_cur = 0};
  cr_assert_eq(getrlimit(RLIMIT_FSIZE, &limit), 0);
  none.rlim_max = limit.rlim_max;
  signal(SIGXFSZ, SIG_IGN);
  cr_assert_eq(setrlimit(RLIMIT_FSIZE, &none), 0);
  bool is_written = file_write_atomically(path, "new", 3, 0644, &error);
  setrlimit(RLIMIT_FSIZE, &limit);
  cr_expect_not(is_written);
  cr_expect_neq(strstr(error.message, strerror(EFBIG)), NULL, "%s", error.message);
  cr_expect_eq(entries_count(), (size_t)1);
  cr_assert(file_read(path, 10, &text, &size, &error));
  cr_expect_str_eq(text, "old");
}
