/* The compile pool and the system C compiler. */
#include "tests/unit/agent_fixture.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <glob.h>
#include <math.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "agent/compile/launch_source.h"
#include "common/program/command.h"

/* 2^32 tokens keep the compiler busy for minutes. */
#define ENDLESS "#define a(x) x x x x\n#define b(x) a(a(a(a(x))))\nint y = b(b(b(b(+)))) 1;\n"

#define TWO_BLOCKS "{\"parameters\": {\"BLOCK\": [1, 2]}}"

static size_t files_in(const struct fixture *fixture, const char *ending) {
  char *command = xasprintf("%s/cache", fixture->folder);
  size_t n = 0;
  cr_assert_eq(chdir(command), 0);
  free(command);
  FILE *list = popen("ls", "r");
  char line[512];
  while (fgets(line, sizeof line, list))
    n += strstr(line, ending) != NULL;
  pclose(list);
  return n;
}

Test(compile, an_object_runs_the_code_of_its_source) {
  struct fixture fixture = fixture_new(FIXTURE_GOOD, (struct fixture_options){0});
  struct compile_result result = fixture_compile(&fixture, 0);
  cr_assert(result.ok, "%s", result.error.message);
  cr_expect_gt(result.compile_ms, 0);
  void *object = dlopen(result.object, RTLD_NOW);
  cr_assert_not_null(object);
  void (*launch)(void **);
  *(void **)&launch = dlsym(object, "wavetune_launch");
  cr_assert_not_null(launch);
  float y[3], x[3] = {1, 2, 3}, *y_pointer = y, *x_pointer = x;
  int64_t n = 3;
  launch((void *[]){&y_pointer, &x_pointer, &n});
  cr_expect_eq(y[2], 4);
  dlclose(object);
  compile_result_release(&result);
  fixture_free(&fixture);
}

Test(compile, a_reference_computes_one_element) {
  struct fixture fixture = fixture_new(FIXTURE_GOOD, (struct fixture_options){0});
  char *path = fixture_object(&fixture, 0, true);
  void *object = dlopen(path, RTLD_NOW);
  double (*element)(int, int64_t, void **);
  *(void **)&element = dlsym(object, "wavetune_reference");
  cr_assert_not_null(element);
  float x[3] = {1, 2, 3}, *x_pointer = x, *y_pointer = NULL;
  int64_t n = 3;
  void *arguments[] = {&y_pointer, &x_pointer, &n};
  cr_expect_eq(element(0, 1, arguments), 3);
  cr_expect(isnan(element(1, 1, arguments)), "argument 1 is no output");
  dlclose(object);
  free(path);
  fixture_free(&fixture);
}

Test(compile, a_reference_has_the_defines_that_it_mentions_and_the_members_of_segments) {
  struct fixture_options options = {
      .arguments =
          "[{\"name\":\"y\",\"dtype\":\"float32\",\"shape\":[\"n\"],\"access\":\"write\"},"
          "{\"name\":\"x\",\"dtype\":\"float32\",\"shape\":[\"BLOCK\"],\"access\":\"read\","
          "\"segments\":\"BLOCK\"},"
          "{\"name\":\"n\",\"dtype\":\"int64\",\"value\":\"n\"}]",
      .defines = "{\"TWICE\": \"2 * n\", \"UNUSED\": \"n\"}",
      .space = "{\"parameters\": {\"BLOCK\": [4, 8], \"OTHER\": [1]}}",
      .reference =
          "#include <stdint.h>\n#if defined OTHER || defined f_of\n#error too many\n#endif\n"
          "double f_at(int64_t i, float *y, const float *x, int64_t n) {\n"
          "return TWICE + BLOCK; }\n"};
  struct fixture fixture = fixture_new(FIXTURE_GOOD, options);
  for (uint64_t config = 0; config < 2; config++) {
    char *path = fixture_object(&fixture, config, true);
    void *object = dlopen(path, RTLD_NOW);
    double (*element)(int, int64_t, void **);
    *(void **)&element = dlsym(object, "wavetune_reference");
    int64_t n = 3;
    float *none = NULL;
    cr_expect_eq(element(0, 1, (void *[]){&none, &none, &n}), 2000 + (config ? 8 : 4));
    dlclose(object);
    free(path);
  }
  fixture_free(&fixture);
}

