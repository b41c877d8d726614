/* Advice on kernels and their code, mostly from AMD's optimization guides: the table of the
 * commands of `wavetune` that give it. None of them is needed to tune, publish or fetch.
 *
 * Of the headers of inspect/ only this one is included from outside, by cli/main.c alone.
 * Memory: none. Threads: one. */
#ifndef WAVETUNE_INSPECT_INSPECT_H
#define WAVETUNE_INSPECT_INSPECT_H

#include "common/program/cli.h"

#define INSPECT_COMMANDS(COMMAND)                                                                  \
  COMMAND(kernel_check)                                                                            \
  COMMAND(occupancy)                                                                               \
  COMMAND(utilization)                                                                             \
  COMMAND(simulate)

/* Each command's file defines its row of the table, `const struct command_spec spec_NAME`. */
#define X(name) extern const struct command_spec spec_##name;
INSPECT_COMMANDS(X)
#undef X

/* `show JOB --asm` or `--ttgir` (show_code.c): prints the winner's assembly or TTGIR; with as_json,
 * a review of it too. */
void inspect_print_code(struct http_client *client, const json_t *job, bool wants_asm,
                        bool as_json);

#endif
