/* Keys from texts. Memory and threads: the header. */
#include "agent/tune/tune_keys.h"

#include "common/base/file.h"

#define KEYS_FILE_MAX ((size_t)64 << 20)

struct reading {
  const struct kernel_folder *folder;
  size_t n, capacity;
  struct key *keys;
  json_t *seen; /* digests of the keys so far, with the numbers of their lines; 0: of --key */
};

void tune_keys_free(struct key *keys, size_t n) {
  for (size_t i = 0; i < n; i++)
    key_release(&keys[i]);
  free(keys);
}

static bool key_parse_line(const char *text, const struct kernel *kernel, struct key *ret, struct error *error) {
  const char *const *names = (const char *const *)kernel->key_names;
  cleanup_json json_t *json = NULL;
  if (*text != '{')
    return key_parse_text(text, names, kernel->n_key_names, ret, error);
  return json_parse(text, strlen(text), &json, error) && key_parse(json, names, kernel->n_key_names, ret, error);
}

static bool key_is_new(struct reading *reading, const struct key *key, size_t line, struct error *error) {
  char text[DIGEST_TEXT_SIZE];
  struct digest digest = key_digest(key);
  const json_t *before = json_object_get(reading->seen, digest_format(&digest, text));
  if (!before) {
    ALWAYS(json_object_set_new(reading->seen, text, json_integer((json_int_t)line)) == 0);
    return true;
  }
  json_int_t number = json_integer_value(before);
  return number ? error_set(error, "this key stands in line %lld already; leave one out", (long long)number)
                : error_set(error, "this key is that of --key; leave one out");
}

static bool key_add(struct reading *reading, const char *text, size_t line, struct error *error) {
  const struct kernel_folder *folder = reading->folder;
  cleanup_key struct key key = {0};
  if (!key_parse_line(text, folder->kernel, &key, error) ||
      !kernel_accepts(folder->kernel, &key, folder->space, error) || !key_is_new(reading, &key, line, error))
    return false;
  if (reading->n == TUNE_KEYS_MAX)
    return error_set(error, "more than %d keys; split the file", TUNE_KEYS_MAX);
  GROW(reading->keys, reading->n, reading->capacity);
  reading->keys[reading->n++] = key;
  key = (struct key){0};
  return true;
}

/* The line without its comment and the blanks around it. A `#` within quotes is no comment. */
static char *line_trim(char *line) {
  char quote = '\0';
  for (char *at = line; *at; at++) {
    if (quote)
      quote = *at == quote ? '\0' : quote;
    else if (*at == '\'' || *at == '"')
      quote = *at;
    else if (*at == '#')
      *at-- = '\0';
  }
  line += strspn(line, " \t\r");
  size_t length = strlen(line);
  while (length > 0 && strchr(" \t\r", line[length - 1]))
    line[--length] = '\0';
  return line;
}

static bool file_add(struct reading *reading, const char *file, struct error *error) {
  cleanup_free char *text = NULL;
  size_t size, number = 0, n = reading->n;
  if (!file_read(file, KEYS_FILE_MAX, &text, &size, error))
    return false;
  char *rest = text;
  for (char *line; (line = strsep(&rest, "\n"));) {
    number++;
    line = line_trim(line);
    if (*line && !key_add(reading, line, number, error))
      return error_prefix(error, "%s:%zu: ", file, number);
  }
  return reading->n > n || error_set(error, "%s holds no key; write one a line, e.g. %s=…", file,
                                     reading->folder->kernel->n_key_names ? reading->folder->kernel->key_names[0] : "");
}

bool tune_keys_read(const char *text, const char *file, const struct kernel_folder *folder, struct key **ret_keys,
                    size_t *ret_n, struct error *error) {
  cleanup_json json_t *seen = json_object();
  struct reading reading = {.folder = folder, .seen = seen};
  if ((text && !key_add(&reading, text, 0, error)) || (file && !file_add(&reading, file, error))) {
    tune_keys_free(reading.keys, reading.n);
    return false;
  }
  *ret_keys = reading.keys;
  *ret_n = reading.n;
  return true;
}