Test(compile, the_detail_of_a_failure_is_the_first_error_with_its_line) {
  struct fixture fixture =
      fixture_new("void f(void) {\n  this is not C;\n}\n", (struct fixture_options){0});
  struct compile_result result = fixture_compile(&fixture, 0);
  cr_expect_not(result.ok);
  cr_expect_eq(result.error.kind, ERROR_INVALID);
  cr_expect(string_starts(result.error.message, "kernel.c:2:"), "%s", result.error.message);
  cr_expect_not_null(strstr(result.error.message, "error:"));
  compile_result_release(&result);
  fixture_free(&fixture);
}

Test(compile, a_source_that_disagrees_with_the_manifest_does_not_compile) {
  struct fixture fixture =
      fixture_new("void f(double *y, const float *x, int n) {}\n", (struct fixture_options){0});
  struct compile_result result = fixture_compile(&fixture, 0);
  cr_expect_not(result.ok);
  cr_expect_not_null(strstr(result.error.message, "conflicting types for 'f'"), "%s",
                     result.error.message);
  compile_result_release(&result);
  fixture_free(&fixture);
}

Test(compile, an_undefined_name_is_an_error_of_the_compile) {
  struct fixture fixture =
      fixture_new("void g(void);\nvoid f(float *y, const float *x, long n) { g(); }\n",
                  (struct fixture_options){0});
  struct compile_result result = fixture_compile(&fixture, 0);
  cr_expect_not(result.ok);
  cr_expect_not_null(strstr(result.error.message, "undefined reference to `g'"), "%s",
                     result.error.message);
  compile_result_release(&result);
  fixture_free(&fixture);
}

Test(compile, a_compiler_that_does_not_end_is_stopped) {
  struct fixture fixture = fixture_new(ENDLESS, (struct fixture_options){0});
  compile_pool_set_timeout(fixture.pool, 200);
  struct compile_result result = fixture_compile(&fixture, 0);
  cr_expect_not(result.ok);
  cr_expect_eq(result.error.kind, ERROR_DEADLINE);
  cr_expect_str_eq(result.error.message, "the compiler did not end within 200 ms");
  cr_expect_eq(files_in(&fixture, ""), 0, "the scratch folder is left");
  compile_result_release(&result);
  fixture_free(&fixture);
}

static bool process_is_gone(int pid) {
  char state = 'Z';
  cleanup_free char *path = xasprintf("/proc/%d/stat", pid);
  cleanup_file FILE *file = fopen(path, "re");
  return !file || fscanf(file, "%*d (%*[^)]) %c", &state) != 1 || state == 'Z';
}

Test(compile, what_a_compiler_started_dies_with_a_killed_agent) {
  char path[] = "/tmp/wavetune-test-XXXXXX";
  int fd = mkstemp(path);
  cr_assert(fd >= 0);
  pid_t agent = fork();
  if (agent == 0) {
    cleanup_free char *script = xasprintf("sleep 1000 & echo $! >%s; wait", path);
    char *const arguments[] = {(char[]){"/bin/sh"}, (char[]){"-c"}, script, NULL};
    char *const environment[] = {(char[]){"PATH=/usr/bin:/bin"}, NULL};
    struct command command = {.arguments = arguments,
                              .environment = environment,
                              .timeout_ms = 60000,
                              .cpu_seconds_max = 60,
                              .memory_bytes_max = 1u << 30,
                              .file_bytes_max = 1u << 20,
                              .output_max = 100,
                              .stop_fd = -1};
    struct command_result result;
    struct error error;
    _exit(command_run(&command, &result, &error));
  }
  int pid = 0;
  FILE *file = fdopen(fd, "r");
  for (int i = 0; i < 10000 && fscanf(file, "%d", &pid) != 1; i++) {
    rewind(file);
    usleep(10000);
  }
  cr_assert_gt(pid, 0);
  cr_expect_not(process_is_gone(pid));
  kill(agent, SIGKILL);
  waitpid(agent, NULL, 0);
  for (int i = 0; i < 10000 && !process_is_gone(pid); i++)
    usleep(10000);
  cr_expect(process_is_gone(pid));
  kill(pid, SIGKILL);
  fclose(file);
  unlink(path);
}

