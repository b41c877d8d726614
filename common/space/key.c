/* Keys: from JSON and from the command line, and back. */
#include "common/space/key.h"

#include <errno.h>
#include <math.h>

#include "common/base/error.h"

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

static size_t name_index(const char *name, const char *const *names, size_t n_names) {
  size_t i = 0;
  while (i < n_names && !string_equal(names[i], name))
    i++;
  return i;
}

static bool key_is_too_large(struct error *error) {
  return error_set(error, "the key has more than %d members", KEY_MEMBERS_MAX);
}

/* Takes over the string of `value`. False, and the string is freed, where the key is full. */
static bool member_add(struct key *key, const char *name, struct value value, struct error *error) {
  if (!key->names) {
    key->names = xcalloc(KEY_MEMBERS_MAX, sizeof *key->names);
    key->values = xcalloc(KEY_MEMBERS_MAX, sizeof *key->values);
  }

  if (key->n == KEY_MEMBERS_MAX) {
    if (value.type == VALUE_STRING)
      free((char *)value.string);
    return key_is_too_large(error);
  }

  key->names[key->n] = xstrdup(name);
  key->values[key->n++] = value;
  return true;
}

static bool member_is_missing(const char *name, struct error *error) {
  return error_at(error, POINTER_MEMBER("", name), "the key lacks its member \"%s\"",
                  NAME_CUT(name));
}

/* Whether the key of a kernel may have a member of this name. */
static bool name_is_known(const char *name, const char *const *names, size_t n_names,
                          struct error *error) {
  if (name_index(name, names, n_names) < n_names)
    return true;
  error_at(error, POINTER_MEMBER("", name), "the key has no member \"%s\"", NAME_CUT(name));
  error_suggest(error, name, names, n_names);
  return false;
}

/* Moves the members to *ret_key, in the order of `names` unless that is NULL. */
static bool key_arrange(struct key *key, const char *const *names, size_t n_names,
                        struct key *ret_key, struct error *error) {
  for (size_t i = 0; names && i < key->n; i++)
    if (!name_is_known(key->names[i], names, n_names, error))
      return false;

  for (size_t i = 0; names && i < n_names; i++) {
    size_t from = name_index(names[i], (const char *const *)key->names, key->n);
    if (from == key->n)
      return member_is_missing(names[i], error);
    char *name = key->names[i];
    struct value value = key->values[i];
    key->names[i] = key->names[from];
    key->values[i] = key->values[from];
    key->names[from] = name;
    key->values[from] = value;
  }

  *ret_key = (struct key){key->n, xreallocarray(key->names, key->n, sizeof *key->names),
                          xreallocarray(key->values, key->n, sizeof *key->values)};
  *key = (struct key){0};
  return true;
}

bool key_parse(const json_t *json, const char *const *names, size_t n_names, struct key *ret_key,
               struct error *error) {
  if (!json_is_object(json))
    return error_set(error, "the key must be an object of names and values");

  /* A wrong name is reported before a wrong value: it may be the reason for it. */
  const char *members[KEY_MEMBERS_MAX], *name;
  size_t n = 0;
  json_t *member;
  json_object_foreach ((json_t *)json, name, member) {
    if (n == KEY_MEMBERS_MAX)
      return key_is_too_large(error);
    if (names && !name_is_known(name, names, n_names, error))
      return false;
    if (!*name)
      return error_at(error, "/", "a member of the key has an empty name");
    members[n++] = name;
  }

  if (!names) {
    names = members;
    n_names = n;
  }

  cleanup_key struct key key = {0};
  for (size_t i = 0; i < n_names; i++) {
    struct value value;
    name = names[i];
    member = json_object_get(json, name);
    if (!member)
      return member_is_missing(name, error);
    if (!value_from_json(member, &value, error))
      return error_pointer_prefix(error, POINTER_MEMBER("", name));
    if (value.type == VALUE_STRING)
      value.string = xstrdup(value.string);
    if (!member_add(&key, name, value, error))
      return false;
  }

  return key_arrange(&key, names, n_names, ret_key, error);
}

/* The value of an unquoted text: a word, an int, a float, else a string (owned by the
 * caller). Words are as Python or JSON writes them: keys are copied from both. */
