/* Writes what the agent fills the buffers of a captured kernel with, for
 * tests/python/test_inputs.py.
 *
 *   inputs KERNEL.json CASE.json SEED BLOB > BYTES   the buffers, one after another; BLOB is a file
 *
 * Memory: freed at the end of the process. Threads: one. */
#include "agent/measure/reference.h"
#include "common/base/file.h"
#include "common/kernel/kernel_case.h"

int main(int argc, char **argv) {
  struct error error = {0};
  json_t *manifest, *of_key;
  struct kernel *captured, *kernel;
  char *blob;
  size_t size;
  if (argc != 5 || !json_parse_file(argv[1], 1 << 20, &manifest, &error) ||
      !kernel_parse(manifest, &captured, &error) ||
      !json_parse_file(argv[2], 1 << 20, &of_key, &error) ||
      !kernel_of_case(captured, of_key, &kernel, &error) ||
      !file_read(argv[4], 1 << 20, &blob, &size, &error))
    die("inputs: %s", error.message);

  for (size_t i = 0; i < kernel->n_arguments; i++) {
    struct argument *argument = &kernel->arguments[i];
    struct scope scope = {0};
    int64_t elements;
    if (!argument_has_buffer(argument))
      continue;
    argument->fill.bytes = blob;
    if (!argument_elements(argument, &scope, &elements, &error))
      die("inputs: %s", error.message);
    size_t n = (size_t)elements * dtype_size(argument->dtype);
    void *bytes = xmalloc(n);
    inputs_fill(argument, i, elements, strtoull(argv[3], NULL, 10), bytes);
    if (fwrite(bytes, 1, n, stdout) != n)
      die("inputs: cannot write");
    free(bytes);
  }
  return 0;
}
