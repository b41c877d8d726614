/* Reading and writing times. Pure functions; any thread. */
#include "common/base/time_text.h"

#include <string.h>
#include <time.h>

#define YEAR_9999_END_S INT64_C(253402300799)

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

/* At most six digits count: PostgreSQL's times have microseconds. */
static bool fraction_read(const char **text, int64_t *ret_us) {
  int64_t us = 0, scale = 100000;
  if (**text < '0' || **text > '9')
    return false;
  for (; **text >= '0' && **text <= '9'; ++*text, scale /= 10)
    us += scale * (**text - '0');
  *ret_us = us;
  return true;
}

static bool offset_read(const char **text, int *ret_seconds) {
  int hours, minutes, sign = **text == '-' ? -1 : 1;
  *ret_seconds = 0;
  if (character_read(text, "Zz"))
    return true;
  if (!character_read(text, "+-") || !digits_read(text, 2, &hours) || !character_read(text, ":") ||
      !digits_read(text, 2, &minutes) || hours > 23 || minutes > 59)
    return false;
  *ret_seconds = sign * (hours * 3600 + minutes * 60);
  return true;
}

static bool time_read(const char *text, int64_t *ret_us) {
  struct tm tm = {0};
  int64_t us = 0;
  int offset;
  if (!digits_read(&text, 4, &tm.tm_year) || !character_read(&text, "-") || !digits_read(&text, 2, &tm.tm_mon) ||
      !character_read(&text, "-") || !digits_read(&text, 2, &tm.tm_mday) || !character_read(&text, "Tt ") ||
      !digits_read(&text, 2, &tm.tm_hour) || !character_read(&text, ":") || !digits_read(&text, 2, &tm.tm_min) ||
      !character_read(&text, ":") || !digits_read(&text, 2, &tm.tm_sec))
    return false;
  if (character_read(&text, ".") && !fraction_read(&text, &us))
    return false;
  if (!offset_read(&text, &offset) || *text)
    return false;
  if (tm.tm_year < 1970 || tm.tm_hour > 23 || tm.tm_min > 59 || tm.tm_sec > 59)
    return false;
  tm.tm_year -= 1900;
  tm.tm_mon--;
  const struct tm given = tm;
  time_t seconds = timegm(&tm); /* moves the 31st of February into March, and month 13 into the next year */
  *ret_us = ((int64_t)seconds - offset) * 1000000 + us;
  return tm.tm_mon == given.tm_mon && tm.tm_mday == given.tm_mday;
}

bool time_parse(const char *text, int64_t *ret_us, struct error *error) {
  int64_t us;
  if (!time_read(text, &us))
    return error_set(error, "\"%.64s\" is not a time; write it as 2026-01-31T12:00:00Z", text);
  *ret_us = us;
  return true;
}

bool time_text_parse(const char *text, int64_t *ret_s) {
  char again[TIME_TEXT_SIZE];
  int64_t us;
  if (!time_read(text, &us) || us < 0 || us / 1000000 > YEAR_9999_END_S)
    return false;

  int64_t s = us / 1000000;
  if (strcmp(time_text_format(s, again), text) != 0)
    return false;
  *ret_s = s;
  return true;
}

char *time_text_format(int64_t s, char text[TIME_TEXT_SIZE]) {
  time_t time = s;
  struct tm parts;
  ALWAYS(s >= 0 && s <= YEAR_9999_END_S && gmtime_r(&time, &parts));
  ALWAYS(strftime(text, TIME_TEXT_SIZE, "%Y-%m-%dT%H:%M:%SZ", &parts) == TIME_TEXT_SIZE - 1);
  return text;
}
