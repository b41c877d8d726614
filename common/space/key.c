/* Keys: from JSON and from the command line, and back. Memory: a key owns names and strings.
 * Threads: any. */
#include "common/space/key.h"

#include <errno.h>
#include <math.h>

#include "common/base/names.h"

void key_release(struct key *key) {
  for (size_t i = 0; i < key->n; i++) {
    free(key->names[i]);
    if (key->values[i].type == VALUE_STRING)
      free((char *)key->values[i].string);
  }
  free(key->names);
  free(key->values);
  *key = (struct key){0};
}

/* Takes over the string of `value`, when it is one; room for the member was made before. */
static void member_add(struct key *key, const char *name, struct value value) {
  key->names[key->n] = xstrdup(name);
  key->values[key->n++] = value;
}

static void key_make_room(struct key *key, size_t n) {
  key->names = xcalloc(n, sizeof *key->names);
  key->values = xcalloc(n, sizeof *key->values);
}

static bool member_is_missing(const char *name, struct error *error) {
  char pointer[JSON_POINTER_SIZE], text[NAME_TEXT_SIZE];
  return error_at(error, json_pointer_member(pointer, sizeof pointer, "", name),
                  "the key lacks its member \"%s\"", name_cut(name, strlen(name), text));
}

static bool member_is_unknown(const char *name, const char *const *names, size_t n_names,
                              struct error *error) {
  char pointer[JSON_POINTER_SIZE], text[NAME_TEXT_SIZE];
  error_at(error, json_pointer_member(pointer, sizeof pointer, "", name),
           "the key has no member \"%s\"", name_cut(name, strlen(name), text));
  error_suggest(error, name, names, n_names);
  return false;
}

static size_t name_index(const char *name, const char *const *names, size_t n_names) {
  size_t i = 0;
  while (i < n_names && strcmp(names[i], name) != 0)
    i++;
  return i;
}

static bool key_is_too_large(struct error *error) {
  return error_set(error, "the key has more than %d members", KEY_MEMBERS_MAX);
}

bool key_parse(const json_t *json, const char *const *names, size_t n_names, struct key *ret_key,
               struct error *error) {
  if (!json_is_object(json))
    return error_set(error, "the key must be an object of names and values");
  const char *members[KEY_MEMBERS_MAX];
  size_t n = 0;
  const char *name;
  json_t *member;
  json_object_foreach ((json_t *)json, name, member) {
    if (n == KEY_MEMBERS_MAX)
      return key_is_too_large(error);
    if (names && name_index(name, names, n_names) == n_names)
      return member_is_unknown(name, names, n_names, error);
    if (!*name)
      return error_at(error, "/", "a member of the key has an empty name");
    members[n++] = name;
  }
  if (!names) {
    names = members;
    n_names = n;
  }
  cleanup_key struct key key = {0};
  key_make_room(&key, n_names);
  for (size_t i = 0; i < n_names; i++) {
    struct value value;
    member = json_object_get(json, names[i]);
    if (!member)
      return member_is_missing(names[i], error);
    if (!value_from_json(member, &value, error)) {
      char pointer[JSON_POINTER_SIZE];
      return error_pointer_prefix(error,
                                  json_pointer_member(pointer, sizeof pointer, "", names[i]));
    }
    if (value.type == VALUE_STRING)
      value.string = xstrdup(value.string);
    member_add(&key, names[i], value);
  }
  *ret_key = key;
  key = (struct key){0};
  return true;
}

/* As Python or JSON writes them: keys are copied from both. */
static bool word_read(const char *text, struct value *ret) {
  const struct {
    const char *word;
    struct value value;
  } words[] = {{"None", value_none()},       {"null", value_none()},
               {"True", value_bool(true)},   {"true", value_bool(true)},
               {"False", value_bool(false)}, {"false", value_bool(false)}};
  for (size_t i = 0; i < ARRAY_LENGTH(words); i++) {
    if (strcmp(text, words[i].word) == 0) {
      *ret = words[i].value;
      return true;
    }
  }
  return false;
}

/* What a text without quotes means: a word, an int, a float, else a string (owned by the
 * caller). */
static bool value_read(const char *text, struct value *ret, struct error *error) {
  if (word_read(text, ret))
    return true;
  const char *digits = text + (*text == '-' || *text == '+');
  size_t whole = strspn(digits, "0123456789");
  if (whole > 0 && digits[whole] == '\0') {
    errno = 0;
    *ret = value_int(strtoll(text, NULL, 10));
    return errno == 0 ||
           error_set(error, "%.40s does not fit in 64 bits; quote it to make it a string", text);
  }
  char *end;
  bool numeric = whole > 0 || (digits[0] == '.' && digits[1] >= '0' && digits[1] <= '9');
  if (numeric && strspn(digits, "0123456789.eE+-") == strlen(digits)) {
    double real = strtod(text, &end);
    if (*end == '\0') {
      *ret = value_float(real);
      return isfinite(real) ||
             error_set(error, "%.40s is too large for a float; quote it to make it a string", text);
    }
  }
  *ret = value_string(xstrdup(text));
  return true;
}

static const char *skip_blanks(const char *at) { return at + strspn(at, " \t"); }

/* Reads the value at *at up to the comma or the end. A string in *ret is owned by the caller. */
static bool value_text_read(const char **at, struct value *ret, struct error *error) {
  *at = skip_blanks(*at);
  if (**at == '\'' || **at == '"') {
    char *string;
    size_t length;
    if (!value_unquote(*at, &string, &length, error))
      return false;
    *at = skip_blanks(*at + length);
    if (**at && **at != ',') {
      free(string);
      return error_set(error, "text follows the closing quote; separate members with commas");
    }
    *ret = value_string(string);
    return true;
  }
  size_t length = strcspn(*at, ",");
  const char *next = *at + length;
  while (length > 0 && ((*at)[length - 1] == ' ' || (*at)[length - 1] == '\t'))
    length--;
  cleanup_free char *text = xstrndup(*at, length);
  if (!length)
    return error_set(error, "the value is missing; an empty string is written ''");
  *at = next;
  return value_read(text, ret, error);
}

