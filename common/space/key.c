/* Keys: from JSON and from the command line, and back; lists of them. */
#include "common/space/key.h"

#include <errno.h>
#include <math.h>

#include "common/base/file.h"

#define KEYS_FILE_MAX ((size_t)64 << 20)

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

/* A member of a text with its values, each once, and all members of a text. */
struct member {
  char *name;
  size_t n;
  struct value *values; /* strings owned by the member */
};
struct members {
  size_t n;
  struct member all[KEY_MEMBERS_MAX];
};

static void value_discard(struct value value) {
  if (value.type == VALUE_STRING)
    free((char *)value.string);
}

static void members_release(struct members *members) {
  array_foreach (member, members->all, members->n) {
    array_foreach (value, member->values, member->n)
      value_discard(*value);
    free(member->values);
    free(member->name);
  }
}

/* Takes over the string of `value`. */
static bool member_value_add(struct member *member, struct value value, struct error *error) {
  size_t i = 0;
  while (i < member->n && !value_equal(member->values[i], value))
    i++;
  if (i < member->n || member->n == KEY_TEXT_MAX)
    value_discard(value);
  if (i < member->n)
    return true;
  if (member->n == KEY_TEXT_MAX)
    return error_set(error,
                     "more than %d values; 1..4096*2 are the powers of two, 64..4096+64 every 64th",
                     KEY_TEXT_MAX);
  *APPEND(member->values, member->n) = value;
  return true;
}

/* Whether an unquoted text is meant as a range: it begins as in "1..16". */
static bool is_range(const char *text) {
  text += *text == '-' || *text == '+';
  size_t digits = strspn(text, "0123456789");
  return digits > 0 && string_starts(text + digits, "..");
}

/* Adds the integers of "1..4096", "1..4096*2" or "64..4096+64". */
static bool member_range_add(struct member *member, const char *text, struct error *error) {
  char *end, operation = '+';
  errno = 0;
  int64_t number = strtoll(text, &end, 10), step = 1;
  const char *at = end + 2;
  int64_t last = strtoll(at, &end, 10);
  bool is_read = end != at;
  if (*end == '*' || *end == '+') {
    operation = *end;
    at = end + 1;
    step = strtoll(at, &end, 10);
    is_read &= end != at;
  }

  if (!is_read || *end || errno)
    return error_set(error,
                     "\"%s\" is not a range like 1..4096*2 or 64..4096+64; quote it to make it a "
                     "string",
                     NAME_CUT(text));
  if (number > last)
    return error_set(error, "the range %s is empty: it runs upwards", NAME_CUT(text));
  if (operation == '*' ? number < 1 || step < 2 : step < 1)
    return error_set(
        error,
        "the range %s does not end: it multiplies by 2 or more from 1 or more, or adds "
        "1 or more",
        NAME_CUT(text));

  bool is_over = false;
  while (!is_over && number <= last) {
    if (!member_value_add(member, value_int(number), error))
      return false;
    is_over = operation == '*' ? __builtin_mul_overflow(number, step, &number)
                               : __builtin_add_overflow(number, step, &number);
  }
  return true;
}

/* Adds the value or range at *at up to the comma or the end. */
static bool member_values_read(struct member *member, const char **at, struct error *error) {
  *at = skip_blanks(*at);
  if (**at == '\'' || **at == '"') {
    cleanup_free char *string = NULL;
    size_t length;
    if (!value_unquote(*at, &string, &length, error))
      return false;
    *at = skip_blanks(*at + length);
    if (**at && **at != ',')
      return error_set(error, "text follows the closing quote; separate members with commas");
    return member_value_add(member, value_string(TAKE(string)), error);
  }

  size_t length = strcspn(*at, ",");
  cleanup_free char *text = xstrndup(*at, trimmed_length(*at, length));
  struct value value;
  if (!*text)
    return error_set(error, "the value is missing; an empty string is written ''");
  *at += length;
  return is_range(text) ? member_range_add(member, text, error)
                        : value_read(text, &value, error) && member_value_add(member, value, error);
}

/* Reads NAME=VALUE,…; what has no name is a further value of the member before it. */
static bool members_read(const char *text, struct members *members, struct error *error) {
  if (!json_can_hold(text))
    return error_set(error, "the key is not UTF-8");

  for (const char *at = skip_blanks(text); *at;) {
    size_t length = strcspn(at, "=,");
    bool has_name = at[length] == '=' && *at != '\'' && *at != '"';
    if (has_name ? length == 0 : members->n == 0)
      return error_set(error, "expected NAME=VALUE at \"%s\"", NAME_CUT_OF(at, length));

    if (has_name) {
      cleanup_free char *name = xstrndup(at, trimmed_length(at, length));
      array_foreach (before, members->all, members->n)
        if (string_equal(before->name, name))
          return error_set(error, "the key has \"%s\" twice", NAME_CUT(name));
      if (members->n == KEY_MEMBERS_MAX)
        return key_is_too_large(error);
      members->all[members->n++] = (struct member){.name = TAKE(name)};
      at += length + 1;
    }

    struct member *member = &members->all[members->n - 1];
    if (!member_values_read(member, &at, error))
      return error_prefix(error, "%s: ", NAME_CUT(member->name));
    if (*at == ',') {
      at = skip_blanks(at + 1);
      if (!*at)
        return error_set(error, "expected NAME=VALUE after the last comma");
    }
  }

  return true;
}