static bool value_read(const char *text, struct value *ret, struct error *error) {
  static const struct {
    const char *word;
    struct value value;
  } words[] = {{"None", {.type = VALUE_NONE}},
               {"null", {.type = VALUE_NONE}},
               {"True", {VALUE_BOOL, {.boolean = true}}},
               {"true", {VALUE_BOOL, {.boolean = true}}},
               {"False", {VALUE_BOOL, {.boolean = false}}},
               {"false", {VALUE_BOOL, {.boolean = false}}}};

  for (size_t i = 0; i < ARRAY_LENGTH(words); i++) {
    if (string_equal(text, words[i].word)) {
      *ret = words[i].value;
      return true;
    }
  }

  const char *digits = text + (*text == '-' || *text == '+');
  size_t whole = strspn(digits, "0123456789");
  if (whole > 0 && digits[whole] == '\0') {
    errno = 0;
    *ret = value_int(strtoll(text, NULL, 10));
    return errno == 0 ||
           error_set(error, "%.40s does not fit in 64 bits; quote it to make it a string", text);
  }

  bool is_number = whole > 0 || (digits[0] == '.' && digits[1] >= '0' && digits[1] <= '9');
  char *end;
  double real = strtod(text, &end);
  if (is_number && strspn(digits, "0123456789.eE+-") == strlen(digits) && *end == '\0') {
    *ret = value_float(real);
    return isfinite(real) ||
           error_set(error, "%.40s is too large for a float; quote it to make it a string", text);
  }

  *ret = value_string(xstrdup(text));
  return true;
}

static const char *skip_blanks(const char *at) { return at + strspn(at, " \t"); }

static size_t trimmed_length(const char *text, size_t length) {
  while (length > 0 && (text[length - 1] == ' ' || text[length - 1] == '\t'))
    length--;
  return length;
}

/* Reads the value at *at up to the comma or the end. A string in *ret is owned by the caller. */
static bool value_text_read(const char **at, struct value *ret, struct error *error) {
  *at = skip_blanks(*at);
  if (**at == '\'' || **at == '"') {
    cleanup_free char *string = NULL;
    size_t length;
    if (!value_unquote(*at, &string, &length, error))
      return false;
    *at = skip_blanks(*at + length);
    if (**at && **at != ',')
      return error_set(error, "text follows the closing quote; separate members with commas");
    *ret = value_string(TAKE(string));
    return true;
  }

  size_t length = strcspn(*at, ",");
  cleanup_free char *text = xstrndup(*at, trimmed_length(*at, length));
  if (!*text)
    return error_set(error, "the value is missing; an empty string is written ''");

  *at += length;
  return value_read(text, ret, error);
}

bool key_parse_text(const char *text, const char *const *names, size_t n_names, struct key *ret_key,
                    struct error *error) {
  cleanup_key struct key key = {0};
  if (!json_can_hold(text))
    return error_set(error, "the key is not UTF-8");

  for (const char *at = skip_blanks(text); *at;) {
    size_t length = strcspn(at, "=,");
    if (at[length] != '=' || length == 0)
      return error_set(error, "expected NAME=VALUE at \"%s\"", NAME_CUT_OF(at, length));
    cleanup_free char *name = xstrndup(at, trimmed_length(at, length));
    const char *shown = NAME_CUT(name);
    if (name_index(name, (const char *const *)key.names, key.n) < key.n)
      return error_set(error, "the key has \"%s\" twice", shown);

    struct value value;
    at += length + 1;
    if (!value_text_read(&at, &value, error))
      return error_prefix(error, "%s: ", shown);
    if (!member_add(&key, name, value, error))
      return false;
    if (*at == ',') {
      at = skip_blanks(at + 1);
      if (!*at)
        return error_set(error, "expected NAME=VALUE after the last comma");
    }
  }

  return key_arrange(&key, names, n_names, ret_key, error);
}

json_t *key_to_json(const struct key *key) {
  json_t *json = json_object();
  ALWAYS(json != NULL);
  for (size_t i = 0; i < key->n; i++)
    json_put(json, key->names[i], value_to_json(key->values[i]));
  return json;
}

char *key_format(const struct key *key) {
  char *text = NULL;
  size_t size;
  FILE *out = open_memstream(&text, &size);
  ALWAYS(out != NULL);

  for (size_t i = 0; i < key->n; i++) {
    /* A string that would read back as something else is quoted. */
    bool is_quoted = false;
    if (key->values[i].type == VALUE_STRING) {
      const char *string = key->values[i].string;
      size_t length = strlen(string);
      struct value read = value_none();
      struct error ignored;
      is_quoted = !value_read(string, &read, &ignored) || read.type != VALUE_STRING ||
                  length == 0 || strpbrk(string, ",'\"\\\n\r\t") || string[0] == ' ' ||
                  string[length - 1] == ' ';
      if (read.type == VALUE_STRING)
        free((char *)read.string);
    }
    cleanup_free char *value = value_format(key->values[i], is_quoted);
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
  for (const char *at = formatted; *at; at++)
    fprintf(out, *at == '\'' ? "'\\%c'" : "%c", *at);

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
