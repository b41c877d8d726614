/* Running a tuned config once more under ROCm's profiler, where that is installed.
 *
 * The profiler starts its program with no other open files, so it is not a worker that it starts
 * but this program's `tune --only CONFIG`. Command lines: ROCm documentation, "Using rocprofv3" and
 * "rocprof command reference". Memory: none kept. Threads: any. */
#ifndef WAVETUNE_AGENT_TUNE_PROFILE_H
#define WAVETUNE_AGENT_TUNE_PROFILE_H

#include "common/program/custody.h"
#include "common/program/options.h"

/* `options` are those of a `tune` that has found `config`; what the profiler writes goes to
 * `folder`, which is the workers' user's (`custody`). */
must_check bool profile_config(const struct options *options, const struct custody *custody,
                               const char *device, uint64_t config, const char *folder,
                               struct error *error);

#endif
