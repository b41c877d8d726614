/* Steps of a check that agent/measure/check.c and agreement.c share.
 *
 * Memory and threads: as agent/measure/problem.h. */
#ifndef WAVETUNE_AGENT_MEASURE_CHECK_H
#define WAVETUNE_AGENT_MEASURE_CHECK_H

#include "agent/measure/problem.h"

#define SCAN_BLOCK 8192 /* elements that are compared one by one when one of them is suspect */
#define SCAN_ELEMENTS (64 * SCAN_BLOCK) /* of a thread at once */

/* Returns a device call's result; after a failure, checks whether the device still works. */
bool check_device_result(struct problem *problem, bool ok);

/* Runs the config on outputs with the mark, and waits for it. */
must_check bool check_launch(struct problem *problem, struct loaded_config *loaded, int mark,
                             struct error *error);

/* Checks all buffers even after a failure: each call restores the canaries. What else was written
 * outside of them is not known, so that nothing more is measured in this process. */
must_check bool check_canaries(struct problem *problem, struct error *error);

must_check bool check_download(struct problem *problem, void *bytes, const struct operand *operand,
                               struct error *error);

#endif