/* A `cc` in a folder that $PATH is set to. */
static char *fake_compiler(const struct fixture *fixture, const char *script) {
  struct error error;
  char *path = xasprintf("%s/cc", fixture->folder);
  cr_assert(file_write_atomically(path, script, strlen(script), 0700, &error), "%s", error.message);
  setenv("PATH", fixture->folder, 1);
  return path;
}

Test(compile, a_compiler_without_room_on_the_disk_is_not_the_configs_fault) {
  struct fixture fixture = fixture_new(FIXTURE_GOOD, (struct fixture_options){0});
  struct error error;
  cleanup_free char *cache = xasprintf("%s/full", fixture.folder);
  cleanup_free char *path = fake_compiler(
      &fixture, "#!/bin/sh\ncase \"$*\" in *-dM*|--*) exec /usr/bin/cc \"$@\";; esac\n"
                "echo 'kernel.c: error: cannot write: No space left on device'\n"
                "exit 1\n");
  compile_pool_free(fixture.pool);
  cr_assert(compile_pool_new(cache, 1, &fixture.pool, &error), "%s", error.message);
  struct compile_result result = fixture_compile(&fixture, 0);
  cr_expect_not(result.ok);
  cr_expect_eq(result.error.kind, ERROR_UNAVAILABLE, "%s", result.error.message);
  compile_result_release(&result);
  cr_assert(folder_remove(cache, &error));
  result = fixture_compile(&fixture, 0);
  cr_expect(!result.ok && result.error.kind == ERROR_UNAVAILABLE);
  cr_expect_not_null(strstr(result.error.message, "cannot make the folder"),
                     "a failure of the machine is not remembered");
  compile_result_release(&result);
  fixture_free(&fixture);
}

Test(compile, a_compile_without_tickets_does_not_begin) {
  struct fixture fixture =
      fixture_new(FIXTURE_GOOD "int block = BLOCK;\n",
                  (struct fixture_options){.space = "{\"parameters\": {\"BLOCK\": [1, 2, 3]}}"});
  struct error error;
  uint64_t tickets[3];
  cleanup_free char *cache = xasprintf("%s/cache", fixture.folder);
  compile_pool_free(fixture.pool);
  cr_assert(compile_pool_new(cache, 1, &fixture.pool, &error), "%s", error.message);
  for (uint64_t i = 0; i < 3; i++) {
    struct compile_request request = fixture_request(&fixture, i, false);
    tickets[i] = compile_pool_submit(fixture.pool, &request);
  }
  cr_expect_not(compile_pool_is_done(fixture.pool, tickets[2], 1));
  compile_pool_drop(fixture.pool, tickets[1]);
  while (!compile_pool_is_done(fixture.pool, tickets[2], 1000))
    continue;
  for (int i = 0; i < 3; i += 2) {
    struct compile_result result = compile_pool_wait(fixture.pool, tickets[i]);
    cr_expect(result.ok, "%s", result.error.message);
    compile_result_release(&result);
  }
  cr_expect_eq(files_in(&fixture, ".so\n"), 2, "the one in between was compiled too");
  fixture_free(&fixture);
}

/* The compiler would publish an object if it were waited for. */
Test(compile, freeing_the_pool_ends_a_running_compiler) {
  struct fixture fixture = fixture_new(FIXTURE_GOOD, (struct fixture_options){0});
  struct error error;
  cleanup_free char *cache = xasprintf("%s/cache", fixture.folder),
                    *begun = xasprintf("%s/*.scratch/begun", cache);
  cleanup_free char *path = fake_compiler(
      &fixture, "#!/bin/sh\ncase \"$*\" in *-dM*|--*) exec /usr/bin/cc \"$@\";; esac\n"
                ": >begun\n/bin/sleep 20\nexec /usr/bin/cc \"$@\"\n");
  compile_pool_free(fixture.pool);
  cr_assert(compile_pool_new(cache, 1, &fixture.pool, &error), "%s", error.message);
  struct compile_request request = fixture_request(&fixture, 0, false);
  (void)compile_pool_submit(fixture.pool, &request);
  glob_t found = {0};
  for (int i = 0; i < 10000 && glob(begun, 0, NULL, &found) != 0; i++)
    usleep(10000);
  cr_assert_eq(found.gl_pathc, 1u, "the compiler did not begin");
  globfree(&found);
  compile_pool_free(fixture.pool);
  fixture.pool = NULL;
  setenv("PATH", "/usr/bin:/bin", 1);
  cr_expect_eq(files_in(&fixture, ""), 0, "the compiler was waited for, or its folder is left");
  fixture_free(&fixture);
}

