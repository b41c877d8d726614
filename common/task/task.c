/* The kinds of tasks, and the envelope of a grant. */
#include "common/task/task.h"

#define X(id, name) name,
static const char *const names[] = {TASK_KINDS(X)};
#undef X

const char *task_kind_name(enum task_kind kind) { return names[kind]; }

enum task_kind task_kind_parse(const char *name) {
  int kind = TASK_MEASURE;
  while (name && kind < TASK_KIND_COUNT && !string_equal(name, names[kind]))
    kind++;
  return (enum task_kind)kind;
}

bool task_id_check(const char *id, struct error *error) {
  size_t length = strspn(id, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-");
  return (length >= 1 && length <= TASK_ID_LENGTH_MAX && !id[length] && id[0] != '.') ||
         error_set(error, "the lease's id is not 1 to %d of A-Z, a-z, 0-9, \".\", \"_\" and \"-\"",
                   TASK_ID_LENGTH_MAX);
}

struct grant {
  struct task_grant task;
};
static const struct field grant_fields[] = {TASK_GRANT_FIELDS(struct grant, task)};
const struct record task_grant_record = RECORD(NULL, struct grant, grant_fields);
