/* Texts of function records and identities.
 *
 * Memory: what is taken is the caller's. Threads: any. */
#include "common/builds/record_text.h"

bool record_take_text(const json_t *object, const char *pointer, const char *name,
                      enum json_presence presence, enum record_text_kind kind, char **ret,
                      struct error *error) {
  const char *text = NULL;
  char at[JSON_POINTER_SIZE];
  if (!json_get_string(object, pointer, name, presence, &text, error))
    return false;
  if (!text)
    return true;
  json_pointer_member(at, sizeof at, pointer, name);
  size_t length = strlen(text);
  int max = kind == RECORD_TEXT_PART ? RECORD_TEXT_PART_MAX : RECORD_TEXT_MAX;
  if (length < 1 || length > (size_t)max)
    return error_at(error, at, "\"%s\" must have 1 to %d bytes", name, max);
  if (kind == RECORD_TEXT_PART &&
      (strchr(text, '/') || strcmp(text, ".") == 0 || strcmp(text, "..") == 0))
    return error_at(
        error, at,
        "\"%s\" becomes a part of a path: it must hold no '/' and not be \".\" or \"..\"", name);
  *ret = xstrdup(text);
  return true;
}
