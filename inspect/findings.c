/* Findings of reviews: collected, counted, written as JSON and as lines. */
#include "inspect/findings.h"

#include <stdarg.h>

const char *review_severity_name(enum review_severity severity) {
  static const char *const names[] = {"hint", "warning", "refused"};
  return names[severity];
}

void review_find(struct review_findings *findings, enum review_severity severity,
                 const char *source, const char *format, ...) {
  char *sentence = NULL;
  va_list arguments;
  va_start(arguments, format);
  ALWAYS(vasprintf(&sentence, format, arguments) >= 0);
  va_end(arguments);

  /* Sentences quote untrusted texts, which must not drive a terminal. C1 controls are two bytes in
   * UTF-8. */
  for (unsigned char *c = (unsigned char *)sentence; *c; c++)
    if (*c < ' ' || *c == 0x7f)
      *c = '?';
    else if (*c == 0xc2 && c[1] >= 0x80 && c[1] < 0xa0)
      c[0] = c[1] = '?';

  *APPEND(findings->items, findings->n) = (struct review_finding){severity, sentence, source};
}

void review_findings_release(struct review_findings *findings) {
  for (size_t i = 0; i < findings->n; i++)
    free(findings->items[i].sentence);
  free(findings->items);
  *findings = (struct review_findings){0};
}

size_t review_count(const struct review_findings *findings, enum review_severity severity) {
  size_t n = 0;
  for (size_t i = 0; i < findings->n; i++)
    n += findings->items[i].severity == severity;
  return n;
}

json_t *review_findings_to_json(const struct review_findings *findings) {
  json_t *array = json_array();
  for (size_t i = 0; i < findings->n; i++) {
    const struct review_finding *finding = &findings->items[i];
    json_t *item = json_pack("{s:s, s:s, s:s}", "severity", review_severity_name(finding->severity),
                             "sentence", finding->sentence, "source", finding->source);
    json_push(array, item);
  }
  return array;
}

void review_findings_print(const struct review_findings *findings, FILE *out) {
  for (int severity = REVIEW_REFUSED; severity >= REVIEW_HINT; severity--) {
    for (size_t i = 0; i < findings->n; i++)
      if ((int)findings->items[i].severity == severity)
        fprintf(out, "  %s: %s\n      [%s]\n", review_severity_name((enum review_severity)severity),
                findings->items[i].sentence, findings->items[i].source);
  }
}
