/* A kernel with a key on a device: its buffers, filled once, and the configs that run on them; and
 * whether a config computes what the reference does.
 *
 * Buffers (problem.c). Every buffer argument has one checked copy between canaries, which
 * correctness runs use. What the timing uses depends on the regime's facts
 * (common/regime/regime.h):
 * - one that does not rotate: always the checked copy, so that operands are still in the caches.
 * - one that rotates: copies of all operands, together at least the device's displacement_bytes,
 * used in turn; when that would take more than `rotation_bytes_max` or than the device has left,
 * the checked copy with the caches displaced before every sample, one call a sample. Address
 * translations (TLB) are then as cold as the data. Instructions are cold only if
 * `instruction_flush` is given and the device can flush them, also with one call a sample.
 *
 * Inputs are filled and uploaded once, outputs are marked on the device. A buffer with segments
 * (common/kernel/segments.h) is one operand, and each launch is passed its config's segment.
 *
 * Checks (check.c). A config runs once on marked outputs, and every element is compared. An element
 * is wrong when |value - reference| > atol + rtol * |reference| and the reference rounded to the
 * output's dtype is another value; NaN is right where the reference is NaN and nowhere else, an
 * infinity only where the reference has the same. All elements of an output that is only written
 * must have been written: those that still hold the mark are tried a second time with another mark.
 * All elements of a float output are scanned for NaN; for the first CHECK_NANS_MAX that are not
 * among the samples the reference is computed. Outputs without a reference function (work space)
 * are checked only for writes outside of them. A write outside of the buffers, and a launch after
 * which the device does not pass its sentinel, spoil the problem.
 *
 * Samples may miss a single wrong tile. So all elements of an output are compared with
 * those of the first one that was right, which is the baseline's: where they differ by more than
 * CHECK_FAR tolerances the reference is computed, for one element of each piece (half a million
 * elements) in turn, for CHECK_FAR_MAX elements in all and for one of every piece in any case;
 * an element that is more than CHECK_FAR tolerances off is wrong. (The largest of a hundred million
 * rounding errors is about twice the largest of a thousand: 5.7 and 3.3 standard deviations.) Where
 * it is the baseline that is wrong, problem->baseline_wrong states it: nothing that is paired with
 * it is valid.
 *
 * An output that has the fingerprint (agent/device/fingerprint.h) of one that passed before is
 * right at once: most configs of a kernel agree to the last bit, and those outputs need not come to
 * the host. The problem keeps up to VERIFIED_MAX for each operand, but not of outputs that contain
 * a mark: there, bytes that were written cannot be distinguished from bytes that were not.
 *
 * Without a reference, outputs are compared with the default config's (agent/measure/agreement.h),
 * and with what Triton's interpreter computed, where a build has that (agent/measure/expected.h).
 *
 * Inputs must be unchanged. They are checked with the first config, then after every
 * CHECK_INPUTS_EVERY configs, when a config is found wrong, and by problem_inputs_check. Changed
 * data are restored, and the configs checked since the last time are checked again, one by one,
 * with the inputs after each: only the config that changes inputs is wrong.
 *
 * Memory: a problem owns its buffers and expectations, borrows device, kernel, key, space and
 * expected values.
 * Threads: one; large outputs are compared by a few more (element.h). */
#ifndef WAVETUNE_AGENT_MEASURE_PROBLEM_H
#define WAVETUNE_AGENT_MEASURE_PROBLEM_H

#include "agent/device/device.h"
#include "agent/measure/launch.h"
#include "agent/measure/reference.h"
#include "common/builds/expected.h"
#include "common/kernel/kernel.h"
#include "common/regime/regime.h"
#include "common/verdict/verdict.h"

#define ROTATION_BYTES_MAX ((size_t)1 << 30)
#define VERIFIED_MAX 64       /* of an operand */
#define CHECK_INPUTS_EVERY 16 /* configs */
#define CHECK_NANS_MAX 4096
#define CHECK_FAR 4.0     /* tolerances */
#define CHECK_FAR_MAX 256 /* of an output; each may take the reference a row times a column */

