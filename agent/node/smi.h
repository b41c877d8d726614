/* The clock limit of AMD GPUs ("performance determinism"), set and lifted by the tool of this
 * machine: amd-smi where it is there, else rocm-smi, which ROCm had before it. Both need root.
 *
 * amd-smi is asked for one GPU at a time, by its PCI address. rocm-smi numbers GPUs in an order of
 * its own, so it is asked for all of them at once. Not every AMD GPU has such a limit: it depends
 * on the firmware ("AMD SMI documentation: performance determinism"), and only asking tells.
 * Memory: see each. Threads: any. */
#ifndef WAVETUNE_AGENT_NODE_SMI_H
#define WAVETUNE_AGENT_NODE_SMI_H

#include "common/base/error.h"

struct smi {
  char *path;       /* NULL: neither is here */
  bool is_for_each; /* amd-smi: one call for each GPU; false: one call is for all */
};

/* In $PATH, then in /opt/rocm/bin. Never fails: `path` tells. */
struct smi smi_find(void);
void smi_release(struct smi *smi);
#define cleanup_smi __attribute__((cleanup(smi_release)))

enum smi_answer {
  SMI_DONE,        /* it ended with 0; what came of it is for the caller to look at */
  SMI_UNSUPPORTED, /* the GPU, its firmware or its driver has no such limit */
  SMI_FAILED,      /* not found, not permitted, no such GPU: `error` has its words */
};

/* Limits the core clock of the GPU at `pci_address` ("0000:c1:00.0"; of all GPUs where
 * !is_for_each) to `clock_mhz`. `error` is set unless SMI_DONE. */
must_check enum smi_answer smi_limit_set(const struct smi *smi, const char *pci_address,
                                         int clock_mhz, struct error *error);
must_check enum smi_answer smi_limit_lift(const struct smi *smi, const char *pci_address,
                                          struct error *error);

#endif
