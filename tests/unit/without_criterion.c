/* Runs a Criterion program's tests in the place of Criterion, whose clones of the process leave
 * ThreadSanitizer's runtime behind. Linked instead of its library: what its macros call, and
 * main(), which takes --tap=FILE alone.
 *
 * Each test runs in a child made by fork, and one that fails an assertion goes on or ends as with
 * Criterion. Single tests and limits of their time are left to the other presets.
 * Threads: the main one, but for what assertions call. */
#include <criterion/criterion.h>
#include <criterion/logging.h>
#include <criterion/options.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define WHY_SIZE 512

enum { TEST_PASSED = 0, TEST_FAILED = 1, TEST_SKIPPED = 2 }; /* how a child exits */

/* Criterion's macros put a pointer to each test, and to each suite with options, into sections. */
extern struct criterion_test *__start_cr_tst[], *__stop_cr_tst[];
extern struct criterion_suite *__start_cr_sts[] __attribute__((weak));
extern struct criterion_suite *__stop_cr_sts[] __attribute__((weak));

struct criterion_options criterion_options;

static const struct criterion_test *current;
static atomic_bool has_failed;
static int why_fd = -1; /* of a child: where it says why it was skipped */

static const struct criterion_test_extra_data *suite_of(const struct criterion_test *test) {
  for (struct criterion_suite **at = __start_cr_sts; at < __stop_cr_sts; at++)
    if (*at && strcmp((*at)->name, test->category) == 0)
      return (*at)->data;
  return NULL;
}

void criterion_internal_test_setup(void) {
  const struct criterion_test_extra_data *suite = suite_of(current);
  if (suite && suite->init)
    suite->init();
  if (current->data->init)
    current->data->init();
}

void criterion_internal_test_main(void (*run)(void)) { run(); }

void criterion_internal_test_teardown(void) {
  const struct criterion_test_extra_data *suite = suite_of(current);
  if (current->data->fini)
    current->data->fini();
  if (suite && suite->fini)
    suite->fini();
}

void cri_asserts_passed_incr(void) {}

int cr_asprintf(char **ret_text, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  int length = vasprintf(ret_text, format, arguments);
  va_end(arguments);
  return length;
}

void cr_asprintf_free(char *text) { free(text); }

/* The text of the expression, which is what tells assertions of a line apart. */
char *cr_translate_assert_msg(int message, ...) {
  va_list arguments;
  va_start(arguments, message);
  char *text = strdup(va_arg(arguments, const char *));
  va_end(arguments);
  return text;
}

void criterion_send_assert(struct criterion_assert_stats *assertion) {
  if (!assertion->passed)
    fprintf(stderr, "%s:%u: failed: %s\n", assertion->file, assertion->line, assertion->message);
}

void cr_log(enum criterion_severity severity, const char *format, ...) {
  va_list arguments;
  (void)severity;
  va_start(arguments, format);
  vfprintf(stderr, format, arguments);
  va_end(arguments);
  fputc('\n', stderr);
}

void criterion_continue_test(void) { atomic_store(&has_failed, true); }

void criterion_abort_test(void) { exit(TEST_FAILED); }

void criterion_skip_test(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vdprintf(why_fd, format, arguments);
  va_end(arguments);
  exit(TEST_SKIPPED);
}

static void test_run(const struct criterion_test *test) {
  current = test;
  test->test();
  exit(atomic_load(&has_failed) ? TEST_FAILED : TEST_PASSED);
}

static bool is_skipped(int status) {
  return WIFEXITED(status) && WEXITSTATUS(status) == TEST_SKIPPED;
}

/* In a child. `why` is what the child said of being skipped. */
static int test_fork(const struct criterion_test *test, char why[WHY_SIZE]) {
  int ends[2], status = -1;
  why[0] = '\0';
  fflush(NULL);
  pid_t child = pipe(ends) == 0 ? fork() : -1;
  if (child < 0) {
    perror("cannot start a test");
    exit(EXIT_FAILURE);
  }
  if (child == 0) {
    close(ends[0]);
    why_fd = ends[1];
    test_run(test);
  }
  close(ends[1]);
  waitpid(child, &status, 0);
  ssize_t n = is_skipped(status) ? read(ends[0], why, WHY_SIZE - 1) : 0;
  why[n > 0 ? n : 0] = '\0';
  close(ends[0]);
  return status;
}

static double seconds_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Whether a test ended as it says it will. */
static bool has_passed(const struct criterion_test *test, int status) {
  if (test->data->signal)
    return WIFSIGNALED(status) && WTERMSIG(status) == test->data->signal;
  return WIFEXITED(status) && WEXITSTATUS(status) == test->data->exit_code;
}

static void failure_report(const struct criterion_test *test, int status) {
  bool is_signal = WIFSIGNALED(status);
  fprintf(stderr, "%s::%s failed: %s %d\n", test->category, test->name,
          is_signal ? "it was ended by signal" : "its exit status is",
          is_signal ? WTERMSIG(status) : WEXITSTATUS(status));
}

/* Whether the test did not fail; what came of it is a line of `report`. */
static bool test_report(const struct criterion_test *test, FILE *report) {
  char why[WHY_SIZE];
  double began = seconds_now();
  int status = test_fork(test, why);
  bool is_good = is_skipped(status) || has_passed(test, status);

  fprintf(report, "%sok - %s::%s  ", is_good ? "" : "not ", test->category, test->name);
  if (is_skipped(status))
    fprintf(report, "# SKIP %s\n", why);
  else
    fprintf(report, "(%.2fs)\n", seconds_now() - began);
  if (!is_good)
    failure_report(test, status);
  return is_good;
}

int main(int argc, char **argv) {
  static const char option[] = "--tap=";
  bool has_file = argc == 2 && strncmp(argv[1], option, sizeof option - 1) == 0, is_good = true;
  FILE *report = has_file ? fopen(argv[1] + sizeof option - 1, "w") : stdout;
  if (!report || (argc > 1 && !has_file)) {
    fprintf(stderr, "usage: %s [--tap=FILE]\n", argv[0]);
    return EXIT_FAILURE;
  }

  size_t n = 0;
  for (struct criterion_test **at = __start_cr_tst; at < __stop_cr_tst; at++)
    n += *at != NULL;
  fprintf(report, "TAP version 13\n1..%zu\n", n);
  for (struct criterion_test **at = __start_cr_tst; at < __stop_cr_tst; at++)
    is_good = (!*at || test_report(*at, report)) && is_good;
  fclose(report);
  return is_good ? EXIT_SUCCESS : EXIT_FAILURE;
}
