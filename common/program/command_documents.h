/* The commands help, completion and man of all programs: made from the same tables as --help.
 *
 * Memory: the table is borrowed until the program ends. Threads: one, at start. */
#ifndef WAVETUNE_COMMON_PROGRAM_COMMAND_DOCUMENTS_H
#define WAVETUNE_COMMON_PROGRAM_COMMAND_DOCUMENTS_H

#include "common/program/options.h"

#define COMMAND_DOCUMENTS 3
extern const struct command_spec command_documents[COMMAND_DOCUMENTS];

/* Sets the table that completion and man are made from. */
void command_documents_of(const char *program, const char *summary,
                          const struct command_spec *commands, size_t n);

#endif
