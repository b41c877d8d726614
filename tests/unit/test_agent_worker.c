/* The worker as its supervisor sees it: a child with a socket as fd 3 and a shared page as fd 4. */
#include "tests/unit/agent_fixture.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/worker/worker.h"
#include "agent/worker/worker_bundle.h"
#include "common/kernel/kernel_folder.h"

#define MISBEHAVING SOURCE_FOLDER "/tests/data/kernels/misbehaving"

enum mode { GOOD, SLOW, WRONG, CRASH, HANG, NO_COMPILE, OUT_OF_BOUNDS, UNWRITTEN };

struct child {
  pid_t pid;
  FILE *from;
  int to;
  struct worker_status *status;
  struct kernel_folder *folder;
  struct compile_pool *pool;
  char *scratch;
  pid_t references[8];
  int n_references;
};

/* A worker's process, with the page and the socket as its supervisor gives them. */
static pid_t worker_fork(int socket, int page) {
  pid_t pid = fork();
  cr_assert_geq(pid, 0);
  if (pid == 0) {
    signal(SIGSEGV, SIG_DFL);
    int high[] = {fcntl(socket, F_DUPFD, 10), fcntl(page, F_DUPFD, 10)};
    dup2(high[0], WORKER_SOCKET_FD);
    dup2(high[1], WORKER_STATUS_FD);
    close_range(5, ~0u, 0);
    _exit(worker_main());
  }
  return pid;
}

static struct child child_start(void) {
  struct child child = {0};
  struct error error = {0};
  char scratch[] = "/tmp/wavetune-test-XXXXXX";
  int sockets[2], page = memfd_create("status", 0);
  cr_assert_not_null(mkdtemp(scratch));
  child.scratch = xstrdup(scratch);
  cr_assert(kernel_folder_load(MISBEHAVING, &child.folder, &error), "%s", error.message);
  cr_assert_eq(ftruncate(page, 4096), 0);
  child.status = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, page, 0);
  cr_assert_neq(child.status, MAP_FAILED);
  cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
  /* Before the pool has threads: what they hold locked would stay so in a child that goes on
   * without exec. */
  child.pid = worker_fork(sockets[1], page);
  close(sockets[1]);
  close(page);
  cr_assert(compile_pool_new(scratch, 2, &child.pool, &error), "%s", error.message);
  child.to = sockets[0];
  child.from = fdopen(dup(sockets[0]), "r");
  return child;
}

/* Ends the worker by closing its socket, and returns its wait status. */
static int child_end(struct child *child) {
  struct error error;
  int status;
  shutdown(child->to, SHUT_WR);
  cr_assert_eq(waitpid(child->pid, &status, 0), child->pid);
  for (int i = 0; i < child->n_references; i++)
    cr_assert_eq(waitpid(child->references[i], NULL, 0), child->references[i]);
  fclose(child->from);
  close(child->to);
  munmap(child->status, 4096);
  kernel_folder_free(child->folder);
  compile_pool_free(child->pool);
  cr_expect(folder_remove(child->scratch, &error));
  free(child->scratch);
  return status;
}

static void send_text(struct child *child, const char *text) {
  cr_assert(fd_write_all(child->to, text, strlen(text)) && fd_write_all(child->to, "\n", 1));
}

static void object_state(json_t *objects, const json_t *path) {
  cleanup_free char *bytes = NULL;
  char text[DIGEST_TEXT_SIZE];
  struct error error;
  size_t size;
  if (!path || !file_read(json_string_value(path), SIZE_MAX / 2, &bytes, &size, &error))
    return;
  struct digest digest = digest_of(bytes, size);
  json_object_set_new(objects, json_string_value(path), json_string(digest_format(&digest, text)));
}

/* Adds "objects": the digests of the files that a request names, as they are now. */
static void objects_state(json_t *request) {
  const json_t *configs = json_object_get(request, "configs");
  json_t *objects = json_object();
  const char *digest;
  json_t *path;
  object_state(objects, json_object_get(request, "reference_object"));
  object_state(objects, json_object_get(request, "expected"));
  json_object_foreach (json_object_get(request, "blobs"), digest, path)
    object_state(objects, path);
  object_state(objects, json_object_get(json_object_get(request, "baseline"), "object"));
  for (size_t i = 0; i < json_array_size(configs); i++)
    object_state(objects, json_object_get(json_array_get(configs, i), "object"));
  json_object_set_new(request, "objects", objects);
}

