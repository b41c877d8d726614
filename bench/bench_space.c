/* How long it takes to enumerate a million valid configs of a space with conditions, compared with
 * a tuner in Python that checks compiled conditions for every raw point of itertools.product. Both
 * run in turn. Prints the median of each and their ratio; then the time for a space of 10^12 raw
 * points whose conditions exclude most of them early.
 *
 *   bench_space [RUNS]
 *
 * Python is `python3` of the PATH; without it there is no ratio. Memory: ends with the process.
 * Threads: one. */
#include <inttypes.h>

#include "common/base/numbers.h"
#include "common/space/space.h"

/* A matrix multiplication's space: 3,600,000 raw points, of which about a million are valid. */
static const char space_text[] =
    "{\"parameters\": {\"BLOCK_M\": [16, 32, 48, 64, 80, 96, 112, 128, 192, 256],"
    " \"BLOCK_N\": [16, 32, 48, 64, 80, 96, 112, 128, 192, 256], \"BLOCK_K\": [16, 32, 64, 128, "
    "256],"
    " \"GROUP_M\": [1, 2, 4, 6, 8, 16], \"SPLIT_K\": [1, 2, 4, 8, 16], \"num_warps\": [1, 2, 4, 8],"
    " \"num_stages\": [0, 1, 2, 3, 4], \"waves_per_eu\": [0, 1, 2], \"kpack\": [1, 2],"
    " \"matrix_instr_nonkdim\": [16, 32]},"
    " \"conditions\": [\"(BLOCK_M + BLOCK_N) * BLOCK_K * 2 <= 65536\", \"BLOCK_M >= 64 or GROUP_M "
    "== 1\","
    " \"BLOCK_K * SPLIT_K <= 1024\", \"16 <= BLOCK_M * BLOCK_N // (num_warps * 64) <= 256 or "
    "SPLIT_K > 2\","
    " \"num_stages <= 2 or BLOCK_K <= 64\", \"waves_per_eu * num_warps <= 16\", \"kpack == 1 or "
    "BLOCK_K >= 32\","
    " \"BLOCK_M % matrix_instr_nonkdim == 0 and BLOCK_N % matrix_instr_nonkdim == 0\"]}";

static const char python_text[] =
    "import itertools, json, sys, time\n"
    "space = json.loads(sys.argv[1])\n"
    "names = list(space['parameters'])\n"
    "begin = time.perf_counter()\n"
    "code = 'lambda ' + ', '.join(names) + ': ' + ' and '.join('(%s)' % c for c in "
    "space['conditions'])\n"
    "holds = eval(compile(code, 'conditions', 'eval'))\n"
    "count = sum = 0\n"
    "for ordinal, point in enumerate(itertools.product(*space['parameters'].values())):\n"
    "    if holds(*point):\n"
    "        count += 1\n"
    "        sum += ordinal\n"
    "print(time.perf_counter() - begin, count, sum)\n";

struct result {
  double seconds;
  uint64_t points, sum; /* of the ordinals, which must be the same on both sides */
};

static struct space *space_of(const char *text) {
  cleanup_json json_t *json = NULL;
  struct space *space = NULL;
  struct error error;
  if (!json_parse(text, strlen(text), &json, &error) || !space_parse(json, &space, &error))
    die("%s", error.message);
  return space;
}

/* From binding the conditions to the last point. */
static struct result enumerate(const struct space *space) {
  struct result result = {0};
  struct error error;
  uint64_t ordinal;
  enum space_step step;
  int64_t begin = clock_monotonic_ns();
  cleanup_space_iterator struct space_iterator *iterator = NULL;
  if (!space_iterator_new(space, NULL, SPACE_STEP_LIMIT_DEFAULT, &iterator, &error))
    die("%s", error.message);

  while ((step = space_iterator_next(iterator, &ordinal, &error)) == SPACE_POINT) {
    result.points++;
    result.sum += ordinal;
  }

