/* A kernel with a key on a device: its buffers, filled once, and the configs that run on them.
 *
 * Every buffer argument has one checked copy between canaries, which correctness runs use. What the
 * timing uses depends on the regime, decided here once:
 * - warm: always the checked copy; operands stay in whatever cache holds them.
 * - cold: copies of all operands, together at least the device's displacement_bytes, used in turn;
 *   when that would take more than `rotation_bytes_max` or than the device has left, the checked
 *   copy with the caches displaced before every sample, one call a sample. Translations (TLB) are
 *   as cold as the data; the instructions where `instruction_flush` is given and the device can
 *   flush them, also one call a sample.
 *
 * What does not depend on the config is done once: inputs lie on the device, outputs are marked
 * there, and an output that has the fingerprint of one that was verified before is right (check.h).
 *
 * Memory: a problem owns its buffers and expectations, borrows device, kernel, key and space.
 * Threads: one. */
#ifndef WAVETUNE_AGENT_MEASURE_PROBLEM_H
#define WAVETUNE_AGENT_MEASURE_PROBLEM_H

#include "agent/device/device.h"
#include "agent/measure/launch.h"
#include "agent/measure/reference.h"
#include "common/kernel/kernel.h"

#define ROTATION_BYTES_MAX ((size_t)1 << 30)
#define VERIFIED_MAX 64       /* of an operand */
#define CHECK_INPUTS_EVERY 16 /* configs */

/* One buffer argument; all zero for a scalar. What lies on the host is a host buffer of the device,
 * but for `room`. */
struct operand {
  int64_t elements;
  size_t bytes;
  void *given;   /* on the host: what a call finds in it; NULL for access write */
  void *written; /* on the host: what a call left in it; NULL unless the reference computes it */
  void *first;   /* on the host: the first output that was right; NULL: none yet, or samples are all
                    of it */
  bool is_first_settled; /* the inputs were as given after it */
  void *room; /* on the host: where the reference may find an output, or write; access write only */
  struct fingerprint filled; /* of `checked` as it was filled; access read, and where the device has
                                fingerprints */
  struct fingerprint left;   /* of what the last call left in it */
  bool is_known;             /* `left` is one of `verified`; else `written` holds what it is of */
  bool is_new;               /* what `written` holds is right and may be kept in `verified` */
  struct fingerprint
      verified[VERIFIED_MAX];   /* of outputs that were looked at completely, and right */
  size_t n_verified, n_settled; /* the latter: of them before the inputs were looked at last */
  struct device_buffer *checked;
  struct device_buffer *pristine; /* `given` on the device, for access readwrite */
  struct device_buffer *copies;   /* of a rotation; NULL when there is none */
  struct expectation expected;    /* what the reference says of it */
};

struct problem_options {
  uint64_t baseline; /* the config whose scalars the reference gets */
  uint64_t seed;
  bool is_cold;
  size_t rotation_bytes_max;
  const char *instruction_flush; /* path of the object of agent/compile/helper_kernels.h; NULL:
                                    none. Cold only */
  const char *fingerprint; /* likewise; NULL: outputs are copied to the host and compared there */
};

struct problem {
  struct device *device;
  const struct kernel *kernel;
  const struct key *key;
  const struct space *space;
  struct operand operands[KERNEL_ARGUMENTS_MAX];
  void *pointers[KERNEL_ARGUMENTS_MAX]; /* storage of the buffer arguments of the next call */
  struct device_rotation rotation;
  struct reference *reference; /* NULL: outputs are not compared */
  void *host_pointers[KERNEL_ARGUMENTS_MAX],
      *host_arguments[KERNEL_ARGUMENTS_MAX]; /* what the reference gets */
  uint64_t host_scalars[KERNEL_ARGUMENTS_MAX];
  int64_t reference_ns; /* that its samples took */
  bool has_checked;     /* a config */
  /* Not empty: what the baseline wrote is wrong in an element that is not among the samples. */
  struct error baseline_wrong;
  size_t n_ran; /* checks since the inputs were looked at, whatever became of the configs */
  /* Of those, the configs that are still loaded, and right as far as that is known. */
  struct candidate *unsettled[CHECK_INPUTS_EVERY];
  size_t n_unsettled;
  /* The device, as this process sees it, is in a state that nothing can be measured in; is_lost:
   * and not because of what the config that met it did. */
  bool is_spoiled, is_lost;
};

/* One config, loaded. */
struct candidate {
  uint64_t config;
  struct device_module *module;
  struct launch_plan plan;
  uint64_t scalars[KERNEL_ARGUMENTS_MAX]; /* of the manifest's arguments */
  void *scratch;                          /* NULL: what a scratch argument is given */
  void *arguments[KERNEL_ARGUMENTS_MAX + LAUNCH_SCRATCH_MAX]; /* as the object takes them */
  /* What its check found, and why. A later look at the inputs may turn OUTCOME_CORRECT into
   * another: see problem_inputs_check. */
  enum outcome outcome;
  struct error error;
};

/* `reference` is taken over in any case. */
must_check bool problem_new(struct device *device, const struct kernel *kernel,
                            const struct key *key, const struct space *space,
                            struct reference *reference, const struct problem_options *options,
                            struct problem **ret_problem, struct error *error);
void problem_free(struct problem *problem);
DEFINE_CLEANUP(struct problem *, cleanup_problem_free, problem_free)
#define cleanup_problem __attribute__((cleanup(cleanup_problem_free)))

/* Whether the process that has the reference ended: its answers are none, and outcomes since mean
 * nothing. */
static inline bool problem_reference_is_lost(const struct problem *problem) {
  return problem->reference && reference_is_lost(problem->reference);
}

/* Decides how a config is launched and loads its object: OUTCOME_CORRECT. One that the device
 * cannot run is not loaded: OUTCOME_CONSTRAINTS. OUTCOME_RUNTIME: it cannot be loaded. */
must_check enum outcome candidate_load(struct problem *problem, uint64_t config, const char *object,
                                       const struct launch_spec *spec,
                                       struct candidate **ret_candidate, struct error *error);
void candidate_free(struct problem *problem, struct candidate *candidate);
struct device_launch candidate_launch(struct candidate *candidate);

/* After something that the device refused a config: sets is_spoiled when the device does not pass
 * its sentinel any more, and is_lost when the config was not even launched: the device was reset,
 * maybe for what another process did. */
void problem_ask_device(struct problem *problem, bool was_launched);

/* Puts the checked copies in place: outputs marked as not written, what is changed as it was
 * filled. */
must_check bool problem_reset(struct problem *problem, int mark, struct error *error);

#endif
