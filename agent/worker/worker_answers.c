/* Lines out of bytes. Memory and threads: as the header says. */
#include "agent/worker/worker_answers.h"

#include "agent/worker/worker.h"

void worker_answers_release(struct worker_answers *answers) {
  free(answers->bytes);
  *answers = (struct worker_answers){0};
}

void worker_answers_expect(struct worker_answers *answers, size_t lines) {
  answers->size = answers->scanned = 0;
  answers->left = lines;
}

char *worker_answers_room(struct worker_answers *answers, size_t size) {
  if (answers->capacity - answers->size < size) {
    answers->capacity = answers->capacity * 2 + size;
    answers->bytes = xreallocarray(answers->bytes, answers->capacity, 1);
  }
  return answers->bytes + answers->size;
}

/* Takes the first whole line of what has come, without its newline. False: there is none. */
static bool line_take(struct worker_answers *answers, char **ret_line, size_t *ret_length) {
  const char *newline =
      answers->size > answers->scanned
          ? memchr(answers->bytes + answers->scanned, '\n', answers->size - answers->scanned)
          : NULL;
  answers->scanned = answers->size;
  if (!newline)
    return false;
  size_t length = (size_t)(newline - answers->bytes);
  *ret_line = xmemdup(answers->bytes, length);
  *ret_length = length;
  answers->size -= length + 1;
  memmove(answers->bytes, newline + 1, answers->size);
  answers->scanned = 0;
  return true;
}

enum worker_line worker_answers_next(struct worker_answers *answers, json_t **ret_answer,
                                     struct error *error) {
  cleanup_free char *line = NULL;
  cleanup_json json_t *answer = NULL;
  size_t length;
  if (!line_take(answers, &line, &length)) {
    if (answers->size <= WORKER_LINE_MAX)
      return WORKER_LINE_MISSING;
    error_set(error, "a line without an end");
    return WORKER_LINE_WRONG;
  }
  if (answers->left == 0) {
    error_set(error, "more lines than it was asked for");
    return WORKER_LINE_WRONG;
  }
  answers->left--;
  if (!json_parse(line, length, &answer, error))
    return WORKER_LINE_WRONG;
  if (!json_is_object(answer)) {
    error_set(error, "not an object");
    return WORKER_LINE_WRONG;
  }
  *ret_answer = TAKE(answer);
  return WORKER_LINE_WHOLE;
}
