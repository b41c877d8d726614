/* What the parts of `wavetune kernel check` share: the options, the answers, and whether anything
 * is refused.
 *
 * Each part looks at one place, prints what it found or, with --json, adds one object to the
 * answers. False with a sentence only for what is no subject of a check (a file that cannot be
 * read, a wrong option): exit code 2. What is wrong with the subject itself is a finding: exit
 * code 1. Memory: a check borrows the options and owns its answers. Threads: one. */
#ifndef WAVETUNE_INSPECT_CHECK_H
#define WAVETUNE_INSPECT_CHECK_H

#include "common/program/cli.h"
#include "inspect/findings.h"

#define CHECK_ARCH_DEFAULT "gfx942" /* of a kernel folder, when --arch does not say otherwise */

struct check {
  const struct options *options;
  bool as_json;
  bool is_refused;
  json_t *answers;
};

/* A code object, a TTGIR module (check_file.c). */
must_check bool check_file(struct check *check, const char *path, struct error *error);

/* Counts what is refused, prints the findings and, with --json, puts them into `answer`, which
 * becomes one of the answers; takes `answer`. */
void check_finish(struct check *check, json_t *answer, const struct review_findings *findings);
/* The same for a subject that is wrong as a whole: `what` it should have been, and why it is
 * not. */
void check_refuse(struct check *check, const char *place, const char *what,
                  const struct error *why);

#endif
