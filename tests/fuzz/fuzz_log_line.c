/* Lines of the log: whatever the values are, a line is one line of strict UTF-8 without control
 * characters, and in JSON one object whose members are those of the format. Line by line: an id of
 * a request, a field's text, words. */
#include "common/base/json.h"
#include "common/base/log.h"
#include "common/program/error_codes.h"
#include "tests/fuzz/fuzz.h"

static printf_like(3, 4) char *line_of(enum log_format format, const char *request,
                                       const char *text, ...) {
  struct log_head head = {format, "", "2026-11-21T06:40:04.123Z", "info", "fuzz", request};
  char line[LOG_LINE_SIZE];

  va_list arguments;
  va_start(arguments, text);
  size_t size = log_line_write(line, &head, text, arguments);
  va_end(arguments);
  ALWAYS(size > 0 && size <= sizeof line && line[size - 1] == '\n');
  for (size_t i = 0, n; i < size - 1; i += n) {
    n = utf8_character_size(line + i, size - i);
    ALWAYS(n > 0 && (unsigned char)line[i] >= 0x20 && line[i] != 0x7f);
  }

  return xstrndup(line, size);
}

#define LINE(format)                                                                               \
  line_of(format, request, "fuzz: seen name=%s n=%zu %s cut=%.3s", name, size, words,              \
          request ? request : NULL)

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  const char *at = (const char *)bytes, *end = at + size;
  cleanup_free char *id = line_next(&at, end), *name = line_next(&at, end);
  cleanup_free char *words = xstrndup(at, (size_t)(end - at));
  const char *request = request_id_is_good(id) ? id : NULL;
  ALWAYS(!request || (strlen(id) < REQUEST_ID_SIZE && !strpbrk(id, " \"\\=,;{}")));

  cleanup_free char *text = LINE(LOG_FORMAT_TEXT), *json = LINE(LOG_FORMAT_JSON);
  ALWAYS(string_starts(text, "2026-11-21T06:40:04.123Z info fuzz: seen name="));

  json_error_t reason;
  cleanup_json json_t *object = json_loads(json, JSON_REJECT_DUPLICATES, &reason);
  ALWAYS(json_is_object(object));
  ALWAYS(string_equal(json_string_value(json_object_get(object, "component")), "fuzz"));
  ALWAYS(string_equal(json_string_value(json_object_get(object, "request")), request));
  ALWAYS(json_integer_value(json_object_get(object, "n")) == (json_int_t)size);
  size_t members = json_object_size(object), all = 7 + 2 * (size_t)(request != NULL);
  ALWAYS(members == all ||
         (members == all + 1 && json_is_true(json_object_get(object, "truncated"))));
  return 0;
}