#define AGREEMENT_SETS 3
#define AGREEMENT_LARGE 32 /* the factor of the last set (agent/measure/agreement.h) */

/* What the default config wrote in an output with one set of inputs (agent/measure/agreement.h).
 * Where the device has fingerprints it stays there until a config has written something else. */
struct agreed {
  struct device_buffer *kept; /* NULL: the device has no fingerprints */
  void *bytes;                /* on the host; NULL: not needed yet */
  struct fingerprint left;
  double rms, noise; /* of the finite elements of `bytes`; the largest difference of a second run */
  double sensitivity; /* the largest difference with inputs a unit in the last place away */
  int64_t n_finite;
  bool is_overflown; /* not of the first set: NaN or infinity, not in the same places twice */
};

/* One argument; of a scalar only the first two members are set. Host buffers are the device's. */
struct operand {
  const struct argument *argument;
  size_t index;     /* of the argument */
  int64_t elements; /* of all segments */
  size_t bytes;
  struct segments segments; /* of an argument that has a buffer */
  void **passed;            /* of a buffer: the address of each segment, for the next call */
  void *given;              /* host: its data before a call; NULL for access write */
  void *written;            /* host: its data after a call; NULL unless it is compared */
  void *first; /* host: the first output that was right; NULL: none yet, or all elements are sampled
                */
  bool is_first_settled;     /* the inputs were unchanged after it */
  struct fingerprint filled; /* of `checked` as it was filled; access read, and where the device has
                                fingerprints */
  struct fingerprint left;   /* of its data after the last call */
  bool is_known;             /* `left` is one of `verified`; else `written` holds that data */
  bool is_new; /* the data in `written` are right: `left` may be added to `verified` */
  struct fingerprint verified[VERIFIED_MAX]; /* of outputs that were checked completely */
  size_t n_verified;
  size_t n_settled; /* of them before the inputs were checked last */
  struct device_buffer *checked;
  struct device_buffer *pristine; /* `given` on the device, for access readwrite */
  struct device_buffer *copies;   /* of a rotation; NULL: none */
  struct expectation expected;    /* the reference's samples of it */
  /* Without a reference: its data in each set of inputs, NULL where they are the same in all. */
  struct device_buffer *sets[AGREEMENT_SETS];
  struct agreed agreed[AGREEMENT_SETS];
};

/* Loops over the operands of all arguments, and over those that are compared. */
#define operands_foreach(problem, operand)                                                         \
  array_foreach (operand, (problem)->operands, (problem)->kernel->n_arguments)
#define outputs_foreach(problem, operand)                                                          \
  operands_foreach (problem, operand)                                                              \
    if (operand->written)

struct problem_setup {
  struct device *device;
  const struct kernel *kernel;
  const struct key *key;
  const struct space *space;
  struct reference *reference;     /* NULL: outputs are compared with the default config's */
  const struct expected *expected; /* values of the first set of inputs; NULL: none */
  uint64_t baseline;               /* the config whose scalars and segments the reference gets */
  uint64_t seed;
  enum regime regime;
  size_t rotation_bytes_max;
  /* Paths of the objects of agent/compile/helper_kernels.h; NULL: none. The first: only where the
   * regime flushes. Without the second outputs are copied to the host and compared there. */
  const char *instruction_flush, *fingerprint;
};

