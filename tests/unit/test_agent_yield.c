/* Devices that are given back to others: how looks decide, and who is found on a GPU, with files
 * and a library in place of the drivers'. */
#include <criterion/criterion.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "agent/device/device.h"
#include "agent/run/yield.h"
#include "common/base/file.h"

#define S INT64_C(1000000000)

Test(agent_yield, a_device_is_yielded_at_the_first_look_that_finds_another) {
  struct device_use use = {0};
  cr_expect_not(device_use_note(&use, NULL, 1 * S, 30 * S));
  cr_expect_eq(use.clean_ns, 1 * S);
  cr_expect(device_use_note(&use, "a", 2 * S, 30 * S));
  cr_expect(use.is_yielded);
  cr_expect_str_eq(use.reason, "a");
  cr_expect_eq(use.since_ns, 2 * S);
  cr_expect_eq(use.clean_ns, 1 * S, "what was measured later is not trusted");
  cr_expect_not(device_use_note(&use, "b", 3 * S, 30 * S));
  cr_expect_str_eq(use.reason, "b");
  cr_expect_eq(use.since_ns, 2 * S);
  cr_expect_eq(use.n_yields, 1);
}

Test(agent_yield, a_yielded_device_must_have_been_free_without_a_break) {
  struct device_use use = {0};
  cr_expect(device_use_note(&use, "a", 1 * S, 10 * S));
  cr_expect_not(device_use_note(&use, NULL, 2 * S, 10 * S));
  cr_expect_not(device_use_note(&use, NULL, 11 * S, 10 * S));
  cr_expect_not(device_use_note(&use, "b", 12 * S, 10 * S), "nine seconds were too few");
  cr_expect_not(device_use_note(&use, NULL, 13 * S, 10 * S));
  cr_expect_not(device_use_note(&use, NULL, 22 * S, 10 * S));
  cr_expect(use.is_yielded);
  cr_expect(device_use_note(&use, NULL, 23 * S, 10 * S));
  cr_expect_not(use.is_yielded);
  cr_expect(device_use_note(&use, "c", 24 * S, 10 * S));
  cr_expect_eq(use.since_ns, 24 * S);
  cr_expect_eq(use.n_yields, 2);
}

Test(agent_yield, with_no_time_to_wait_one_free_look_suffices) {
  struct device_use use = {0};
  cr_expect(device_use_note(&use, "a", 1 * S, 0));
  cr_expect(device_use_note(&use, NULL, 2 * S, 0));
  cr_expect_not(use.is_yielded);
}

Test(agent_yield, a_long_reason_is_cut) {
  struct device_use use = {0};
  char reason[2 * YIELD_REASON_SIZE];
  memset(reason, 'r', sizeof reason - 1);
  reason[sizeof reason - 1] = '\0';
  cr_expect(device_use_note(&use, reason, 1 * S, 0));
  cr_expect_eq(strlen(use.reason), YIELD_REASON_SIZE - 1);
}

/* A process that is not the agent's: what a worker starts cannot leave the session. */
static pid_t other_start(void) {
  pid_t child = fork();
  cr_assert_geq(child, 0);
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_NAME, "a (b)\t\xff");
    setsid();
    pause();
    _exit(0);
  }
  while (getsid(child) != child)
    usleep(1000);
  return child;
}

static void other_end(pid_t pid) {
  kill(pid, SIGKILL);
  waitpid(pid, NULL, 0);
}

/* This process's pid namespace counts as the one whose ids drivers report. */
static void namespace_declare(void) {
  char link[64] = "";
  cr_assert_gt(readlink("/proc/self/ns/pid", link, sizeof link - 1), 0);
  setenv("WAVETUNE_PID_NAMESPACE", link, 1);
}

static void file_put(const char *folder, int pid, const char *name, const char *text) {
  struct error error;
  cleanup_free char *path = xasprintf("%s/%d/%s", folder, pid, name), *parent = xstrdup(path);
  *strrchr(parent, '/') = '\0';
  cleanup_free char *command = xasprintf("mkdir -p '%s'", parent);
  cr_assert_eq(system(command), 0);
  cr_assert(file_write_atomically(path, text, strlen(text), 0600, &error), "%s", error.message);
}

static int64_t user_of(const char *device, const json_t *facts) {
  struct device_user user = {.pid = -1};
  struct error error;
  cr_assert(device_user_find(device, facts, &user, &error), "%s", error.message);
  return user.pid;
}