/* Sends a request with the objects that it names, and with another descriptor (-1: none). */
static void send_request_to(int socket, json_t *request, int fd) {
  struct error error;
  int fds[WORKER_REQUEST_FDS], bundle = -1;
  size_t n = 0;
  objects_state(request);
  cr_assert(bundle_pack(request, &bundle, &error), "%s", error.message);
  if (bundle >= 0)
    fds[n++] = bundle;
  if (fd >= 0)
    fds[n++] = fd;
  cleanup_free char *text = json_dumps(request, JSON_COMPACT), *line = xasprintf("%s\n", text);
  cr_assert_eq(descriptors_send(socket, line, strlen(line), fds, n), (ssize_t)strlen(line));
  for (size_t i = 0; i < n; i++)
    close(fds[i]);
  json_decref(request);
}

static void send_request(struct child *child, json_t *request) {
  send_request_to(child->to, request, -1);
}

/* Starts the process of a reference and returns the socket to it. */
static int reference_start(struct child *child, const char *object) {
  int ends[2], sockets[2];
  cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
  cleanup_fd int page = memfd_create("status", 0);
  cr_assert_eq(ftruncate(page, 4096), 0);
  cr_assert_lt(child->n_references, (int)ARRAY_LENGTH(child->references));
  child->references[child->n_references++] = worker_fork(sockets[1], page);
  close(sockets[1]);
  send_request_to(sockets[0],
                  json_pack("{s:s, s:O, s:{s:i}, s:O, s:i, s:s, s:s, s:i, s:s}", "do", "reference",
                            "kernel", child->folder->kernel->json, "key", "n", 1000, "space",
                            child->folder->space->json, "seed", 7, "gpu_name", "a CPU", "arch",
                            "x86_64", "config", GOOD, "reference_object", object),
                  ends[1]);
  close(sockets[0]);
  return ends[0];
}

/* The next answer, or NULL when the worker is gone. */
static json_t *receive(struct child *child) {
  char *line = NULL;
  size_t size = 0;
  if (getline(&line, &size, child->from) <= 0) {
    free(line);
    return NULL;
  }
  json_t *answer = fixture_json(line);
  free(line);
  return answer;
}

static char *object_of(struct child *child, uint64_t config, bool is_reference) {
  struct error error = {0};
  struct key key;
  json_t *json = fixture_json("{\"n\": 1000}");
  cr_assert(key_parse(json, NULL, 0, &key, &error));
  json_decref(json);
  struct compile_request request = {.kernel = child->folder->kernel,
                                    .key = &key,
                                    .space = child->folder->space,
                                    .config = config,
                                    .is_reference = is_reference,
                                    .sources = MISBEHAVING};
  struct compile_result result =
      compile_pool_wait(child->pool, compile_pool_submit(child->pool, &request));
  cr_assert(result.ok, "%s", result.error.message);
  key_release(&key);
  return result.object;
}

static void send_open(struct child *child, uint64_t baseline, const char *regime) {
  char *object = object_of(child, baseline, false), *reference = object_of(child, 0, true);
  send_request_to(child->to,
                  json_pack("{s:s, s:s, s:O, s:{s:i}, s:O, s:i, s:s, s:b, s:{s:I, s:s}}", "do",
                            "open", "device", "cpu0", "kernel", child->folder->kernel->json, "key",
                            "n", 1000, "space", child->folder->space->json, "seed", 7, "regime",
                            regime, "reference", true, "baseline", "config", (json_int_t)baseline,
                            "object", object),
                  reference_start(child, reference));
  free(object);
  free(reference);
}

#define ROUNDS(n) "\"rounds_min\":" #n ",\"rounds_max\":" #n ",\"precision\":0"

/* Limits are members of "measure". */
static void send_measure_within(struct child *child, const enum mode *modes, size_t n,
                                const char *limits) {
  json_t *configs = json_array(), *request = fixture_json(limits);
  for (size_t i = 0; i < n; i++) {
    char *object = object_of(child, modes[i], false);
    json_array_append_new(configs, json_pack("{s:i, s:s}", "config", modes[i], "object", object));
    free(object);
  }
  json_object_set_new(request, "do", json_string("measure"));
  json_object_set_new(request, "configs", configs);
  send_request(child, request);
}

