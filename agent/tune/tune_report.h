/* What `tune` prints: of each key a table or one line of JSON, of a campaign what it took.
 *
 * Memory: everything is borrowed. Threads: one. */
#ifndef WAVETUNE_AGENT_TUNE_TUNE_REPORT_H
#define WAVETUNE_AGENT_TUNE_TUNE_REPORT_H

#include "agent/tune/campaign.h"

/* Of a key that has a verdict or a failure:
 *   {"kernel", "name", "key", "environment", "device", "regime", "version", "configs", "measured", "unmeasured",
 *    "finalists", "baseline", "outcomes", "failed", "examples", "seconds": {"screen", "halving", "final"},
 *    "device_seconds", "opening_seconds" (of those), and "verdict" and "winner", or "error"} */
void tune_report_json(const struct campaign *campaign, const struct key_tuning *key);

/* Of a key that has a verdict. */
void tune_report_text(const struct campaign *campaign, const struct key_tuning *key);

/* {"campaign": {"keys", "failed", "seconds", "processes", "spent": {"start", "reference", "inputs", "baseline",
 * "load", "check", "warm_up", "timing"}}}, all but the counts in seconds; without `is_json` the same as a sentence. */
void tune_report_campaign(const struct campaign *campaign, double seconds, bool is_json);

#endif
