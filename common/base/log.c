/* Log lines on stderr. Owns nothing; any thread. */
#include "common/base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <time.h>

static const char *const level_names[] = {"error", "warning", "info", "debug"};
static const int syslog_priorities[] = {3, 4, 6, 7}; /* syslog(3), as sd-daemon(3) prefixes lines */
static atomic_int current_level = -1;

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

static int prefix_write(char *line, size_t size, enum log_level level) {
  if (getenv("JOURNAL_STREAM"))
    return snprintf(line, size, "<%d>", syslog_priorities[level]);
  struct timespec now;
  struct tm utc;
  char date[32];
  clock_gettime(CLOCK_REALTIME, &now);
  gmtime_r(&now.tv_sec, &utc);
  strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &utc);
  return snprintf(line, size, "%s.%03ldZ %s ", date, now.tv_nsec / 1000000, level_names[level]);
}

void log_write(enum log_level level, const char *format, ...) {
  if ((int)level > log_level_now())
    return;
  int saved_errno = errno;
  char line[2048];
  size_t used = (size_t)prefix_write(line, sizeof line, level);
  va_list arguments;
  va_start(arguments, format);
  int length = vsnprintf(line + used, sizeof line - used - 1, format, arguments);
  va_end(arguments);
  if (length > 0)
    used += (size_t)length < sizeof line - used - 1 ? (size_t)length : sizeof line - used - 2;
  for (size_t i = 0; i < used; i++) /* a logged value must not forge a second line, nor drive a terminal */
    if ((unsigned char)line[i] < 0x20 || line[i] == 0x7f)
      line[i] = ' ';
  line[used++] = '\n';
  (void)!write(STDERR_FILENO, line, used);
  errno = saved_errno;
}
