/* The file of --samples: every measurement as one JSON object a line, as soon as it is there.
 *
 * Memory: a samples_file owns its stream. Threads: one. */
#ifndef WAVETUNE_AGENT_TUNE_SAMPLES_FILE_H
#define WAVETUNE_AGENT_TUNE_SAMPLES_FILE_H

#include "agent/lease/lease.h"

struct samples_file;

/* Makes the file anew. */
must_check bool samples_file_new(const char *path, struct samples_file **ret_file, struct error *error);
void samples_file_free(struct samples_file *file);

must_check bool samples_file_add(struct samples_file *file, const char *device, const struct lease *lease,
                                 const struct measurement *measurement, struct error *error);

#endif
