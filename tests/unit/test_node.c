/* The environment of a node's GPUs, read from folders that imitate machines. */
#include <criterion/criterion.h>

#include "common/base/file.h"
#include "common/node/node.h"

#define DATA SOURCE_FOLDER "/tests/data/kfd/"

static const struct node_folders mi300x = {.topology = DATA "mi300x_spx",
                                           .pci_devices = DATA "pci",
                                           .rocm = DATA "rocm",
                                           .ids = DATA "amdgpu.ids"};

static void expect_environment(struct node_folders folders, const char *expected) {
  cleanup_environment struct environment environment = node_environment_read(&folders);
  cleanup_json json_t *json = environment_to_json(&environment);
  cleanup_free char *text = json_canonical(json);
  cr_expect_str_eq(text, expected);
}

Test(node, a_whole_mi300x_is_described_as_by_an_agent) {
  expect_environment(mi300x,
                     "{\"arch\":\"gfx942\",\"compute_units\":304,\"gpu\":\"AMD Instinct MI300X\","
                     "\"partition\":\"SPX/NPS1\",\"rocm\":\"6.4.1\"}");
}

Test(node, partitions_that_are_alike_are_one_environment_and_an_unlisted_name_is_not_guessed) {
  struct node_folders folders = mi300x;
  folders.topology = DATA "mi300x_cpx";
  expect_environment(
      folders,
      "{\"arch\":\"gfx942\",\"compute_units\":38,\"partition\":\"CPX\",\"rocm\":\"6.4.1\"}");
}

Test(node, members_that_no_file_states_are_left_out) {
  struct node_folders folders = mi300x;
  folders.rocm = folders.ids = folders.pci_devices = "/nowhere";
  expect_environment(folders, "{\"arch\":\"gfx942\",\"compute_units\":304}");
}

Test(node, without_an_amd_gpu_all_members_are_left_out_even_rocm) {
  struct node_folders folders = mi300x;
  folders.topology = "/nowhere";
  expect_environment(folders, "{}");
}

static void node_write(const char *folder, int index, const char *properties) {
  struct error error;
  cleanup_free char *node = xasprintf("%s/%d", folder, index),
                    *path = xasprintf("%s/properties", node);
  cr_assert(folder_make(node, 0700, &error) &&
                file_write_atomically(path, properties, strlen(properties), 0600, &error),
            "%s", error.message);
}

Test(node, members_in_which_gpus_differ_are_left_out) {
  char folder[] = "/tmp/wavetune-node-XXXXXX";
  struct error error;
  cr_assert_not_null(mkdtemp(folder));
  node_write(folder, 0, "cpu_cores_count 96\nsimd_count 0\n");
  node_write(
      folder, 1,
      "simd_count 1216\nsimd_per_cu 4\ngfx_target_version 90402\nlocation_id 1280\ndomain 0\n");
  node_write(
      folder, 2,
      "simd_count 192\nsimd_per_cu 2\ngfx_target_version 110000\nlocation_id 49408\ndomain 0\n");
  struct node_folders folders = mi300x;
  folders.topology = folder;
  expect_environment(folders, "{\"rocm\":\"6.4.1\"}");
  node_write(folder, 2, ""); /* as the driver shows a GPU that the container may not use */
  expect_environment(folders,
                     "{\"arch\":\"gfx942\",\"compute_units\":304,\"gpu\":\"AMD Instinct MI300X\","
                     "\"partition\":\"SPX/NPS1\",\"rocm\":\"6.4.1\"}");
  cr_expect(folder_remove(folder, &error), "%s", error.message);
}

/* If a control group hides a GPU, each read() of its file fails; so does that of a folder. */
Test(node, a_gpu_with_unreadable_files_does_not_hide_later_ones) {
  char folder[] = "/tmp/wavetune-node-XXXXXX";
  struct error error;
  cr_assert_not_null(mkdtemp(folder));
  cleanup_free char *unreadable = xasprintf("%s/0/properties", folder);
  cr_assert(folder_make(unreadable, 0700, &error), "%s", error.message);
  node_write(
      folder, 1,
      "simd_count 1216\nsimd_per_cu 4\ngfx_target_version 90402\nlocation_id 1280\ndomain 0\n");

  struct kfd_gpu gpus[2];
  struct kfd_node node;
  cr_expect_eq(kfd_gpus_list(folder, gpus, 2), 1);
  cr_expect(kfd_node_find(folder, "0000:05:00.0", &node, &error), "%s", error.message);
  cr_expect(folder_remove(folder, &error), "%s", error.message);
}

Test(node, variables_name_other_folders) {
  setenv("WAVETUNE_KFD_TOPOLOGY", "/a", 1);
  setenv("WAVETUNE_PCI_DEVICES", "/b", 1);
  setenv("ROCM_PATH", "/c", 1);
  setenv("WAVETUNE_AMDGPU_IDS", "/d", 1);
  struct node_folders folders = node_folders_default();
  cr_expect_str_eq(folders.topology, "/a");
  cr_expect_str_eq(folders.pci_devices, "/b");
  cr_expect_str_eq(folders.rocm, "/c");
  cr_expect_str_eq(folders.ids, "/d");
}