Test(compile, an_object_of_an_earlier_pool_is_found) {
  struct fixture fixture = fixture_new(FIXTURE_GOOD, (struct fixture_options){0});
  char *first = fixture_object(&fixture, 0, false);
  char *cache = xasprintf("%s/cache", fixture.folder);
  struct error error;
  compile_pool_free(fixture.pool);
  cr_assert(compile_pool_new(cache, 1, &fixture.pool, &error));
  struct compile_result second = fixture_compile(&fixture, 0);
  cr_assert(second.ok);
  cr_expect_eq(second.compile_ms, 0);
  cr_expect_str_eq(second.object, first);
  compile_result_release(&second);
  free(cache);
  free(first);
  fixture_free(&fixture);
}

/* What is done to the folder of objects between two pools, and that the object is then compiled
 * anew. */
static void expect_compiled_anew(const char *suffix, const char *bytes) {
  struct fixture fixture = fixture_new(FIXTURE_GOOD, (struct fixture_options){0});
  struct error error;
  struct compile_result first = fixture_compile(&fixture, 0);
  cleanup_free char *changed = xasprintf("%s%s", first.object, suffix),
                    *cache = xasprintf("%s/cache", fixture.folder);
  cr_assert(first.ok);
  compile_pool_free(fixture.pool);
  cr_assert(bytes ? file_write_atomically(changed, bytes, strlen(bytes), 0600, &error)
                  : unlink(changed) == 0);

  cr_assert(compile_pool_new(cache, 1, &fixture.pool, &error));
  struct compile_result second = fixture_compile(&fixture, 0);
  cr_expect(second.ok && second.compile_ms > 0, "%s%s: it was taken as it is", suffix,
            bytes ? bytes : " is gone");
  cr_expect_str_eq(second.object, first.object);
  cr_expect(digest_equal(&second.digest, &first.digest));

  struct compile_result third = fixture_compile(&fixture, 0);
  cr_expect_eq(third.compile_ms, 0);
  compile_result_release(&first);
  compile_result_release(&second);
  compile_result_release(&third);
  fixture_free(&fixture);
}

Test(compile, an_object_that_was_changed_is_compiled_again) {
  expect_compiled_anew("", "another object");
  expect_compiled_anew(".sha256", "sha256:no digest");
  expect_compiled_anew(".sha256", NULL);
}

static struct compile_result compile_as_nobody(struct fixture *fixture, struct custody *custody) {
  struct error error;
  cleanup_free char *cache = xasprintf("%s/cache", fixture->folder);
  cr_assert(custody_set_user(custody, "nobody", &error), "%s", error.message);
  compile_pool_free(fixture->pool);
  cr_assert(compile_pool_new(cache, 1, &fixture->pool, &error), "%s", error.message);
  compile_pool_set_custody(fixture->pool, custody);
  return fixture_compile(fixture, 0);
}

/* Who it is, and whose the folder is in which it runs; and that it cannot read the folder of
 * objects. */
Test(compile, a_compiler_can_be_another_user) {
  if (geteuid() != 0)
    cr_skip("only root can let compilers be another user");
  struct fixture fixture = fixture_new(FIXTURE_GOOD, (struct fixture_options){0});
  struct custody custody = {0};
  cleanup_free char *path = fake_compiler(
      &fixture,
      "#!/bin/sh\ncase \"$*\" in *-dM*|--*) exec /usr/bin/cc \"$@\";; esac\n"
      "echo \"error: user $(/usr/bin/id -u), folder of $(/usr/bin/stat -c %u .)\"\nexit 1\n");
  cr_assert(chmod(fixture.folder, 0755) == 0 && chmod(path, 0755) == 0);
  struct compile_result result = compile_as_nobody(&fixture, &custody);
  cleanup_free char *expected = xasprintf("error: user %u, folder of %u", custody.uid, custody.uid);
  cr_expect(!result.ok && string_equal(result.error.message, expected), "%s", result.error.message);
  compile_result_release(&result);
  setenv("PATH", "/usr/bin:/bin", 1);
  fixture_free(&fixture);
}