static void send_measure(struct child *child, const enum mode *modes, size_t n) {
  send_measure_within(child, modes, n, "{" ROUNDS(4) "}");
}

/* With an object that is none. */
static void send_measure_of_text(struct child *child, const char *launch) {
  cleanup_free char *path = xasprintf("%s/text", child->scratch);
  struct error error;
  cr_assert(file_write_atomically(path, "no object", 9, 0600, &error));
  send_request(child, json_pack("{s:s, s:i, s:i, s:i, s:[{s:i, s:s, s:o}]}", "do", "measure",
                                "rounds_min", 3, "rounds_max", 3, "precision", 0, "configs",
                                "config", 0, "object", path, "launch", fixture_json(launch)));
}

static void expect_member(struct child *child, const char *member, const char *part) {
  json_t *answer = receive(child);
  cr_assert_not_null(answer, "the worker is gone");
  const json_t *value = json_object_get(answer, member);
  char *text = json_dumps(answer, 0);
  cr_expect(value, "%s", text);
  cr_expect(!part || (json_is_string(value) && strstr(json_string_value(value), part)), "%s", text);
  free(text);
  json_decref(answer);
}

static void open_good(struct child *child) {
  send_open(child, GOOD, "warm");
  expect_member(child, "opened", NULL);
}

Test(worker, probe_lists_the_devices) {
  struct child child = child_start();
  send_text(&child, "{\"do\": \"probe\"}");
  json_t *answer = receive(&child);
  cr_assert_not_null(answer);
  json_t *device = json_array_get(json_object_get(answer, "devices"), 0);
  cr_expect_str_eq(json_string_value(json_object_get(device, "device")), "cpu0");
  cr_expect_str_neq(
      json_string_value(json_object_get(json_object_get(device, "environment"), "gpu")), "");
  json_decref(answer);
  int status = child_end(&child);
  cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%d", status);
}

Test(worker, a_screen_gives_pairs_for_one_config) {
  struct child child = child_start();
  send_open(&child, GOOD, "cold");
  expect_member(&child, "opened", NULL);
  send_measure(&child, (enum mode[]){GOOD}, 1);
  json_t *answer = receive(&child);
  cr_assert_not_null(answer);
  cr_expect_eq(json_integer_value(json_object_get(answer, "config")), GOOD);
  cr_expect_str_eq(json_string_value(json_object_get(answer, "outcome")), "correct");
  cr_expect_str_eq(json_string_value(json_object_get(answer, "timer")), "clock_monotonic_raw");
  cr_expect_str_eq(json_string_value(json_object_get(answer, "end")), "rounds");
  const json_t *conditions = json_object_get(answer, "conditions");
  json_int_t rejected = json_integer_value(json_object_get(conditions, "rounds_rejected"));
  cr_expect_eq(json_integer_value(json_object_get(conditions, "rounds")), 4);
  cr_expect_eq(json_array_size(json_object_get(answer, "samples_us")), 4 - rejected);
  cr_expect_eq(json_array_size(json_object_get(answer, "baseline_us")), 4 - rejected);
  cr_expect_gt(json_integer_value(json_object_get(conditions, "displacement_bytes")), 0);
  cr_expect_gt(json_integer_value(json_object_get(answer, "device_us")), 0);
  cr_expect_not_null(json_object_get(answer, "clock_mhz"));
  json_decref(answer);
  expect_member(&child, "done", NULL);
  child_end(&child);
}

Test(worker, opening_reports_its_times) {
  struct child child = child_start();
  send_open(&child, GOOD, "warm");
  json_t *answer = receive(&child);
  cr_assert_not_null(answer);
  const json_t *spent = json_object_get(answer, "spent");
  cr_expect_gt(json_integer_value(json_object_get(spent, "baseline_us")), 0);
  cr_expect_eq(json_object_size(spent), 4);
  json_decref(answer);
  child_end(&child);
}

#define SCREEN "\"rounds_min\":2,\"rounds_max\":16,\"margin\":0.05,\"precision\":0.02"

