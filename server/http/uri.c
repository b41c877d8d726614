/* Splits and decodes request targets. Pure functions; the text belongs to the uri. */
#include "server/http/uri.h"

#include <jansson.h>

static int hex_value(char c) {
  if (c >= '0' && c <= '9')
    return c - '0';
  if (c >= 'a' && c <= 'f')
    return c - 'a' + 10;
  if (c >= 'A' && c <= 'F')
    return c - 'A' + 10;
  return -1;
}

static bool text_is_utf8(const char *text) {
  const char *c = text;
  while (*c && !((unsigned char)*c & 0x80))
    c++;
  if (!*c)
    return true;
  json_t *string = json_string(text);
  json_decref(string);
  return string != NULL;
}

/* Decodes in place. '+' is a space in a query only. */
static bool text_decode(char *text, bool is_query, struct error *error) {
  char *out = text;
  for (const char *in = text; *in; in++) {
    if (*in == '%') {
      int high = hex_value(in[1]);
      int low = high < 0 ? -1 : hex_value(in[2]);
      if (low < 0 || (high | low) == 0)
        return error_set(error, "the request target has a \"%%\" that two hexadecimal digits other "
                                "than 00 do not follow");
      *out++ = (char)(high << 4 | low);
      in += 2;
    } else {
      *out++ = is_query && *in == '+' ? ' ' : *in;
    }
  }
  *out = '\0';
  if (!text_is_utf8(text))
    return error_set(error, "the request target is not UTF-8");
  return true;
}

/* Cuts at the next `separator`; returns what comes after it or NULL. */
static char *text_cut(char *text, char separator) {
  char *at = strchr(text, separator);
  if (!at)
    return NULL;
  *at = '\0';
  return at + 1;
}

static bool query_parse(char *text, struct uri *uri, struct error *error) {
  while (text) {
    char *next = text_cut(text, '&');
    if (*text) {
      char *value = text_cut(text, '=');
      if (!value)
        value = text + strlen(text);
      if (!text_decode(text, true, error) || !text_decode(value, true, error))
        return false;
      if (uri_query(uri, text))
        return error_set(error, "the query argument \"%.64s\" stands twice", text);
      if (uri->n_query == URI_QUERY_MAX)
        return error_set(error, "the query has more than %d arguments", URI_QUERY_MAX);
      uri->query[uri->n_query].name = text;
      uri->query[uri->n_query++].value = value;
    }
    text = next;
  }
  return true;
}

static bool path_parse(char *text, struct uri *uri, struct error *error) {
  while (text) {
    char *next = text_cut(text, '/');
    if (!text_decode(text, false, error))
      return false;
    if (uri->n_segments < URI_SEGMENTS_MAX)
      uri->segments[uri->n_segments] = text;
    uri->n_segments++;
    text = next;
  }
  return true;
}

bool uri_parse(const char *target, struct uri *ret_uri, struct error *error) {
  if (string_starts(target, "http://") || string_starts(target, "https://")) {
    const char *path = strchr(strchr(target, ':') + 3, '/');
    target = path ? path : "/";
  }
  if (*target != '/')
    return error_set(error, "the request target must be a path");
  struct uri uri = {.text = xstrdup(target)};
  char *query = text_cut(uri.text, '?');
  if (!path_parse(uri.text + 1, &uri, error) || !query_parse(query, &uri, error)) {
    uri_release(&uri);
    return false;
  }
  *ret_uri = uri;
  return true;
}

void uri_release(struct uri *uri) {
  free(uri->text);
  *uri = (struct uri){0};
}

const char *uri_query(const struct uri *uri, const char *name) {
  for (size_t i = 0; i < uri->n_query; i++)
    if (strcmp(uri->query[i].name, name) == 0)
      return uri->query[i].value;
  return NULL;
}