Test(compile, an_object_of_another_users_compiler_is_the_same_and_ours) {
  if (geteuid() != 0)
    cr_skip("only root can let compilers be another user");
  struct fixture fixture = fixture_new(FIXTURE_GOOD, (struct fixture_options){0});
  struct custody custody = {0};
  struct compile_result ours = fixture_compile(&fixture, 0);
  struct stat status;
  struct error error;
  cleanup_free char *cache = xasprintf("%s/cache", fixture.folder);
  cr_assert(ours.ok && folder_remove(cache, &error));
  struct compile_result theirs = compile_as_nobody(&fixture, &custody);
  cr_assert(theirs.ok, "%s", theirs.error.message);
  cr_expect(digest_equal(&ours.digest, &theirs.digest), "its bytes show where it was compiled");
  cr_assert_eq(stat(theirs.object, &status), 0);
  cr_expect_eq(status.st_uid, geteuid());
  compile_result_release(&ours);
  compile_result_release(&theirs);
  fixture_free(&fixture);
}

/* Objects of two hours ago: one that is not used any more, one whose ticket is still held. */
Test(compile, the_folder_of_objects_does_not_outgrow_its_limit_while_the_pool_runs) {
  struct fixture fixture =
      fixture_new(FIXTURE_GOOD "int block = BLOCK;\n",
                  (struct fixture_options){.space = "{\"parameters\": {\"BLOCK\": [1, 2, 3]}}"});
  struct timespec old[2] = {{.tv_sec = time(NULL) - 7200}, {.tv_sec = time(NULL) - 7200}};
  cleanup_free char *unused = fixture_object(&fixture, 0, false),
                    *cache = xasprintf("%s/cache", fixture.folder);
  cleanup_free char *held = fixture_object(&fixture, 1, false);
  struct compile_request request = fixture_request(&fixture, 1, false);
  (void)compile_pool_submit(fixture.pool, &request);
  cr_assert_eq(utimensat(AT_FDCWD, unused, old, 0), 0);
  cr_assert_eq(utimensat(AT_FDCWD, held, old, 0), 0);
  compile_pool_set_cache_bytes(fixture.pool, 1);
  cleanup_free char *newest = fixture_object(&fixture, 2, false);
  compile_pool_free(TAKE(fixture.pool)); /* when all is done */
  cr_expect_neq(access(unused, F_OK), 0);
  cr_expect_eq(files_in(&fixture, ".so.sha256\n"), 2, "a digest outlives its object");
  cr_expect_eq(access(held, F_OK), 0);
  cr_expect_eq(access(newest, F_OK), 0);
  fixture_free(&fixture);
}

Test(compile, equal_content_is_compiled_once_while_it_is_in_flight) {
  struct fixture fixture = fixture_new(FIXTURE_GOOD, (struct fixture_options){.space = TWO_BLOCKS});
  struct compile_request request = fixture_request(&fixture, 0, false);
  uint64_t tickets[2] = {compile_pool_submit(fixture.pool, &request),
                         compile_pool_submit(fixture.pool, &request)};
  struct compile_result results[2];
  for (int i = 0; i < 2; i++)
    results[i] = compile_pool_wait(fixture.pool, tickets[i]);
  cr_expect(results[0].ok && results[1].ok);
  cr_expect_gt(results[0].compile_ms, 0);
  cr_expect_eq(results[1].compile_ms, 0);
  for (int i = 0; i < 2; i++)
    compile_result_release(&results[i]);
  fixture_free(&fixture);
}

Test(compile, a_failure_is_cached) {
  struct fixture fixture = fixture_new("#error no\n", (struct fixture_options){0});
  struct compile_result first = fixture_compile(&fixture, 0), second = fixture_compile(&fixture, 0);
  cr_expect_gt(first.compile_ms, 0);
  cr_expect_eq(second.compile_ms, 0);
  cr_expect_str_eq(first.error.message, second.error.message);
  compile_result_release(&first);
  compile_result_release(&second);
  fixture_free(&fixture);
}

