/* Follows the fields through libmicrohttpd's buffer, where 0.9 keeps the bytes as they came, but
 * for colons and ends of lines, which it made NUL. Later versions refuse such heads themselves. */
#include "server/http/head.h"

bool field_name_is_valid(const char *name) {
  static const char others[] = "!#$%&'*+-.^_`|~";
  size_t i = 0;
  while ((name[i] >= '0' && name[i] <= '9') || (name[i] >= 'A' && name[i] <= 'Z') ||
         (name[i] >= 'a' && name[i] <= 'z') || (name[i] && strchr(others, name[i])))
    i++;
  return i > 0 && !name[i];
}

struct walk {
  const char *at; /* where the next field must begin; NULL: one began elsewhere */
  bool has_bad_name;
};

static enum MHD_Result field_walk(void *context, enum MHD_ValueKind kind, const char *name,
                                  const char *value) {
  struct walk *walk = context;
  (void)kind;
  if (!field_name_is_valid(name)) {
    walk->has_bad_name = true;
    return MHD_NO;
  }

  const char *between = name + strlen(name) + 1;
  while (between < value && (*between == ' ' || *between == '\t'))
    between++;
  walk->at = value && name == walk->at && between == value ? value + strlen(value) + 2 : NULL;
  return walk->at ? MHD_YES : MHD_NO;
}

const char *head_fault(struct MHD_Connection *mhd, const struct head *head) {
  const union MHD_ConnectionInfo *info =
      MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
  struct walk walk = {.at = head->version + strlen(head->version) + 2};
  bool is_known = string_starts(MHD_get_version(), "0.9.") && info;
  MHD_get_connection_values(mhd, MHD_HEADER_KIND, field_walk, &walk);

  if (walk.has_bad_name)
    return "the name of a header field has a blank, or another character that is not allowed in it";
  if (!is_known || (head->method + strlen(head->method) + 1 == head->target &&
                    head->target + head->target_size + 1 == head->version && walk.at &&
                    walk.at + 2 == head->method + info->header_size))
    return NULL;
  return "the head of the request has bytes that belong to no field: a folded line, a NUL, or a "
         "line that does not end with CR LF";
}