Test(agent_yield, on_amd_gpus_memory_or_a_queue_shows_another_process) {
  char folder[] = "/tmp/wavetune-kfd-XXXXXX";
  struct error error;
  cleanup_json json_t *facts = json_pack("{s:i}", "gpu_id", 7);
  pid_t other = other_start(), gone = other_start();
  cr_assert_not_null(mkdtemp(folder));
  setenv("WAVETUNE_KFD_PROCESSES", folder, 1);
  namespace_declare();
  cr_expect_eq(user_of("hip0", facts), 0);
  file_put(folder, getpid(), "vram_7", "4096\n");
  file_put(folder, other, "vram_8", "4096\n");
  file_put(folder, other, "vram_7", "0\n");
  file_put(folder, other, "queues/3/gpuid", "8\n");
  cr_expect_eq(user_of("hip0", facts), 0, "it uses another GPU");

  file_put(folder, other, "vram_7", "8192\n");
  cr_expect_eq(user_of("hip0", facts), other);
  file_put(folder, other, "vram_7", "0\n");
  cr_expect_eq(user_of("hip0", facts), 0);
  file_put(folder, other, "queues/4/gpuid", "7\n");
  cr_expect_eq(user_of("hip0", facts), other);
  other_end(other);
  cr_expect_eq(user_of("hip0", facts), 0, "it has ended, though the driver still lists it");

  file_put(folder, gone, "vram_7", "4096\n");
  struct device_user user;
  cr_assert(device_user_find("hip0", facts, &user, &error));
  cr_expect_eq(user.pid, gone);
  cr_expect_str_eq(user.name, "a (b)??");
  other_end(gone);
  cr_expect(folder_remove(folder, &error), "%s", error.message);
  cr_expect_not(device_user_find("hip0", facts, &user, &error));
  cr_expect(strstr(error.message, "hip0: the driver lists no processes") != NULL, "%s",
            error.message);
}

Test(agent_yield, on_nvidia_gpus_the_management_library_lists_processes) {
  cleanup_json json_t *facts = json_pack("{s:s}", "pci", "00000000:17:00.0");
  cleanup_json json_t *absent = json_pack("{s:s}", "pci", "00000000:18:00.0");
  struct device_user user;
  struct error error;
  pid_t other = other_start();
  setenv("WAVETUNE_NVML_LIBRARY", FAKE_NVML, 1);
  namespace_declare();
  /* Of compute, graphics and MPS: o the other process, s this one, - none, n not supported. */
  static const char *const lists[] = {"---", "s--", "sss", "-nn", "o--", "-o-", "s-o", "sno"};
  for (size_t i = 0; i < ARRAY_LENGTH(lists); i++) {
    int pids[3];
    for (size_t k = 0; k < 3; k++)
      pids[k] = lists[i][k] == 'o'   ? other
                : lists[i][k] == 's' ? getpid()
                : lists[i][k] == 'n' ? -3
                                     : 0;
    cleanup_free char *stated = xasprintf("%d %d %d", pids[0], pids[1], pids[2]);
    setenv("FAKE_NVML", stated, 1);
    cr_expect_eq(user_of("cuda0", facts), strchr(lists[i], 'o') ? other : 0, "%s", lists[i]);
  }

  setenv("FAKE_NVML", "-3 0 0", 1);
  cr_expect_not(device_user_find("cuda0", facts, &user, &error));
  setenv("FAKE_NVML", "0 -15 0", 1);
  cr_expect_not(device_user_find("cuda0", facts, &user, &error));
  cr_expect(strstr(error.message, "it returned 15") != NULL, "%s", error.message);
  setenv("FAKE_NVML", "0 0 0", 1);
  cr_expect_not(device_user_find("cuda0", absent, &user, &error), "another GPU's handle was used");
  other_end(other);
}

Test(agent_yield, processes_that_cannot_be_told_apart_are_refused) {
  cleanup_json json_t *facts = json_pack("{s:i, s:s}", "gpu_id", 7, "pci", "00000000:17:00.0");
  struct device_user user;
  struct error error;
  setenv("WAVETUNE_PID_NAMESPACE", "pid:[1]", 1);
  setenv("WAVETUNE_NVML_LIBRARY", FAKE_NVML, 1);
  static const char *const devices[] = {"hip0", "cuda0"};
  for (size_t i = 0; i < ARRAY_LENGTH(devices); i++) {
    cr_expect_not(device_user_find(devices[i], facts, &user, &error));
    cr_expect(strstr(error.message, "--pid=host") != NULL, "%s", error.message);
  }
  cr_expect_not(device_user_find("cpu0", facts, &user, &error));
  cr_expect_not(device_user_find("x0", facts, &user, &error));
}