Test(compile, configs_share_an_object_when_no_source_mentions_what_differs) {
  struct fixture fixture = fixture_new(FIXTURE_GOOD "/* not BLOCKS, not MY_BLOCK */\n",
                                       (struct fixture_options){.space = TWO_BLOCKS});
  char *first = fixture_object(&fixture, 0, false), *second = fixture_object(&fixture, 1, false);
  cr_expect_str_eq(first, second);
  free(first);
  free(second);
  fixture_free(&fixture);
}

Test(compile, configs_have_objects_of_their_own_when_a_source_mentions_what_differs) {
  struct fixture fixture = fixture_new(FIXTURE_GOOD "int block = BLOCK;\n",
                                       (struct fixture_options){.space = TWO_BLOCKS});
  char *first = fixture_object(&fixture, 0, false), *second = fixture_object(&fixture, 1, false);
  cr_expect_str_neq(first, second);
  free(first);
  free(second);
  fixture_free(&fixture);
}

Test(compile, a_definition_that_another_one_mentions_is_kept) {
  struct fixture fixture =
      fixture_new(FIXTURE_GOOD "_Static_assert(ACTIVATION == 5, \"\");\n",
                  (struct fixture_options){
                      .space = "{\"parameters\": {\"ACTIVATION\": [\"RELU\"], \"RELU\": [\"CODE\"],"
                               " \"CODE\": [5], \"OTHER\": [1, 2]}}"});
  char *objects[2] = {fixture_object(&fixture, 0, false), fixture_object(&fixture, 1, false)};
  cr_expect_str_eq(objects[0], objects[1], "OTHER does not count");
  for (int i = 0; i < 2; i++)
    free(objects[i]);
  fixture_free(&fixture);
}

Test(compile, configs_have_objects_of_their_own_when_names_are_pasted) {
  struct fixture fixture =
      fixture_new(FIXTURE_GOOD "#define PASTE(a, b) a##b\nint block = PASTE(BLO, CK);\n",
                  (struct fixture_options){.space = TWO_BLOCKS});
  char *first = fixture_object(&fixture, 0, false), *second = fixture_object(&fixture, 1, false);
  cr_expect_str_neq(first, second);
  free(first);
  free(second);
  fixture_free(&fixture);
}

Test(compile, equal_content_gives_equal_bytes_in_other_folders) {
  char *texts[2];
  size_t sizes[2];
  struct error error;
  for (int i = 0; i < 2; i++) {
    struct fixture fixture =
        fixture_new(FIXTURE_GOOD "const char *where = __FILE__, *when = __DATE__ __TIME__;\n",
                    (struct fixture_options){0});
    char *object = fixture_object(&fixture, 0, false);
    cr_assert(file_read(object, 1 << 20, &texts[i], &sizes[i], &error));
    free(object);
    fixture_free(&fixture);
  }
  cr_expect_eq(sizes[0], sizes[1]);
  cr_expect_eq(memcmp(texts[0], texts[1], sizes[0]), 0);
  free(texts[0]);
  free(texts[1]);
}

Test(compile, a_manifests_defines_are_computed_from_key_and_config) {
  struct fixture fixture = fixture_new(
      FIXTURE_GOOD "_Static_assert(TOTAL == 1002, \"\");\n_Static_assert(ODD == 0, \"\");\n",
      (struct fixture_options){.space = TWO_BLOCKS,
                               .defines = "{\"TOTAL\": \"n + BLOCK\", \"ODD\": \"n % 2 == 1\"}"});
  struct compile_result right = fixture_compile(&fixture, 1), wrong = fixture_compile(&fixture, 0);
  cr_expect(right.ok, "%s", right.error.message);
  cr_expect_not(wrong.ok);
  compile_result_release(&right);
  compile_result_release(&wrong);
  fixture_free(&fixture);
}

Test(compile, a_define_that_cannot_be_computed_fails_with_its_name) {
  struct fixture fixture = fixture_new(
      FIXTURE_GOOD, (struct fixture_options){.defines = "{\"PART\": \"n // (BLOCK - 1)\"}"});
  struct compile_result result = fixture_compile(&fixture, 0);
  cr_expect_not(result.ok);
  cr_expect(string_starts(result.error.message, "the define PART: "), "%s", result.error.message);
  compile_result_release(&result);
  fixture_free(&fixture);
}

