/* The spool: order, numbers, incomplete records, restarts, and one agent to a folder. */
#include "agent/run/spool.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "common/base/file.h"
#include "common/base/log.h"

static char folder[64];
static struct error error;

static void folder_setup(void) {
  setenv("WAVETUNE_LOG", "error", 0);
  strcpy(folder, "/tmp/wavetune-spool-XXXXXX");
  cr_assert_not_null(mkdtemp(folder));
}

static void folder_teardown(void) { cr_assert(folder_remove(folder, &error)); }

TestSuite(agent_spool, .init = folder_setup, .fini = folder_teardown);

static struct spool *open_spool(uint64_t shorten_at) {
  struct spool *spool;
  cr_assert(spool_open(folder, shorten_at, &spool, &error), "%s", error.message);
  return spool;
}

static uint64_t append(struct spool *spool, int value) {
  cleanup_json json_t *record = json_pack("{s:i}", "value", value);
  uint64_t number;
  cr_assert(spool_append(spool, record, &number, &error), "%s", error.message);
  return number;
}

/* The records that wait must be `first`, `first + 1`, … with their numbers as values; returns how
 * many. */
static size_t expect_waiting(struct spool *spool, uint64_t first) {
  struct spool_record records[16];
  size_t n;
  cr_assert(spool_peek(spool, records, 16, &n, &error), "%s", error.message);
  for (size_t i = 0; i < n; i++) {
    cr_expect_eq(records[i].number, first + i);
    cr_expect_eq(json_integer_value(json_object_get(records[i].json, "value")),
                 (json_int_t)(first + i));
    json_decref(records[i].json);
  }
  return n;
}

static char *file_path(const char *name) { return xasprintf("%s/%s", folder, name); }

static off_t file_size(const char *name) {
  cleanup_free char *path = file_path(name);
  struct stat status;
  cr_assert_eq(stat(path, &status), 0);
  return status.st_size;
}

static void append_bytes(const char *name, const void *bytes, size_t size) {
  cleanup_free char *path = file_path(name);
  cleanup_fd int fd = open(path, O_WRONLY | O_APPEND);
  cr_assert(fd >= 0 && fd_write_all(fd, bytes, size));
}

Test(agent_spool, numbers_records_from_one_and_returns_them_in_order) {
  struct spool *spool = open_spool(SPOOL_SHORTEN_AT_DEFAULT);
  cr_expect(spool_is_empty(spool));
  cr_expect_eq(append(spool, 1), 1);
  cr_expect_eq(append(spool, 2), 2);
  cr_expect_not(spool_is_empty(spool));
  cr_expect_eq(expect_waiting(spool, 1), 2);
  spool_close(spool);
}

Test(agent_spool, peeks_at_most_the_requested_number) {
  struct spool *spool = open_spool(SPOOL_SHORTEN_AT_DEFAULT);
  append(spool, 1);
  append(spool, 2);
  struct spool_record record;
  size_t n;
  cr_assert(spool_peek(spool, &record, 1, &n, &error));
  cr_expect_eq(n, 1);
  cr_expect_eq(record.number, 1);
  json_decref(record.json);
  spool_close(spool);
}

Test(agent_spool, forgets_only_acknowledged_records) {
  struct spool *spool = open_spool(SPOOL_SHORTEN_AT_DEFAULT);
  for (int i = 1; i <= 3; i++)
    append(spool, i);
  cr_assert(spool_acknowledge(spool, 2, &error));
  cr_expect_eq(expect_waiting(spool, 3), 1);
  cr_assert(spool_acknowledge(spool, 3, &error));
  cr_expect(spool_is_empty(spool));
  spool_close(spool);
}

Test(agent_spool, replays_records_after_a_restart) {
  struct spool *spool = open_spool(SPOOL_SHORTEN_AT_DEFAULT);
  for (int i = 1; i <= 3; i++)
    append(spool, i);
  cr_assert(spool_acknowledge(spool, 1, &error));
  spool_close(spool);
  spool = open_spool(SPOOL_SHORTEN_AT_DEFAULT);
  cr_expect_eq(expect_waiting(spool, 2), 2);
  cr_expect_eq(append(spool, 4), 4);
  spool_close(spool);
}

