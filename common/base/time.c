/* RFC 3339 and durations. Pure functions; any thread. */
#include "common/base/time.h"

#include <errno.h>
#include <time.h>

#define YEAR_9999_END_S INT64_C(253402300799)

/* `n` decimal digits. */
static bool digits_read(const char **text, int n, int *ret) {
  int number = 0;
  for (int i = 0; i < n; i++, (*text)++) {
    if (**text < '0' || **text > '9')
      return false;
    number = number * 10 + (**text - '0');
  }
  *ret = number;
  return true;
}

static bool character_read(const char **text, const char *among) {
  if (!**text || !strchr(among, **text))
    return false;
  ++*text;
  return true;
}

/* At most six digits count. */
static bool fraction_read(const char **text, int64_t *ret_us) {
  int64_t us = 0, scale = 100000;
  if (**text < '0' || **text > '9')
    return false;
  for (; **text >= '0' && **text <= '9'; ++*text, scale /= 10)
    us += scale * (**text - '0');
  *ret_us = us;
  return true;
}

static bool offset_read(const char **text, int *ret_s) {
  int hours, minutes, sign = **text == '-' ? -1 : 1;
  *ret_s = 0;
  if (character_read(text, "Zz"))
    return true;
  if (!character_read(text, "+-") || !digits_read(text, 2, &hours) || !character_read(text, ":") ||
      !digits_read(text, 2, &minutes) || hours > 23 || minutes > 59)
    return false;
  *ret_s = sign * (hours * 3600 + minutes * 60);
  return true;
}

bool time_parse(const char *text, int64_t *ret_us) {
  struct tm tm = {0};
  int64_t us = 0;
  int offset_s;
  if (!digits_read(&text, 4, &tm.tm_year) || !character_read(&text, "-") ||
      !digits_read(&text, 2, &tm.tm_mon) || !character_read(&text, "-") ||
      !digits_read(&text, 2, &tm.tm_mday) || !character_read(&text, "Tt ") ||
      !digits_read(&text, 2, &tm.tm_hour) || !character_read(&text, ":") ||
      !digits_read(&text, 2, &tm.tm_min) || !character_read(&text, ":") ||
      !digits_read(&text, 2, &tm.tm_sec))
    return false;
  if (character_read(&text, ".") && !fraction_read(&text, &us))
    return false;
  if (!offset_read(&text, &offset_s) || *text)
    return false;
  if (tm.tm_year < 1970 || tm.tm_hour > 23 || tm.tm_min > 59 || tm.tm_sec > 59)
    return false;

  tm.tm_year -= 1900;
  tm.tm_mon--;
  const struct tm given = tm;
  time_t seconds =
      timegm(&tm); /* moves the 31st of February into March, and month 13 into the next year */
  if (tm.tm_mon != given.tm_mon || tm.tm_mday != given.tm_mday)
    return false;
  *ret_us = ((int64_t)seconds - offset_s) * 1000000 + us;
  return true;
}

bool time_text_parse(const char *text, int64_t *ret_s) {
  char again[TIME_TEXT_SIZE];
  int64_t us;
  if (!time_parse(text, &us) || us < 0 || us / 1000000 > YEAR_9999_END_S ||
      !string_equal(time_text_format(us / 1000000, again), text))
    return false;
  *ret_s = us / 1000000;
  return true;
}

char *time_text_format(int64_t s, char text[TIME_TEXT_SIZE]) {
  time_t time = s;
  struct tm parts;
  ALWAYS(s >= 0 && s <= YEAR_9999_END_S && gmtime_r(&time, &parts));
  ALWAYS(strftime(text, TIME_TEXT_SIZE, "%Y-%m-%dT%H:%M:%SZ", &parts) == TIME_TEXT_SIZE - 1);
  return text;
}

bool duration_parse(const char *text, int64_t *ret_ms) {
  static const struct {
    char unit;
    int64_t ms;
  } units[] = {{'s', 1000}, {'m', 60 * 1000}, {'h', 3600 * 1000}, {'d', 24 * 3600 * 1000}};
  char *end;
  errno = 0;
  long long number = strtoll(text, &end, 10);
  if (*text < '0' || *text > '9' || errno)
    return false;
  for (size_t i = 0; i < ARRAY_LENGTH(units); i++) {
    if (end[0] == units[i].unit && !end[1] && number <= DURATION_MS_MAX / units[i].ms) {
      *ret_ms = number * units[i].ms;
      return true;
    }
  }
  return false;
}
