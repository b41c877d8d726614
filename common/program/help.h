/* The --help of a command, from its table of options.
 *
 * Memory: texts are the caller's. Threads: any. */
#ifndef WAVETUNE_COMMON_PROGRAM_HELP_H
#define WAVETUNE_COMMON_PROGRAM_HELP_H

#include "common/program/options.h"

void help_print(const char *program, const struct command_spec *command);

/* "lease-seconds" as WAVETUNE_LEASE_SECONDS. */
must_check char *option_variable(const char *name);

#endif