Test(agent_spool, keeps_the_records_of_a_killed_agent) {
  pid_t pid = fork();
  if (pid == 0) {
    struct spool *doomed = open_spool(SPOOL_SHORTEN_AT_DEFAULT);
    append(doomed, 1);
    append(doomed, 2);
    cr_assert_eq(expect_waiting(doomed, 1), 2); /* posted, and killed before the answer */
    kill(getpid(), SIGKILL);
  }
  int status;
  cr_assert_eq(waitpid(pid, &status, 0), pid);
  cr_assert(WIFSIGNALED(status));
  struct spool *spool = open_spool(SPOOL_SHORTEN_AT_DEFAULT);
  cr_expect_eq(expect_waiting(spool, 1), 2);
  spool_close(spool);
}

Test(agent_spool, drops_an_incomplete_record_at_the_end_and_appends_after_it) {
  struct spool *spool = open_spool(SPOOL_SHORTEN_AT_DEFAULT);
  append(spool, 1);
  off_t whole = file_size("spool");
  append(spool, 2);
  spool_close(spool);
  off_t both = file_size("spool");
  cleanup_free char *path = file_path("spool");
  for (off_t cut = whole + 1; cut < both; cut++) {
    cr_assert_eq(truncate(path, cut), 0);
    spool = open_spool(SPOOL_SHORTEN_AT_DEFAULT);
    cr_expect_eq(expect_waiting(spool, 1), 1);
    cr_expect_eq(file_size("spool"), whole);
    cr_expect_eq(append(spool, 2), 2);
    spool_close(spool);
  }
}

Test(agent_spool, drops_a_changed_record_at_the_end) {
  struct spool *spool = open_spool(SPOOL_SHORTEN_AT_DEFAULT);
  append(spool, 1);
  off_t whole = file_size("spool");
  append(spool, 2);
  spool_close(spool);
  cleanup_free char *path = file_path("spool");
  cleanup_fd int fd = open(path, O_WRONLY);
  cr_assert_eq(pwrite(fd, "X", 1, file_size("spool") - 2), 1);
  spool = open_spool(SPOOL_SHORTEN_AT_DEFAULT);
  cr_expect_eq(expect_waiting(spool, 1), 1);
  cr_expect_eq(file_size("spool"), whole);
  spool_close(spool);
}

Test(agent_spool, refuses_a_record_whose_header_states_a_huge_length) {
  struct spool *spool = open_spool(SPOOL_SHORTEN_AT_DEFAULT);
  append(spool, 1);
  spool_close(spool);
  uint32_t header[6] = {0x57545350u, UINT32_MAX, 2, 0, 0, 0};
  append_bytes("spool", header, sizeof header);
  spool = open_spool(SPOOL_SHORTEN_AT_DEFAULT);
  cr_expect_eq(expect_waiting(spool, 1), 1);
  spool_close(spool);
}

Test(agent_spool, empties_the_file_when_all_is_acknowledged_and_continues_the_numbers) {
  struct spool *spool = open_spool(0);
  append(spool, 1);
  append(spool, 2);
  cr_assert(spool_acknowledge(spool, 1, &error));
  cr_expect_gt(file_size("spool"), 0);
  cr_assert(spool_acknowledge(spool, 2, &error));
  cr_expect_eq(file_size("spool"), 0);
  cr_expect_eq(append(spool, 3), 3);
  cr_expect_eq(expect_waiting(spool, 3), 1);
  cr_assert(spool_acknowledge(spool, 3, &error));
  spool_close(spool);
  spool = open_spool(0);
  cr_expect_eq(append(spool, 4), 4);
  spool_close(spool);
}

Test(agent_spool, is_shortened_while_some_records_always_wait) {
  struct spool *spool = open_spool(0);
  append(spool, 1);
  off_t one = file_size("spool");
  for (int i = 2; i < 100; i++) {
    append(spool, i);
    cr_assert(spool_acknowledge(spool, (uint64_t)i - 1, &error), "%s", error.message);
    cr_expect_leq(file_size("spool"), 2 * one + 2);
  }
  cr_expect_eq(expect_waiting(spool, 99), 1);
  append(spool, 100);
  spool_close(spool);
  spool = open_spool(0);
  cr_expect_eq(expect_waiting(spool, 99), 2);
  cr_expect_eq(append(spool, 101), 101);
  spool_close(spool);
}

#define DEVICES 4
#define OF_A_DEVICE 300

static void *device_append(void *spool) {
  for (int i = 0; i < OF_A_DEVICE; i++)
    append(spool, i);
  return NULL;
}