void key_list_release(struct key_list *list) {
  array_foreach (key, list->keys, list->n)
    key_release(key);
  free(list->keys);
  json_decref(list->seen);
  *list = (struct key_list){0};
}

/* Takes over the key. */
static bool key_list_take(struct key_list *list, struct key *key, struct error *error) {
  cleanup_key struct key taken = *key;
  struct digest digest = key_digest(key);
  *key = (struct key){0};
  if (!list->seen)
    list->seen = json_object();
  if (!set_add(list->seen, DIGEST_TEXT(&digest)))
    return true;
  if (list->n == KEY_LIST_MAX)
    return error_set(error, "more than %d keys; split them", KEY_LIST_MAX);
  *APPEND(list->keys, list->n) = taken;
  taken = (struct key){0};
  return true;
}

/* Adds all combinations of the members' values. */
static bool key_list_add_members(struct key_list *list, const struct members *members,
                                 const char *const *names, size_t n_names, struct error *error) {
  double n = 1;
  array_foreach (member, members->all, members->n)
    n *= (double)member->n;
  if (n > KEY_TEXT_MAX)
    return error_set(error,
                     "its ranges and lists name %.0f keys, and at most %d are taken at once; "
                     "1..4096*2 are the powers of two",
                     n, KEY_TEXT_MAX);

  for (size_t i = 0; i < (size_t)n; i++) {
    size_t places[KEY_MEMBERS_MAX], rest = i;
    for (size_t j = members->n; j-- > 0; rest /= members->all[j].n)
      places[j] = rest % members->all[j].n;

    cleanup_key struct key key = {0}, arranged = {0};
    for (size_t j = 0; j < members->n; j++) {
      struct value value = members->all[j].values[places[j]];
      if (value.type == VALUE_STRING)
        value.string = xstrdup(value.string);
      if (!member_add(&key, members->all[j].name, value, error))
        return false;
    }
    if (!key_arrange(&key, names, n_names, &arranged, error) ||
        !key_list_take(list, &arranged, error))
      return false;
  }
  return true;
}

json_t *key_list_to_json(const struct key_list *list) {
  json_t *json = json_array();
  array_foreach (key, list->keys, list->n)
    json_push(json, key_to_json(key));
  return json;
}

bool key_list_add_json(struct key_list *list, const json_t *json, const char *const *names,
                       size_t n_names, struct error *error) {
  cleanup_key struct key key = {0};
  return key_parse(json, names, n_names, &key, error) && key_list_take(list, &key, error);
}

bool key_list_add(struct key_list *list, const char *text, const char *const *names, size_t n_names,
                  struct error *error) {
  cleanup_by(members_release) struct members members = {0};
  cleanup_json json_t *json = NULL;
  if (*skip_blanks(text) == '{')
    return json_parse(text, strlen(text), &json, error) &&
           key_list_add_json(list, json, names, n_names, error);
  return members_read(text, &members, error) &&
         key_list_add_members(list, &members, names, n_names, error);
}

bool key_parse_text(const char *text, const char *const *names, size_t n_names, struct key *ret_key,
                    struct error *error) {
  cleanup_by(members_release) struct members members = {0};
  cleanup_key_list struct key_list list = {0};
  if (!members_read(text, &members, error) ||
      !key_list_add_members(&list, &members, names, n_names, error))
    return false;
  if (list.n > 1)
    return error_set(error, "it names %zu keys, and one is wanted here", list.n);
  *ret_key = list.keys[0];
  list.n = 0;
  return true;
}

/* The line without its comment and the blanks at its ends. A `#` within quotes does not begin a
 * comment. */
static char *line_trim(char *line) {
  char quote = '\0';
  for (char *at = line; *at; at++) {
    if (quote && *at == '\\' && at[1])
      at++;
    else if (quote)
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

bool key_list_read(struct key_list *list, const char *path, const char *const *names,
                   size_t n_names, struct error *error) {
  bool is_input = string_equal(path, "-");
  const char *shown = is_input ? "standard input" : path;
  cleanup_free char *text = NULL;
  size_t size, number = 0, n_lines = 0;
  if (is_input ? !fd_read_all(STDIN_FILENO, shown, KEYS_FILE_MAX, &text, &size, error)
               : !file_read(path, KEYS_FILE_MAX, &text, &size, error))
    return false;
  if (strlen(text) < size)
    return error_set(error, "%s is not a text: it has a NUL", shown);

  char *rest = text;
  for (char *line; (line = strsep(&rest, "\n"));) {
    number++;
    line = line_trim(line);
    if (*line && !key_list_add(list, line, names, n_names, error))
      return error_prefix(error, "%s:%zu: ", shown, number);
    n_lines += *line != '\0';
  }

  return n_lines > 0 || error_set(error, "%s has no key; write one per line, e.g. %s=…", shown,
                                  n_names ? names[0] : "NAME");
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
                  is_range(string) || length == 0 || strpbrk(string, ",'\"\\\n\r\t") ||
                  string[0] == ' ' || string[length - 1] == ' ';
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
  return strpbrk(formatted, "\"$`\\!") ? shell_quote(formatted) : xasprintf("\"%s\"", formatted);
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
