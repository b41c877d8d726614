/* Findings of reviews: sentences for a person, each with its severity and the source of its rule.
 *
 * Memory: findings own their sentences; sources are static texts. Threads: plain value. */
#ifndef WAVETUNE_INSPECT_FINDINGS_H
#define WAVETUNE_INSPECT_FINDINGS_H

#include "common/base/json.h"

/* Documents and programs that rules come from. */
#define SOURCE_AMD_GUIDE                                                                           \
  "AMD, MI300X workload optimization guide: Triton kernel performance optimization"
#define SOURCE_AMD_ISA "AMD, MI300X workload optimization guide: assembly analysis"
#define SOURCE_AMD_IR "AMD, MI300X workload optimization guide: IR analysis"

enum review_severity {
  REVIEW_HINT,    /* depends on the kernel: worth a look */
  REVIEW_WARNING, /* costs time in most kernels */
  REVIEW_REFUSED, /* cannot run */
};
const char *review_severity_name(enum review_severity severity); /* "hint", "warning", "refused" */

struct review_finding {
  enum review_severity severity;
  char *sentence;
  const char *source;
};

struct review_findings {
  size_t n;
  struct review_finding *items;
}; /* starts as {0} */

/* The text is UTF-8; control characters in it become '?'. */
void review_find(struct review_findings *findings, enum review_severity severity,
                 const char *source, const char *format, ...) printf_like(4, 5);
void review_findings_release(struct review_findings *findings);

size_t review_count(const struct review_findings *findings, enum review_severity severity);

/* [{"severity", "sentence", "source"}] */
must_check json_t *review_findings_to_json(const struct review_findings *findings);
/* Prints each as "  warning: sentence" with its source on the next line; the most severe first. */
void review_findings_print(const struct review_findings *findings, FILE *out);

#endif