Test(agent_spool, loses_nothing_that_devices_append_while_it_is_shortened) {
  struct spool *spool = open_spool(64);
  pthread_t devices[DEVICES];
  struct spool_record records[32];
  uint64_t seen = 0;
  for (size_t i = 0; i < DEVICES; i++)
    cr_assert_eq(pthread_create(&devices[i], NULL, device_append, spool), 0);
  while (seen < DEVICES * OF_A_DEVICE) {
    size_t n;
    spool_wait(spool, 1000);
    cr_assert(spool_peek(spool, records, ARRAY_LENGTH(records), &n, &error), "%s", error.message);
    for (size_t i = 0; i < n; i++) {
      cr_assert_eq(records[i].number, ++seen);
      json_decref(records[i].json);
    }
    cr_assert(n == 0 || spool_acknowledge(spool, seen, &error), "%s", error.message);
  }
  for (size_t i = 0; i < DEVICES; i++)
    pthread_join(devices[i], NULL);
  cr_expect(spool_is_empty(spool));
  spool_close(spool);
  spool = open_spool(64);
  cr_expect_eq(append(spool, 0), DEVICES * OF_A_DEVICE + 1);
  spool_close(spool);
}

Test(agent_spool, stays_as_it_is_when_it_cannot_be_shortened) {
  struct spool *spool = open_spool(0);
  cleanup_free char *in_the_way = file_path("spool.new");
  append(spool, 1);
  append(spool, 2);
  cr_assert_eq(mkdir(in_the_way, 0700), 0);
  off_t size = file_size("spool");
  cr_assert(spool_acknowledge(spool, 1, &error), "%s", error.message);
  cr_expect_eq(file_size("spool"), size);
  append(spool, 3);
  cr_expect_eq(expect_waiting(spool, 2), 2);
  cr_assert_eq(rmdir(in_the_way), 0);
  cr_assert(spool_acknowledge(spool, 2, &error), "%s", error.message);
  cr_expect_lt(file_size("spool"), size);
  cr_expect_eq(expect_waiting(spool, 3), 1);
  spool_close(spool);
}

Test(agent_spool, refuses_a_second_agent_on_the_same_folder) {
  struct spool *spool = open_spool(0), *second;
  cr_expect_not(spool_open(folder, 0, &second, &error));
  cr_expect_not_null(strstr(error.message, "another agent works in"));
  spool_close(spool);
  spool = open_spool(0);
  spool_close(spool);
}

Test(agent_spool, refuses_a_folder_that_does_not_exist) {
  struct spool *spool;
  cr_expect_not(spool_open("/nonexistent/wavetune", 0, &spool, &error));
  cr_expect_not_null(strstr(error.message, "--state"));
}

Test(agent_spool, refuses_an_acknowledged_number_that_is_not_a_number) {
  cleanup_free char *path = file_path("spool.acknowledged");
  cr_assert(file_write_atomically(path, "many\n", 5, 0600, &error));
  struct spool *spool;
  cr_expect_not(spool_open(folder, 0, &spool, &error));
  cr_expect_not_null(strstr(error.message, "does not hold a record number"));
}

Test(agent_spool, reports_a_full_disk_and_stays_usable) {
  struct spool *spool = open_spool(0);
  append(spool, 1);
  off_t before = file_size("spool");
  signal(SIGXFSZ, SIG_IGN);
  struct rlimit limit = {(rlim_t)before + 10, RLIM_INFINITY};
  cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
  cleanup_json json_t *record = json_pack("{s:i}", "value", 2);
  uint64_t number;
  cr_expect_not(spool_append(spool, record, &number, &error));
  cr_expect_not_null(strstr(error.message, "cannot write to the spool"));
  limit.rlim_cur = RLIM_INFINITY;
  cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
  cr_expect_eq(file_size("spool"), before);
  cr_expect_eq(append(spool, 2), 2);
  cr_expect_eq(expect_waiting(spool, 1), 2);
  spool_close(spool);
}

Test(agent_spool, refuses_a_record_that_is_too_large) {
  struct spool *spool = open_spool(0);
  cleanup_free char *text = xmalloc(SPOOL_RECORD_MAX + 1);
  memset(text, 'x', SPOOL_RECORD_MAX);
  text[SPOOL_RECORD_MAX] = '\0';
  cleanup_json json_t *record = json_string(text);
  uint64_t number;
  cr_expect_not(spool_append(spool, record, &number, &error));
  cr_expect(spool_is_empty(spool));
  spool_close(spool);
}

Test(agent_spool, a_wait_ends_when_a_record_is_appended_or_a_thread_wakes_it) {
  struct spool *spool = open_spool(0);
  spool_wake(spool);
  spool_wait(spool, 3600 * 1000);
  append(spool, 1);
  spool_wait(spool, 3600 * 1000);
  cr_assert(spool_acknowledge(spool, 1, &error));
  spool_wait(spool, 1);
  cr_expect(spool_is_empty(spool));
  spool_close(spool);
}
