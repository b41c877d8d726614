/* Log lines on stderr. Owns nothing; any thread. */
#include "common/base/log.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <time.h>

#define TIME_SIZE 40

static const char *const level_names[] = {"error", "warning", "info", "debug"};
static const int syslog_priorities[] = {3, 4, 6, 7}; /* syslog(3), as sd-daemon(3) prefixes lines */
static atomic_int current_level = -1, current_format = LOG_FORMAT_TEXT;
static const char *_Atomic current_program;
static _Thread_local char current_request[LOG_REQUEST_SIZE];

bool log_level_parse(const char *name, enum log_level *ret_level) {
  for (size_t i = 0; i < ARRAY_LENGTH(level_names); i++)
    if (strcmp(name, level_names[i]) == 0) {
      *ret_level = (enum log_level)i;
      return true;
    }
  return false;
}

void log_set_level(enum log_level level) { atomic_store(&current_level, (int)level); }

static int log_level_now(void) {
  int level = atomic_load(&current_level);
  if (level >= 0)
    return level;
  enum log_level from_environment = LOG_LEVEL_INFO;
  const char *name = getenv("WAVETUNE_LOG");
  if (name)
    (void)!log_level_parse(name, &from_environment);
  log_set_level(from_environment);
  return (int)from_environment;
}

void log_set_format(enum log_format format, const char *program) {
  atomic_store(&current_program, program);
  atomic_store(&current_format, (int)format);
}

enum log_format log_format_now(void) { return (enum log_format)atomic_load(&current_format); }

bool log_format_parse(const char *name, enum log_format *ret_format) {
  bool is_json = strcmp(name, "json") == 0;
  if (!is_json && strcmp(name, "text") != 0)
    return false;
  *ret_format = is_json ? LOG_FORMAT_JSON : LOG_FORMAT_TEXT;
  return true;
}

void log_set_request(const char *request) {
  size_t length = request ? strnlen(request, LOG_REQUEST_SIZE - 1) : 0;
  if (length)
    memcpy(current_request, request, length);
  current_request[length] = '\0';
}

void log_get_request(char ret_request[LOG_REQUEST_SIZE]) {
  memcpy(ret_request, current_request, LOG_REQUEST_SIZE);
}

/* systemd.exec(5): a process whose stderr was sent elsewhere inherits the variable all the same. */
static bool stderr_is_journal(void) {
  const char *stream = getenv("JOURNAL_STREAM");
  struct stat status;
  char name[64];
  if (!stream || fstat(STDERR_FILENO, &status) < 0)
    return false;
  snprintf(name, sizeof name, "%ju:%ju", (uintmax_t)status.st_dev, (uintmax_t)status.st_ino);
  return strcmp(stream, name) == 0;
}

static void time_write(char text[TIME_SIZE]) {
  struct timespec now;
  struct tm utc;
  char date[24];
  clock_gettime(CLOCK_REALTIME, &now);
  gmtime_r(&now.tv_sec, &utc);
  strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &utc);
  snprintf(text, TIME_SIZE, "%s.%03ldZ", date, now.tv_nsec / 1000000);
}

void log_write(enum log_level level, const char *format, ...) {
  if ((int)level > log_level_now())
    return;
  int saved_errno = errno;
  char line[LOG_LINE_SIZE], date[TIME_SIZE], prefix[4] = "";
  bool is_journal = stderr_is_journal(), is_json = log_format_now() == LOG_FORMAT_JSON;
  time_write(date);
  if (is_journal)
    snprintf(prefix, sizeof prefix, "<%d>", syslog_priorities[level]);
  struct log_head head = {.format = log_format_now(),
                          .prefix = prefix,
                          .time = is_json || !is_journal ? date : NULL,
                          .level = level_names[level],
                          .program = atomic_load(&current_program),
                          .request = current_request[0] ? current_request : NULL};
  va_list arguments;
  va_start(arguments, format);
  size_t size = log_line_write(line, &head, format, arguments);
  va_end(arguments);
  (void)!write(STDERR_FILENO, line, size);
  errno = saved_errno;
}
