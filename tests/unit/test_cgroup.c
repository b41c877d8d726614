/* The folder of a process's cgroup, and the errors if it has none. deploy/test/cgroup.sh tests the
 * rest on a separate machine. */
#include <criterion/criterion.h>

#include "common/program/custody.h"

#define MOUNTED(root, place)                                                                       \
  "36 35 0:30 " root " " place " rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
#define HYBRID "30 29 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"

static void expect_folder(const char *cgroup, const char *mountinfo, const char *folder) {
  cleanup_free char *found = NULL;
  struct error error;
  cr_assert(cgroup_folder_find(cgroup, mountinfo, &found, &error), "%s", error.message);
  cr_expect_str_eq(found, folder);
}

static void expect_none(const char *cgroup, const char *mountinfo, const char *why) {
  char *found = NULL;
  struct error error;
  cr_expect_not(cgroup_folder_find(cgroup, mountinfo, &found, &error));
  cr_expect(string_starts(error.message, why), "%s", error.message);
}

Test(cgroup, the_folder_of_a_unit_is_below_the_mount) {
  expect_folder("0::/system.slice/wavetune-agent.service\n", MOUNTED("/", "/sys/fs/cgroup"),
                "/sys/fs/cgroup/system.slice/wavetune-agent.service");
}

Test(cgroup, a_cgroup_namespace_and_a_mount_of_a_part_begin_at_their_root) {
  expect_folder("0::/\n", MOUNTED("/", "/sys/fs/cgroup"), "/sys/fs/cgroup");
  expect_folder("0::/docker/ab\n", MOUNTED("/docker/ab", "/sys/fs/cgroup"), "/sys/fs/cgroup");
  expect_folder("0::/docker/ab/x\n", HYBRID MOUNTED("/docker/ab", "/sys/fs/cgroup"),
                "/sys/fs/cgroup/x");
}

Test(cgroup, version_1_is_passed_over) {
  expect_folder("8:pids:/\n4:memory:/a\n0::/b\n", HYBRID MOUNTED("/", "/sys/fs/cgroup/unified"),
                "/sys/fs/cgroup/unified/b");
}

Test(cgroup, without_a_cgroup_the_error_states_why) {
  expect_none("8:pids:/\n4:memory:/a\n", HYBRID, "this machine has no cgroup v2");
  expect_none("0::/a\n", HYBRID, "the cgroup /a is not mounted here");
  expect_none("0::/docker/abc\n", MOUNTED("/docker/ab", "/sys/fs/cgroup"),
              "the cgroup /docker/abc is not mounted");
  expect_none("0::/../other\n", MOUNTED("/", "/sys/fs/cgroup"),
              "this process is in a cgroup outside");
  expect_none("", "", "this machine has no cgroup v2");
}