Test(worker, a_config_that_leaves_is_answered_before_the_others) {
  struct child child = child_start();
  open_good(&child);
  send_measure_within(&child, (enum mode[]){GOOD, SLOW}, 2,
                      "{" SCREEN ",\"device_us\":null,\"best_ratio\":null}");
  json_t *answer = receive(&child);
  cr_assert_not_null(answer);
  cr_expect_eq(json_integer_value(json_object_get(answer, "config")), SLOW);
  cr_expect_str_eq(json_string_value(json_object_get(answer, "end")), "far");
  cr_expect_eq(json_array_size(json_object_get(answer, "samples_us")), 1);
  json_decref(answer);
  expect_member(&child, "samples_us", NULL);
  expect_member(&child, "done", NULL);
  child_end(&child);
}

Test(worker, the_best_ratio_of_others_is_a_runner) {
  struct child child = child_start();
  open_good(&child);
  send_measure_within(&child, (enum mode[]){GOOD}, 1,
                      "{" SCREEN ",\"best_ratio\":0.01,\"serial\":true}");
  expect_member(&child, "end", "far");
  expect_member(&child, "done", NULL);
  child_end(&child);
}

Test(worker, a_budget_leaves_configs_without_a_line) {
  struct child child = child_start();
  open_good(&child);
  send_measure_within(&child, (enum mode[]){GOOD, SLOW}, 2, "{" SCREEN ",\"device_us\":1}");
  json_t *answer = receive(&child);
  cr_assert_not_null(answer);
  cr_expect_eq(json_integer_value(json_object_get(answer, "config")), GOOD);
  cr_expect_str_eq(json_string_value(json_object_get(answer, "end")), "budget");
  cr_expect_eq(json_array_size(json_object_get(answer, "samples_us")), 1);
  json_decref(answer);
  answer = receive(&child);
  cr_assert_not_null(answer);
  cr_expect(json_is_true(json_object_get(answer, "done")));
  cr_expect(json_is_true(json_object_get(answer, "over_budget")));
  json_decref(answer);
  child_end(&child);
}

Test(worker, a_budget_leaves_out_no_config_of_a_whole_race) {
  struct child child = child_start();
  open_good(&child);
  send_measure_within(&child, (enum mode[]){GOOD, SLOW}, 2,
                      "{" ROUNDS(2) ",\"device_us\":1,\"whole\":true}");
  for (int i = 0; i < 2; i++) {
    json_t *answer = receive(&child);
    cr_assert_not_null(answer);
    cr_expect_eq(json_array_size(json_object_get(answer, "samples_us")), 2);
    json_decref(answer);
  }
  expect_member(&child, "done", NULL);
  child_end(&child);
}

Test(worker, the_end_of_a_measurement_reports_its_times) {
  struct child child = child_start();
  open_good(&child);
  send_measure(&child, (enum mode[]){GOOD}, 1);
  expect_member(&child, "samples_us", NULL);
  json_t *answer = receive(&child);
  cr_assert_not_null(answer);
  const json_t *spent = json_object_get(answer, "spent");
  cr_expect(json_is_false(json_object_get(answer, "over_budget")));
  cr_expect_gt(json_integer_value(json_object_get(spent, "load_us")), 0);
  cr_expect_gt(json_integer_value(json_object_get(spent, "warm_up_us")), 0);
  cr_expect_gt(json_integer_value(json_object_get(spent, "timing_us")), 0);
  cr_expect(json_is_integer(json_object_get(spent, "check_us")));
  json_decref(answer);
  child_end(&child);
}

Test(worker, what_was_closed_is_not_open_and_can_be_opened_again) {
  struct child child = child_start();
  open_good(&child);
  send_text(&child, "{\"do\": \"close\"}");
  expect_member(&child, "closed", NULL);
  send_measure(&child, (enum mode[]){GOOD}, 1);
  expect_member(&child, "error", "nothing is open");
  open_good(&child);
  send_measure(&child, (enum mode[]){GOOD}, 1);
  expect_member(&child, "samples_us", NULL);
  expect_member(&child, "done", NULL);
  send_text(&child, "{\"do\": \"close\", \"now\": true}");
  expect_member(&child, "error", "");
  child_end(&child);
}

