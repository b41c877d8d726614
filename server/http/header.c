/* Parses header values. Pure functions. */
#include "server/http/header.h"

#include <strings.h>

#define TOKEN_LENGTH_MAX 256

const char *header_bearer(const char *value) {
  if (strncasecmp(value, "Bearer ", 7) != 0)
    return NULL;
  value += 7;
  while (*value == ' ')
    value++;
  size_t length = 0;
  while (value[length] > ' ' && value[length] < 0x7f)
    length++;
  return length && length <= TOKEN_LENGTH_MAX && !value[length] ? value : NULL;
}

static const char *skip_separators(const char *text) { return text + strspn(text, " \t,"); }

bool header_etag_listed(const char *list, const char *etag) {
  size_t length = strlen(etag);
  list = skip_separators(list);
  if (strcmp(list, "*") == 0)
    return true;
  while (*list) {
    if (string_starts(list, "W/"))
      list += 2;
    if (*list != '"')
      return false;
    const char *end = strchr(++list, '"');
    if (!end)
      return false;
    if ((size_t)(end - list) == length && memcmp(list, etag, length) == 0)
      return true;
    list = skip_separators(end + 1);
  }
  return false;
}

/* The digits at *text, at most UINT64_MAX; false when there are none. */
static bool digits_read(const char **text, uint64_t *ret) {
  uint64_t number = 0;
  const char *c = *text;
  for (; *c >= '0' && *c <= '9'; c++)
    if (__builtin_mul_overflow(number, 10, &number) ||
        __builtin_add_overflow(number, (uint64_t)(*c - '0'), &number))
      number = UINT64_MAX;
  if (c == *text)
    return false;
  *text = c;
  *ret = number;
  return true;
}

enum range_answer header_range(const char *value, size_t size, size_t *ret_first,
                               size_t *ret_last) {
  uint64_t first = 0, last = 0;
  if (strncasecmp(value, "bytes=", 6) != 0)
    return RANGE_WHOLE;
  value += 6;
  bool has_first = digits_read(&value, &first);
  if (*value++ != '-')
    return RANGE_WHOLE;
  bool has_last = digits_read(&value, &last);
  if (*value || (!has_first && !has_last) || (has_first && has_last && last < first))
    return RANGE_WHOLE;
  if (has_first ? first >= size : last == 0 || size == 0)
    return RANGE_UNSATISFIABLE;
  if (!has_first) { /* the last so many bytes */
    *ret_first = last < size ? size - last : 0;
    *ret_last = size - 1;
  } else {
    *ret_first = first;
    *ret_last = has_last && last < size ? last : size - 1;
  }
  return RANGE_PART;
}

bool header_size(const char *value, uint64_t *ret_size) {
  uint64_t size;
  if (!digits_read(&value, &size) || *value || size == UINT64_MAX)
    return false;
  *ret_size = size;
  return true;
}
