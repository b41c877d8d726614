/* The `json` format: one file that any program can read, cache.json. A pure function, any thread.
 *
 * The text is written in its canonical order (the winners of a release are sorted by name), not built as a tree and
 * sorted afterwards: a container start waits for it. */
#include "common/render.h"

/* The entries of the kernel whose first winner is `from`; returns the index behind its last. */
static size_t kernel_write(FILE *out, const struct release *release, size_t from) {
  const struct release_winner *first = &release->winners[from];
  char digest[DIGEST_TEXT_SIZE];
  size_t i = from;
  json_canonical_write_string(out, first->name);
  fputs_unlocked(":{\"entries\":[", out);
  for (; i < release->n_winners && digest_equal(&release->winners[i].kernel, &first->kernel) &&
         strcmp(release->winners[i].name, first->name) == 0;
       i++) {
    fputs_unlocked(i == from ? "{\"config\":" : ",{\"config\":", out);
    json_canonical_write(out, release->winners[i].config);
    fputs_unlocked(",\"key\":", out);
    json_canonical_write(out, release->winners[i].key);
    putc_unlocked('}', out);
  }
  fprintf(out, "],\"kernel\":\"%s\"}", digest_format(&first->kernel, digest));
  return i;
}

static bool names_are_distinct(const struct release *release, struct error *error) {
  for (size_t i = 1; i < release->n_winners; i++) {
    const struct release_winner *before = &release->winners[i - 1], *winner = &release->winners[i];
    if (strcmp(before->name, winner->name) == 0 && !digest_equal(&before->kernel, &winner->kernel))
      return error_at(error, "/winners",
                      "two kernels are called %.100s, which the json format cannot tell apart; make a release that "
                      "names one of them in \"kernels\"",
                      winner->name);
  }
  return true;
}

bool render_json(const struct release *release, struct rendered *ret, struct error *error) {
  if (!names_are_distinct(release, error))
    return false;
  char *bytes = NULL, digest[DIGEST_TEXT_SIZE];
  size_t size = 0;
  cleanup_json json_t *environment = environment_to_json(&release->environment);
  FILE *out = open_memstream(&bytes, &size);
  ALWAYS(out != NULL);
  fputs_unlocked("{\"environment\":", out);
  json_canonical_write(out, environment);
  fputs_unlocked(",\"kernels\":{", out);
  for (size_t i = 0; i < release->n_winners;) {
    if (i)
      putc_unlocked(',', out);
    i = kernel_write(out, release, i);
  }
  fprintf(out, "},\"release\":\"%s\",\"tag\":", digest_format(&release->digest, digest));
  json_canonical_write_string(out, release->tag);
  putc_unlocked('}', out);
  ALWAYS(fclose(out) == 0);
  ret->n = 1;
  ret->files = xcalloc(1, sizeof *ret->files);
  ret->files[0] = (struct rendered_file){xstrdup("cache.json"), bytes, size};
  return true;
}