struct problem {
  struct device *device;
  const struct kernel *kernel;
  const struct key *key;
  const struct space *space;
  struct operand operands[KERNEL_ARGUMENTS_MAX];
  struct device_rotation rotation;
  struct reference *reference;     /* NULL: outputs are compared with the default config's */
  size_t n_sets;                   /* of inputs, without a reference; else 0 */
  const struct expected *expected; /* Triton's interpreter's values, borrowed; NULL: none */
  size_t set;                      /* that is in place */
  bool has_default;                /* what the default config wrote is known */
  struct device_geometry default_geometry;
  struct loaded_config *of_default; /* NULL: it is not loaded any more */
  bool is_nudged[AGREEMENT_SETS];   /* the sensitivity of outputs is known, of each set */
  bool is_noisy;                    /* that differs from run to run */
  int64_t reference_ns;             /* spent on its samples */
  bool has_checked;                 /* a config */
  /* Not empty: why the baseline's output is wrong, in an element that is not among the samples. */
  struct error baseline_wrong;
  size_t n_ran; /* checks since the inputs were checked last, with any outcome */
  /* Of those, the configs that are still loaded, and right as far as that is known. */
  struct loaded_config *unsettled[CHECK_INPUTS_EVERY];
  size_t n_unsettled;
  /* is_spoiled: nothing more can be measured on the device in this process. is_lost: the config
   * that was running is not the cause. */
  bool is_spoiled, is_lost;
};

/* One config, loaded. */
struct loaded_config {
  uint64_t config;
  struct device_module *module;
  struct launch_plan plan;
  uint64_t scalars[KERNEL_ARGUMENTS_MAX]; /* of the manifest's arguments */
  uint64_t values[LAUNCH_ARGUMENTS_MAX];  /* of those that the object states */
  void *scratch;                          /* NULL: the value of a scratch argument */
  void *arguments[LAUNCH_ARGUMENTS_MAX + LAUNCH_SCRATCH_MAX]; /* as the object takes them */
  size_t n_fills, n_tensormaps;
  struct device_fill fills[LAUNCH_FILLS_MAX];
  struct device_tensormap *tensormaps;
  char *encoded; /* what tensor maps are encoded to */
  /* Of its check. A later check of the inputs may turn OUTCOME_CORRECT into another. */
  enum outcome outcome;
  struct error error;
  enum agreement agreement; /* AGREEMENT_NONE: with a reference, or it did not run to its end */
  const struct expected_values *expected; /* of this config, borrowed; NULL: none */
  bool is_summed;             /* an output agrees by its sums (agent/measure/partial.h) */
  bool is_drawn;              /* an output is of random numbers of its own (agreement.h) */
  enum agreement interpreted; /* AGREES or DISAGREES; NONE: not compared with expected values */
};

/* Takes the reference, also on failure; borrows the rest. */
must_check bool problem_new(const struct problem_setup *setup, struct problem **ret_problem,
                            struct error *error);
void problem_free(struct problem *problem);
DEFINE_CLEANUP(struct problem *, cleanup_problem_free, problem_free)
#define cleanup_problem __attribute__((cleanup(cleanup_problem_free)))

/* Whether the reference's process has ended: later outcomes are invalid. */
static inline bool problem_reference_is_lost(const struct problem *problem) {
  return problem->reference && reference_is_lost(problem->reference);
}

/* Decides how a config is launched and loads its object: OUTCOME_CORRECT. One that the device
 * cannot run is not loaded: OUTCOME_CONSTRAINTS. OUTCOME_RUNTIME: it cannot be loaded. */
must_check enum outcome config_load(struct problem *problem, uint64_t config, const char *object,
                                    const struct launch_spec *spec,
                                    struct loaded_config **ret_loaded, struct error *error);
void config_unload(struct problem *problem, struct loaded_config *loaded);
struct device_launch config_launch(struct loaded_config *loaded);

/* After the device refused a call: sets is_spoiled when it does not pass its sentinel any more, and
 * is_lost when the config was not even launched: the device was reset, maybe by another process. */
void problem_check_device(struct problem *problem, bool was_launched);

/* Prepares the checked copies for a call: outputs are marked as not written, readwrite arguments
 * have their initial data. */
must_check bool problem_reset(struct problem *problem, int mark, struct error *error);

/* Whether the argument's data differ between sets of inputs, and whether a set is of large inputs.
 * A kernel whose inputs a builder scaled down has none: larger ones would be of a scale with which
 * the builder saw it diverge. */
bool argument_varies(const struct argument *argument);
bool set_is_large(const struct kernel *kernel, size_t set);

#endif