Test(worker, a_device_that_passed_its_sentinel_is_opened) {
  struct child child = child_start();
  send_text(&child, "{\"do\": \"sentinel\", \"device\": \"cpu0\"}");
  expect_member(&child, "passed", NULL);
  open_good(&child);
  child_end(&child);
}

Test(worker, a_final_answers_for_every_config) {
  struct child child = child_start();
  open_good(&child);
  send_measure(&child, (enum mode[]){SLOW, WRONG, GOOD}, 3);
  size_t n_correct = 0, n_wrong = 0;
  for (int i = 0; i < 3; i++) {
    json_t *answer = receive(&child);
    cr_assert_not_null(answer);
    const char *outcome = json_string_value(json_object_get(answer, "outcome"));
    n_correct += string_equal(outcome, "correct");
    n_wrong += string_equal(outcome, "correctness");
    json_decref(answer);
  }
  cr_expect_eq(n_correct, 2);
  cr_expect_eq(n_wrong, 1);
  expect_member(&child, "done", NULL);
  child_end(&child);
}

static void expect_incorrect(struct child *child, enum mode mode, const char *detail) {
  open_good(child);
  send_measure(child, &mode, 1);
  json_t *answer = receive(child);
  cr_assert_not_null(answer);
  cr_expect_str_eq(json_string_value(json_object_get(answer, "outcome")), "correctness");
  cr_expect(string_starts(json_string_value(json_object_get(answer, "detail")), detail), "%s",
            json_string_value(json_object_get(answer, "detail")));
  json_decref(answer);
}

static void expect_incorrect_and_going_on(enum mode mode, const char *detail) {
  struct child child = child_start();
  expect_incorrect(&child, mode, detail);
  expect_member(&child, "done", NULL);
  /* The next config does not fail because of it. */
  send_measure(&child, (enum mode[]){GOOD}, 1);
  expect_member(&child, "samples_us", NULL);
  expect_member(&child, "done", NULL);
  child_end(&child);
}

Test(worker, a_wrong_value_has_the_outcome_correctness) {
  expect_incorrect_and_going_on(WRONG, "y[0] is ");
}
Test(worker, an_unwritten_element_has_the_outcome_correctness) {
  expect_incorrect_and_going_on(UNWRITTEN, "y[999] was not written");
}

Test(worker, a_write_out_of_bounds_has_the_outcome_correctness_and_ends_the_worker) {
  struct child child = child_start();
  expect_incorrect(&child, OUT_OF_BOUNDS, "argument \"y\": ");
  cr_expect_null(receive(&child), "what else it wrote to, nobody knows");
  cr_expect_eq(atomic_load(&child.status->config), OUT_OF_BOUNDS);
  int status = child_end(&child);
  cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 3, "%d", status);
}

Test(worker, a_device_that_works_passes_its_sentinel) {
  struct child child = child_start();
  send_text(&child, "{\"do\": \"sentinel\", \"device\": \"cpu0\"}");
  json_t *answer = receive(&child);
  cr_expect(json_is_true(json_object_get(answer, "passed")));
  json_decref(answer);
  child_end(&child);
}

Test(worker, a_device_that_cannot_be_opened_does_not_pass_its_sentinel) {
  struct child child = child_start();
  send_text(&child, "{\"do\": \"sentinel\", \"device\": \"cpu7\"}");
  json_t *answer = receive(&child);
  cr_expect(json_is_false(json_object_get(answer, "passed")));
  cr_expect_not_null(strstr(json_string_value(json_object_get(answer, "error")), "cpu7"));
  json_decref(answer);
  child_end(&child);
}

Test(worker, an_answer_has_the_facts_of_the_launch_and_of_the_device) {
  struct child child = child_start();
  open_good(&child);
  send_measure(&child, (enum mode[]){GOOD}, 1);
  json_t *answer = receive(&child);
  cr_assert_not_null(answer);
  cr_expect_null(json_object_get(answer, "occupancy"), "there is no such thing on a CPU");
  cr_expect_null(json_object_get(answer, "lds_bytes"));
  cr_expect(json_is_object(json_object_get(answer, "conditions")));
  json_decref(answer);
  child_end(&child);
}