  if (step == SPACE_ERROR)
    die("%s", error.message);
  result.seconds = (double)(clock_monotonic_ns() - begin) / 1e9;
  return result;
}

static bool enumerate_in_python(struct result *ret) {
  if (setenv("PROGRAM", python_text, 1) != 0 || setenv("SPACE", space_text, 1) != 0)
    die("setenv");

  FILE *output = popen("python3 -c \"$PROGRAM\" \"$SPACE\"",
                       "r"); /* NOLINT(cert-env33-c): a constant command */
  if (!output)
    return false;

  char line[128], *rest = line;
  bool read = fgets(line, sizeof line, output) != NULL;
  if (read) {
    ret->seconds = strtod(rest, &rest);
    ret->points = strtoull(rest, &rest, 10);
    ret->sum = strtoull(rest, &rest, 10);
  }
  return pclose(output) == 0 && read && *rest == '\n';
}

static void print_early_cut(void) {
  char *text = NULL;
  size_t size;
  FILE *out = open_memstream(&text, &size);
  ALWAYS(out != NULL);
  fputs("{\"parameters\": {", out);
  for (int i = 0; i < 12; i++)
    fprintf(out, "%s\"p%d\": [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]", i ? ", " : "", i);
  fputs("}, \"conditions\": [\"p0 >= 5\"", out);
  for (int i = 1; i < 12; i++)
    fprintf(out, ", \"p%d in (p%d, p%d + 1)\"", i, i - 1, i - 1);
  fputs("]}", out);
  fclose(out);
  cleanup_free char *owned = text;
  cleanup_space struct space *space = space_of(owned);
  struct result result = enumerate(space);
  printf("early cuts: %" PRIu64 " raw points, %zu conditions, %" PRIu64 " valid: %.3f ms\n",
         space->raw_count, space->n_conditions, result.points, 1e3 * result.seconds);
}

int main(int argc, char **argv) {
  size_t runs = argc > 1 ? strtoul(argv[1], NULL, 10) : 5;
  if (argc > 2 || runs < 1 || runs > 100) {
    fprintf(stderr, "usage: bench_space [RUNS], 1 to 100\n");
    return 2;
  }

  cleanup_space struct space *space = space_of(space_text);
  double ours[100], theirs[100];
  struct result result = {0}, python;
  size_t compared = 0;
  for (size_t i = 0; i < runs; i++) {
    result = enumerate(space);
    ours[i] = result.seconds;
    if (compared < i || !enumerate_in_python(&python))
      continue;
    if (python.points != result.points || python.sum != result.sum)
      die("CPython finds %" PRIu64 " points, wavetune %" PRIu64, python.points, result.points);
    theirs[compared++] = python.seconds;
  }

  double seconds = median_of(ours, runs);
  qsort(ours, runs, sizeof *ours, compare_doubles);
  printf("space: %" PRIu64 " raw points, %zu parameters, %zu conditions, %" PRIu64 " valid\n",
         space->raw_count, space->n_parameters, space->n_conditions, result.points);
  printf("wavetune: %.1f ms, %.1f ns for each valid config (median of %zu, %.1f to %.1f ms)\n",
         1e3 * seconds, 1e9 * seconds / (double)result.points, runs, 1e3 * ours[0],
         1e3 * ours[runs - 1]);
  print_early_cut();
  if (compared < runs) {
    printf("ratio: none, python3 does not run\n");
    return 0;
  }

  double python_seconds = median_of(theirs, runs);
  qsort(theirs, runs, sizeof *theirs, compare_doubles);
  printf("CPython, itertools.product: %.1f ms (median of %zu, %.1f to %.1f ms), the same points\n",
         1e3 * python_seconds, runs, 1e3 * theirs[0], 1e3 * theirs[runs - 1]);
  printf("ratio: %.1f times as fast as CPython's itertools.product with compiled conditions\n",
         python_seconds / seconds);
  return 0;
}
