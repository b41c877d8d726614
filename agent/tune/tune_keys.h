/* The keys of a campaign as the command line gives them: --key, and a file with one on each line.
 *
 * A line is NAME=VALUE,… as --key takes it, or a JSON object; `#` begins a comment. Blank lines are left out.
 * Memory: the keys are the caller's. Threads: any. */
#ifndef WAVETUNE_AGENT_TUNE_TUNE_KEYS_H
#define WAVETUNE_AGENT_TUNE_TUNE_KEYS_H

#include "common/kernel/kernel_folder.h"

#define TUNE_KEYS_MAX 100000

/* `text` and `file` may be NULL. Errors of the file name it and the line: not a key of this kernel, the same key twice,
 * no key at all, more than TUNE_KEYS_MAX. */
must_check bool tune_keys_read(const char *text, const char *file, const struct kernel_folder *folder,
                               struct key **ret_keys, size_t *ret_n, struct error *error);
void tune_keys_free(struct key *keys, size_t n);

#endif