/* The manifest is for a GPU, but the objects are for the CPU, which ignores a geometry. */
static void send_open_for_gpu(struct child *child) {
  char *object = object_of(child, GOOD, false), *reference = object_of(child, 0, true);
  json_t *manifest = json_deep_copy(child->folder->kernel->json);
  json_object_set_new(manifest, "language", json_string("hip"));
  json_object_set_new(manifest, "launch", fixture_json("{\"grid\": [\"cus\"], \"block\": [256]}"));
  send_request_to(child->to,
                  json_pack("{s:s, s:s, s:o, s:{s:i}, s:O, s:i, s:s, s:b, s:{s:i, s:s}}", "do",
                            "open", "device", "cpu0", "kernel", manifest, "key", "n", 1000, "space",
                            child->folder->space->json, "seed", 7, "regime", "warm", "reference",
                            true, "baseline", "config", GOOD, "object", object),
                  reference_start(child, reference));
  free(object);
  free(reference);
}

Test(worker, what_cannot_run_has_the_outcome_constraints_and_is_not_loaded) {
  struct child child = child_start();
  send_open_for_gpu(&child);
  expect_member(&child, "opened", NULL);
  send_measure_of_text(&child, "{\"resources\":{\"workgroup_max\":64}}");
  json_t *answer = receive(&child);
  cr_assert_not_null(answer);
  cr_expect_str_eq(json_string_value(json_object_get(answer, "outcome")), "constraints");
  cr_expect_not_null(strstr(json_string_value(json_object_get(answer, "detail")),
                            "has 256 threads in a workgroup"));
  json_decref(answer);
  expect_member(&child, "done", NULL);
  child_end(&child);
}

Test(worker, a_launch_with_an_argument_that_the_manifest_lacks_has_the_outcome_runtime) {
  struct child child = child_start();
  open_good(&child);
  send_measure_of_text(&child, "{\"arguments\":[\"z\"]}");
  expect_member(&child, "detail", "the object takes an argument \"z\"");
  expect_member(&child, "done", NULL);
  child_end(&child);
}

Test(worker, a_crash_ends_only_the_child_and_the_page_names_the_culprit) {
  struct child child = child_start();
  open_good(&child);
  send_measure(&child, (enum mode[]){GOOD, CRASH}, 2);
  json_t *answer;
  while ((answer = receive(&child)))
    json_decref(answer);
  cr_expect_eq(atomic_load(&child.status->config), CRASH);
  cr_expect_eq(atomic_load(&child.status->phase), WORKER_CHECKING);
  cr_expect_gt(atomic_load(&child.status->since_ns), 0);
  int status = child_end(&child);
  cr_expect(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV, "%d", status);
}

