/* Layouts of Triton's GPU dialect: which thread holds which element of a tensor, as far as their
 * text shows, and whether a conversion between two of them must pass through LDS.
 *
 * Blocked and linear layouts, and slices of them, are reduced to what each bit of the lane's and of
 * the warp's number adds to an element's index (Triton's linear layouts). A conversion in which
 * both agree in the warps and in the lanes moves data between registers of a thread only; one in
 * which only lanes differ stays inside a warp, which newer Tritons do by shuffles and older ones
 * through LDS ("may"); one in which warps differ passes through LDS. Between layouts of different
 * kinds (blocked and MFMA) it does too. One to or from a layout of LDS is half a trip. Where the
 * text does not decide (the accumulator of one dot as the operand of the next one, slices of MFMA
 * layouts), the result is "may".
 *
 * Memory: texts are borrowed. Threads: pure functions. */
#ifndef WAVETUNE_INSPECT_TTGIR_LAYOUT_H
#define WAVETUNE_INSPECT_TTGIR_LAYOUT_H

#include "common/base/base.h"

#define TTGIR_DIMENSIONS_MAX 5
#define TTGIR_LAYOUTS_MAX 256

#define LOWER_CASE "abcdefghijklmnopqrstuvwxyz"
#define DIGITS "0123456789"

/* A part of a text; {NULL, 0}: none. */
struct span {
  const char *text;
  size_t length;
};
bool span_equal(struct span a, struct span b);
bool span_is(struct span span, const char *text);
/* How many characters at the start are among `characters`. */
size_t span_run(struct span span, const char *characters);
static inline struct span span_skip(struct span span, size_t n) {
  return (struct span){span.text + n, span.length - n};
}
/* What follows the first `text` in it; none when it is not there. */
struct span span_after(struct span span, const char *text);
/* Takes a number of at most 15 digits from the start. */
bool span_take_number(struct span *span, int64_t *ret);

/* "#blocked = #ttg.blocked<{…}>": the aliases of a module. */
struct ttgir_layouts {
  size_t n;
  struct span names[TTGIR_LAYOUTS_MAX]; /* "#blocked" */
  struct span texts[TTGIR_LAYOUTS_MAX]; /* "#ttg.blocked<{…}>" */
};

/* "blocked", "amd_mfma", "swizzled_shared", … of a layout's text; none when it is not a layout. The
 * kind of an alias that the text does not define, as in a part of a module, is known from its name:
 * Triton calls them #blocked, #linear, #shared and #mma (#mfma), with numbers. */
struct span ttgir_layout_kind(struct span text);
/* The text after "name = " in a layout, up to its comma or bracket. */
struct span ttgir_layout_member(struct span layout, const char *name);
/* Up to `max` integers of "[1, 8]"; false when it is not such a list. */
bool ttgir_integers(struct span list, int64_t *values, size_t max, size_t *ret_n);

/* "tensor<64x32xf16, #blocked>" */
struct ttgir_tensor {
  size_t n_dimensions;
  int64_t shape[TTGIR_DIMENSIONS_MAX];
  int64_t element_bytes; /* of what a pointer points at, for a tensor of pointers; 0: not known */
  struct span encoding;  /* as it is written: "#blocked" */
  struct span layout;    /* the encoding, or what it is an alias of */
  struct span kind;
};
/* Takes the first tensor type in *text and what precedes it. */
bool ttgir_tensor_take(const struct ttgir_layouts *layouts, struct span *text,
                       struct ttgir_tensor *ret);

/* Bytes next to each other in memory that a thread holds, for a blocked layout; 0: not known. */
int64_t ttgir_contiguous_bytes(const struct ttgir_tensor *tensor);

enum ttgir_conversion {
  TTGIR_REGISTERS,
  TTGIR_MAY,
  TTGIR_LDS,
  TTGIR_TO_LDS, /* to a layout of LDS: the first half of a trip (Tritons before 3.0; later ones have
                   local_alloc) */
  TTGIR_FROM_LDS, /* from such a layout: the other half (later: local_load) */
  TTGIR_CONVERSIONS
};
/* "registers", "may", "lds", "to_lds", "from_lds" */
const char *ttgir_conversion_name(enum ttgir_conversion conversion);
/* *ret_why is a static text, the reason. */
enum ttgir_conversion ttgir_conversion_decide(const struct ttgir_layouts *layouts,
                                              const struct ttgir_tensor *from,
                                              const struct ttgir_tensor *to, int64_t num_warps,
                                              const char **ret_why);

#endif
