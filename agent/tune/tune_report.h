/* What `tune` writes: of each key a table or one line of JSON, of a campaign what it took, and the
 * file of --samples.
 *
 * Memory: everything is borrowed; a samples_file owns its stream. Threads: one. */
#ifndef WAVETUNE_AGENT_TUNE_TUNE_REPORT_H
#define WAVETUNE_AGENT_TUNE_TUNE_REPORT_H

#include "agent/tune/campaign.h"

/* Of a key that has a verdict or a failure:
 *   {"kernel", "name", "key", "environment", "device", "regime", "version", "configs", "measured",
 *    "unmeasured", "finalists", "baseline", "outcomes", "failed", "examples",
 *    "seconds": {"screen", "halving", "final"}, "device_seconds", "opening_seconds" (of those), and
 *    "verdict" and "winner", or "error"} */
void tune_report_json(const struct campaign *campaign, const struct key_tuning *key);

/* Of a key that has a verdict. */
void tune_report_text(const struct campaign *campaign, const struct key_tuning *key);

/* {"campaign": {"keys", "failed", "seconds", "processes", "spent": {"start", "reference", "inputs",
 * "baseline", "load", "check", "warm_up", "timing"}}}, all but the counts in seconds; without
 * `is_json` the same as a sentence. */
void tune_report_campaign(const struct campaign *campaign, double seconds, bool is_json);

/* The file of --samples: every measurement as one JSON object a line, as soon as it is there. Makes
 * it anew. */
struct samples_file;
must_check bool samples_file_new(const char *path, struct samples_file **ret_file,
                                 struct error *error);
void samples_file_free(struct samples_file *file);
must_check bool samples_file_add(struct samples_file *file, const char *device,
                                 const struct lease *lease, const struct measurement *measurement,
                                 struct error *error);

#endif