Test(worker, a_hang_is_seen_in_the_page_and_can_be_killed) {
  struct child child = child_start();
  open_good(&child);
  send_measure(&child, (enum mode[]){HANG}, 1);
  for (int i = 0; i < 20000 && atomic_load(&child.status->config) != HANG; i++)
    usleep(5000);
  cr_expect_eq(atomic_load(&child.status->config), HANG);
  cr_assert_eq(kill(child.pid, SIGKILL), 0);
  int status = child_end(&child);
  cr_expect(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

Test(worker, no_config_has_the_turn_between_requests) {
  struct child child = child_start();
  open_good(&child);
  send_measure(&child, (enum mode[]){GOOD}, 1);
  expect_member(&child, "samples_us", NULL);
  expect_member(&child, "done", NULL);
  send_text(&child, "{}"); /* its answer comes after the end of the request before it */
  expect_member(&child, "error", NULL);
  cr_expect_eq(atomic_load(&child.status->config), WORKER_CONFIG_NONE);
  cr_expect_eq(atomic_load(&child.status->phase), WORKER_IDLE);
  child_end(&child);
}

Test(worker, a_wrong_baseline_is_the_outcome_of_open) {
  struct child child = child_start();
  send_open(&child, WRONG, "warm");
  json_t *answer = receive(&child);
  cr_assert_not_null(answer);
  cr_expect_str_eq(json_string_value(json_object_get(answer, "outcome")), "correctness");
  json_decref(answer);
  send_measure(&child, (enum mode[]){GOOD}, 1);
  expect_member(&child, "error", "nothing is open");
  child_end(&child);
}

Test(worker, open_may_be_repeated) {
  struct child child = child_start();
  open_good(&child);
  send_open(&child, SLOW, "cold");
  expect_member(&child, "opened", NULL);
  send_measure(&child, (enum mode[]){GOOD}, 1);
  expect_member(&child, "samples_us", NULL);
  expect_member(&child, "done", NULL);
  child_end(&child);
}

Test(worker, an_object_that_cannot_be_loaded_has_the_outcome_runtime) {
  struct child child = child_start();
  open_good(&child);
  send_measure_of_text(&child, "{}");
  expect_member(&child, "detail", "cannot load misbehaving: ");
  expect_member(&child, "done", NULL);
  child_end(&child);
}

Test(worker, an_object_that_did_not_come_with_its_request_is_not_looked_for) {
  struct child child = child_start();
  open_good(&child);
  char *object = object_of(&child, GOOD, false);
  cleanup_free char *text = xasprintf(
      "{\"do\":\"measure\"," ROUNDS(3) ",\"configs\":[{\"config\":0,\"object\":\"%s\"}]}", object);
  send_text(&child, text);
  expect_member(&child, "error", "the object /tmp/wavetune-test-");
  free(object);
  child_end(&child);
}

static bool pack(const char *path, const char *digest, int *ret_fd, struct error *error) {
  cleanup_json json_t *request = json_pack("{s:{s:s}}", "objects", path, digest);
  return bundle_pack(request, ret_fd, error);
}

Test(worker, objects_are_handed_on_only_as_they_were_compiled) {
  char path[] = "/tmp/wavetune-test-XXXXXX", text[DIGEST_TEXT_SIZE], read_back[9];
  struct digest digest = digest_of("compiled", 8);
  struct error error;
  int file = mkstemp(path), fd;
  digest_format(&digest, text);
  cr_assert(file >= 0 && fd_write_all(file, "compiled", 8));
  cr_assert(pack(path, text, &fd, &error), "%s", error.message);
  cr_expect_eq(pread(fd, read_back, sizeof read_back, 0), 8);
  cr_expect_lt(pwrite(fd, "x", 1, 0), 0, "what was handed on can be changed");
  close(fd);

  cr_assert_eq(pwrite(file, "C", 1, 0), 1);
  cr_expect_not(pack(path, text, &fd, &error));
  cr_expect_not_null(strstr(error.message, "its bytes are not those that were compiled"), "%s",
                     error.message);
  cr_assert_eq(ftruncate(file, 0), 0);
  cr_expect_not(pack(path, text, &fd, &error));
  unlink(path);
  cr_expect_not(pack(path, text, &fd, &error));
  cr_expect_not_null(strstr(error.message, path), "%s", error.message);
  close(file);
}

Test(worker, what_it_does_not_understand_is_an_error_and_not_the_end) {
  static const struct {
    const char *request, *error;
  } cases[] = {
      {"{", ""},
      {"{\"do\": \"dance\"}", "dance"},
      {"{\"do\": \"probe\", \"now\": true}", ""},
      {"{\"do\": \"open\"}", ""},
      {"{\"do\": \"measure\", " ROUNDS(3) ", \"configs\": []}", "nothing is open"},
      {"{\"do\":\"open\",\"device\":\"cpu0\",\"kernel\":{},\"key\":{},\"space\":{},\"seed\":1,"
       "\"regime\":\"tepid\","
       "\"baseline\":{\"config\":0,\"object\":\"\"}}",
       "tepid"},
      {"{\"do\":\"open\",\"device\":\"cpu0\",\"kernel\":{},\"key\":{},\"space\":{},\"seed\":1,"
       "\"regime\":\"warm\","
       "\"baseline\":{\"config\":0,\"object\":\"\",\"launch\":{\"scratch\":9}}}",
       "\"scratch\""},
      {"{\"do\": \"sentinel\"}", ""},
  };
  struct child child = child_start();
  for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
    send_text(&child, cases[i].request);
    expect_member(&child, "error", cases[i].error);
  }
  open_good(&child);
  send_text(&child,
            "{\"do\":\"measure\"," ROUNDS(3) ",\"configs\":[{\"config\":99,\"object\":\"\"}]}");
  expect_member(&child, "error", "");
  static const char *const limits[] = {
      ROUNDS(0),
      "\"rounds_min\":3,\"rounds_max\":2,\"precision\":0",
      "\"rounds_min\":1,\"rounds_max\":2",
      ROUNDS(2) ",\"margin\":-0.1",
      ROUNDS(2) ",\"device_us\":0",
      ROUNDS(2) ",\"best_ratio\":-1",
      ROUNDS(2) ",\"serial\":1",
  };
  for (size_t i = 0; i < ARRAY_LENGTH(limits); i++) {
    char *text = xasprintf("{\"do\":\"measure\",%s,\"configs\":[]}", limits[i]);
    send_text(&child, text);
    expect_member(&child, "error", "");
    free(text);
  }
  int status = child_end(&child);
  cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%d", status);
}

#define CAPTURED                                                                                   \
  "{\"name\": \"captured/f\", \"language\": \"triton\", \"entry\": \"f\", \"cases\": \"build\", "  \
  "\"sources\": [{\"path\": \"f.py\", \"digest\": \"" DIGEST                                       \
  "\"}], \"key\": [\"n\"], \"arguments\": "                                                        \
  "[{\"name\": \"x\", \"dtype\": \"int8\", \"kind\": \"buffer\"}]}"
#define DIGEST "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define CASE(fill)                                                                                 \
  "{\"arguments\": {\"x\": {\"elements\": 4, \"access\": \"read\", \"fill\": " fill "}}}"

Test(worker, a_captured_kernel_comes_with_its_case_and_its_bytes) {
  static const struct {
    const char *kernel, *of_key;
    bool has_blob;
    const char *error;
    bool has_expected;
  } cases[] = {
      {NULL, CASE("\"zeros\""), false, "only a captured kernel has a case"},
      {CAPTURED, NULL, false, "comes with the case of its key"},
      {CAPTURED, CASE("\"normal\""), false, "needs a fill"},
      {CAPTURED, CASE("{\"blob\": \"" DIGEST "\"}"), false, "did not come with the request"},
      {CAPTURED, CASE("{\"blob\": \"" DIGEST "\"}"), true, "has 4 bytes and its blob 9"},
      {NULL, NULL, false, "only a captured kernel has expected values", true},
      {CAPTURED, CASE("\"zeros\""), false, "expected values: ", true},
  };
  struct child child = child_start();
  cleanup_free char *path = xasprintf("%s/text", child.scratch);
  struct error error;
  cr_assert(file_write_atomically(path, "no object", 9, 0600, &error));
  for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
    json_t *kernel =
        cases[i].kernel ? fixture_json(cases[i].kernel) : json_incref(child.folder->kernel->json);
    json_t *request =
        json_pack("{s:s, s:s, s:o, s:{s:i}, s:O, s:i, s:s, s:{s:i, s:s}}", "do", "open", "device",
                  "cpu0", "kernel", kernel, "key", "n", 1000, "space", child.folder->space->json,
                  "seed", 7, "regime", "warm", "baseline", "config", 0, "object", path);
    if (cases[i].of_key)
      json_object_set_new(request, "case", fixture_json(cases[i].of_key));
    if (cases[i].has_blob)
      json_object_set_new(request, "blobs", json_pack("{s:s}", DIGEST, path));
    if (cases[i].has_expected)
      json_object_set_new(request, "expected", json_string(path));
    send_request(&child, request);
    expect_member(&child, "error", cases[i].error);
  }
  child_end(&child);
}

Test(worker, a_request_that_is_too_long_ends_it) {
  struct child child = child_start();
  cleanup_free char *text = xmalloc(WORKER_LINE_MAX + 1);
  memset(text, ' ', WORKER_LINE_MAX + 1);
  signal(SIGPIPE, SIG_IGN);
  (void)!fd_write_all(child.to, text, WORKER_LINE_MAX + 1);
  cr_expect_null(receive(&child));
  int status = child_end(&child);
  cr_expect(WIFEXITED(status));
}

Test(worker, without_its_page_it_ends_with_an_error) {
  pid_t pid = fork();
  if (pid == 0) {
    close(WORKER_STATUS_FD);
    _exit(worker_main());
  }
  int status;
  waitpid(pid, &status, 0);
  cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 2);
}