/* Members in the order of the text. */
static bool members_read(const char *text, struct key *key, struct error *error) {
  const char *at = skip_blanks(text);
  while (*at) {
    size_t length = strcspn(at, "=,");
    char shown[NAME_TEXT_SIZE];
    if (at[length] != '=' || length == 0)
      return error_set(error, "expected NAME=VALUE at \"%s\"", name_cut(at, length, shown));
    if (key->n == KEY_MEMBERS_MAX)
      return key_is_too_large(error);
    size_t name_length = length;
    while (name_length > 0 && (at[name_length - 1] == ' ' || at[name_length - 1] == '\t'))
      name_length--;
    cleanup_free char *name = xstrndup(at, name_length);
    name_cut(name, name_length, shown);
    at += length + 1;
    if (name_index(name, (const char *const *)key->names, key->n) < key->n)
      return error_set(error, "the key has \"%s\" twice", shown);
    struct value value;
    if (!value_text_read(&at, &value, error))
      return error_prefix(error, "%s: ", shown);
    member_add(key, name, value);
    if (*at == ',') {
      at = skip_blanks(at + 1);
      if (!*at)
        return error_set(error, "expected NAME=VALUE after the last comma");
    }
  }
  return true;
}

bool key_parse_text(const char *text, const char *const *names, size_t n_names, struct key *ret_key,
                    struct error *error) {
  cleanup_json json_t *as_utf8 = json_string(text);
  if (!as_utf8)
    return error_set(error, "the key is not UTF-8");
  cleanup_key struct key key = {0};
  key_make_room(&key, KEY_MEMBERS_MAX);
  if (!members_read(text, &key, error))
    return false;
  if (names) {
    for (size_t i = 0; i < key.n; i++)
      if (name_index(key.names[i], names, n_names) == n_names)
        return member_is_unknown(key.names[i], names, n_names, error);
    /* Into the order of `names`, by swapping each member to its place. */
    for (size_t i = 0; i < n_names; i++) {
      size_t from = name_index(names[i], (const char *const *)key.names, key.n);
      if (from == key.n)
        return member_is_missing(names[i], error);
      char *name = key.names[i];
      struct value value = key.values[i];
      key.names[i] = key.names[from];
      key.values[i] = key.values[from];
      key.names[from] = name;
      key.values[from] = value;
    }
  }
  *ret_key = key;
  key = (struct key){0};
  return true;
}

json_t *key_to_json(const struct key *key) {
  json_t *json = json_object();
  ALWAYS(json != NULL);
  for (size_t i = 0; i < key->n; i++)
    ALWAYS(json_object_set_new(json, key->names[i], value_to_json(key->values[i])) == 0);
  return json;
}

/* A string that would read back as something else is quoted. */
static char *member_value_format(struct value value) {
  bool quoted = false;
  if (value.type == VALUE_STRING) {
    const char *string = value.string;
    size_t length = strlen(string);
    struct value read = value_none();
    struct error ignored;
    quoted = length == 0 || strpbrk(string, ",'\"\\\n\r\t") || string[0] == ' ' ||
             string[length - 1] == ' ' || !value_read(string, &read, &ignored) ||
             read.type != VALUE_STRING;
    if (read.type == VALUE_STRING)
      free((char *)read.string);
  }
  return value_format(value, quoted);
}

char *key_format(const struct key *key) {
  char *text = NULL;
  size_t size;
  FILE *out = open_memstream(&text, &size);
  ALWAYS(out != NULL);
  for (size_t i = 0; i < key->n; i++) {
    cleanup_free char *value = member_value_format(key->values[i]);
    fprintf(out, "%s%s=%s", i ? ", " : "", key->names[i], value);
  }
  ALWAYS(fclose(out) == 0);
  return text;
}

char *key_format_shell(const struct key *key) {
  cleanup_free char *formatted = key_format(key);
  if (!strpbrk(formatted, "\"$`\\!"))
    return xasprintf("\"%s\"", formatted);
  char *text = NULL;
  size_t size;
  FILE *out = open_memstream(&text, &size);
  ALWAYS(out != NULL);
  putc('\'', out);
  for (const char *at = formatted; *at; at++) {
    if (*at == '\'')
      fputs("'\\''", out);
    else
      putc(*at, out);
  }
  putc('\'', out);
  ALWAYS(fclose(out) == 0);
  return text;
}

struct digest key_digest(const struct key *key) {
  cleanup_json json_t *json = key_to_json(key);
  return json_digest(json);
}

bool key_scope_add(const struct key *key, struct scope *scope, struct error *error) {
  for (size_t i = 0; i < key->n; i++)
    if (!scope_add(scope, key->names[i], key->values[i], error))
      return false;
  return true;
}

char *key_to_text(const struct key *key) {
  char *text = NULL;
  size_t size;
  FILE *out = open_memstream(&text, &size);
  ALWAYS(out != NULL);
  fputc('{', out);
  for (size_t i = 0; i < key->n; i++) {
    cleanup_json json_t *value = value_to_json(key->values[i]);
    if (i)
      fputc(',', out);
    json_canonical_write_string(out, key->names[i]);
    fputc(':', out);
    json_canonical_write(out, value);
  }
  fputc('}', out);
  ALWAYS(fclose(out) == 0);
  return text;
}
