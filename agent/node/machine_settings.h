/* Settings of a node that make kernels slower or their times noisier, as AMD's env_check.sh checks
 * them: checking them, setting them, and restoring the earlier values.
 *
 * Checking only reads. Setting first writes the present values to a file, unless that exists: reset
 * restores the values from before the first set. A root folder other than "" replaces / (tests).
 * Memory: findings and changes own their texts. Threads: one at a time. */
#ifndef WAVETUNE_AGENT_NODE_MACHINE_SETTINGS_H
#define WAVETUNE_AGENT_NODE_MACHINE_SETTINGS_H

#include "common/base/json.h"

enum setting_state {
  SETTING_GOOD,
  SETTING_DIFFERS,
  SETTING_ABSENT, /* this machine does not have it: no AMD GPU, a guest without frequency control */
  SETTING_UNSUPPORTED, /* `set` found that this GPU does not have it (MI308X, MI350X: no clock
                          limit) */
};

struct setting_finding {
  const char *name; /* "cpu_governor" */
  const char *should, *why;
  char *is; /* "powersave (64 of 64)"; of an absent setting, why it is absent */
  enum setting_state state;
};

struct settings_findings {
  size_t n;
  struct setting_finding *all;
};

void machine_settings_check(const char *root, struct settings_findings *ret_findings);
void settings_findings_release(struct settings_findings *findings);
#define cleanup_settings_findings __attribute__((cleanup(settings_findings_release)))

/* The names of the settings that differ, as provenance of measurements: ["cpu_governor"] (a new
 * reference). */
must_check json_t *settings_findings_differing(const struct settings_findings *findings);

enum change_result {
  CHANGE_DONE,
  CHANGE_ALREADY,     /* it already had the right value */
  CHANGE_REFUSED,     /* some or all of its files could not be changed */
  CHANGE_UNSUPPORTED, /* this GPU does not have it: no failure */
  CHANGE_ABSENT,      /* this machine does not have it */
};

struct setting_change {
  const char *name;
  enum change_result result;
  char *why; /* the reason of CHANGE_REFUSED and CHANGE_UNSUPPORTED; else "" or a remark */
};

struct settings_changes {
  size_t n;
  struct setting_change *all;
};

bool settings_changes_failed(const struct settings_changes *changes); /* whether one was refused */
void settings_changes_release(struct settings_changes *changes);
#define cleanup_settings_changes __attribute__((cleanup(settings_changes_release)))

/* Stores the values in the file `saved` and sets what differs, each setting independently of the
 * others. False only when that file cannot be written: then nothing was set. */
must_check bool machine_settings_set(const char *root, const char *saved,
                                     struct settings_changes *ret_changes, struct error *error);

/* Restores the values in `saved` and removes the file, unless something was refused: then reset can
 * be run again. Without such a file there are no changes (n == 0). False when it cannot be read or
 * removed. */
must_check bool machine_settings_reset(const char *root, const char *saved,
                                       struct settings_changes *ret_changes, struct error *error);

#endif