Test(compile, a_config_outside_of_the_space_fails) {
  struct fixture fixture = fixture_new(FIXTURE_GOOD, (struct fixture_options){0});
  struct compile_result result = fixture_compile(&fixture, 7);
  cr_expect_not(result.ok);
  cr_expect_str_eq(result.error.message, "config 7 is outside of the space, which has 1 configs");
  compile_result_release(&result);
  fixture_free(&fixture);
}

Test(compile, sources_that_are_not_there_fail) {
  struct fixture fixture = fixture_new(FIXTURE_GOOD, (struct fixture_options){0});
  struct compile_request request = fixture_request(&fixture, 0, false);
  request.sources = "/nonexistent";
  struct compile_result result =
      compile_pool_wait(fixture.pool, compile_pool_submit(fixture.pool, &request));
  cr_expect_not(result.ok);
  cr_expect(string_starts(result.error.message, "cannot find the kernel's sources in /nonexistent"),
            "%s", result.error.message);
  cr_expect_eq(result.error.kind, ERROR_UNAVAILABLE, "the config is not to blame");
  compile_result_release(&result);
  fixture_free(&fixture);
}

Test(compile, a_source_that_is_gone_is_not_the_configs_fault) {
  struct fixture fixture = fixture_new(FIXTURE_GOOD, (struct fixture_options){0});
  cleanup_free char *path = xasprintf("%s/kernel.c", fixture.folder);
  cr_assert_eq(unlink(path), 0);
  struct compile_result result = fixture_compile(&fixture, 0);
  cr_expect(!result.ok && result.error.kind == ERROR_UNAVAILABLE);
  cr_expect_not_null(strstr(result.error.message, path), "%s", result.error.message);
  compile_result_release(&result);
  fixture_free(&fixture);
}

Test(compile, a_parameter_of_role_env_is_in_the_compilers_environment) {
  struct fixture fixture = fixture_new(
      FIXTURE_GOOD "const char *when = __DATE__;\n",
      (struct fixture_options){.space = "{\"parameters\": {\"SOURCE_DATE_EPOCH\": [0, 86400]},"
                                        " \"roles\": {\"SOURCE_DATE_EPOCH\": \"env\"}}"});
  char *object = fixture_object(&fixture, 1, false), *text;
  size_t size;
  struct error error;
  cr_assert(file_read(object, 1 << 20, &text, &size, &error));
  cr_expect_not_null(memmem(text, size, "Jan  2 1970", 11));
  free(text);
  free(object);
  fixture_free(&fixture);
}

Test(compile, a_cache_that_cannot_be_made_is_an_error) {
  struct compile_pool *pool;
  struct error error;
  cr_expect_not(compile_pool_new("/dev/null/cache", 1, &pool, &error));
  cr_expect_not_null(strstr(error.message, "/dev/null"), "%s", error.message);
}

Test(compile, the_compilers_identity_is_its_name_and_version) {
  char *identity = NULL;
  struct error error;
  cr_assert(compiler_identity(&identity, &error), "%s", error.message);
  char name[16];
  int major, minor, patch;
  cr_expect_eq(sscanf(identity, "%15s %d.%d.%d", name, &major, &minor, &patch), 4, "%s", identity);
  cr_expect(string_equal(name, "gcc") || string_equal(name, "clang"));
  free(identity);
}

Test(compile, no_compiler_in_the_path_is_an_error_that_states_what_to_install) {
  struct error error;
  char *identity;
  setenv("PATH", "/nonexistent", 1);
  cr_expect_not(compiler_identity(&identity, &error));
  cr_expect_not_null(strstr(error.message, "install a C compiler"));
}

static void expect_define(struct value value, const char *expected) {
  char *text = define_format("X", value);
  cr_expect_str_eq(text, expected);
  free(text);
}

Test(define, values_become_what_c_understands) {
  expect_define(value_int(-64), "X=-64");
  expect_define(value_bool(true), "X=1");
  expect_define(value_bool(false), "X=0");
  expect_define(value_string("two_pass"), "X=two_pass");
  expect_define(value_string("two pass"), "X=\"two pass\"");
  expect_define(value_string(""), "X=\"\"");
  expect_define(value_string("a\"b\\c\n"), "X=\"a\\\"b\\\\c\\012\"");
  cr_expect_null(define_format("X", value_none()));
}
