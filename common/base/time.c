/* Times of RFC 3339, and durations. */
#include "common/base/time.h"

#include <ctype.h>
#include <errno.h>
#include <time.h>

#define YEAR_9999_END_S INT64_C(253402300799)

/* Moves *text past a pattern, in which 0 is any digit, T one of "Tt " and each other character
 * itself. False: the text does not match. */
static bool shape_skip(const char **text, const char *shape) {
  const char *at = *text;
  for (; *shape; shape++, at++)
    if (*shape == '0'   ? !isdigit((unsigned char)*at)
        : *shape == 'T' ? !*at || !strchr("Tt ", *at)
                        : *at != *shape)
      return false;
  *text = at;
  return true;
}

bool time_parse(const char *text, int64_t *ret_us) {
  struct tm tm = {0};
  const char *at = text;
  if (!shape_skip(&at, "0000-00-00T00:00:00"))
    return false;

  ALWAYS(sscanf(text, "%4d-%2d-%2d%*c%2d:%2d:%2d", &tm.tm_year, &tm.tm_mon, &tm.tm_mday,
                &tm.tm_hour, &tm.tm_min, &tm.tm_sec) == 6);

  /* scale is 0 after six digits of the fraction. */
  int64_t us = 0, scale = 100000;
  if (*at == '.') {
    const char *point = at++;
    for (; isdigit((unsigned char)*at); at++, scale /= 10)
      us += scale * (*at - '0');
    if (at == point + 1)
      return false;
  }

  int offset_s = 0;
  char sign = *at++;
  if (sign == '+' || sign == '-') {
    int hours, minutes;
    const char *offset = at;
    if (!shape_skip(&at, "00:00") || sscanf(offset, "%2d:%2d", &hours, &minutes) != 2 ||
        hours > 23 || minutes > 59)
      return false;
    offset_s = (sign == '-' ? -1 : 1) * (hours * 3600 + minutes * 60);
  } else if (sign != 'Z' && sign != 'z') {
    return false;
  }

  if (*at || tm.tm_year < 1970 || tm.tm_hour > 23 || tm.tm_min > 59 || tm.tm_sec > 59)
    return false;

  /* timegm moves the 31st of February into March, and month 13 into the next year. */
  tm.tm_year -= 1900;
  tm.tm_mon--;
  const struct tm given = tm;
  time_t seconds = timegm(&tm);
  if (tm.tm_mon != given.tm_mon || tm.tm_mday != given.tm_mday)
    return false;

  us += ((int64_t)seconds - offset_s) * 1000000;
  if (us < 0)
    return false;

  *ret_us = us;
  return true;
}

bool time_text_parse(const char *text, int64_t *ret_s) {
  int64_t us;

  if (!time_parse(text, &us) || us / 1000000 > YEAR_9999_END_S ||
      !string_equal(TIME_TEXT(us / 1000000), text))
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

char *span_format(double seconds, char text[SPAN_TEXT_SIZE]) {
  if (seconds < 90)
    snprintf(text, SPAN_TEXT_SIZE, "%.0f s", seconds);
  else if (seconds < 90 * 60)
    snprintf(text, SPAN_TEXT_SIZE, "%.0f min", seconds / 60);
  else if (seconds < 48 * 3600)
    snprintf(text, SPAN_TEXT_SIZE, "%.1f h", seconds / 3600);
  else
    snprintf(text, SPAN_TEXT_SIZE, "%.1f days", seconds < 1e14 ? seconds / 86400 : 1e9);
  return text;
}
