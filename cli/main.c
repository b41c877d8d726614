/* The program `wavetune`, for CI pipelines, operators and container entrypoints. */
#include "cli/cli.h"
#include "inspect/inspect.h"

int main(int argc, char **argv) {
  json_object_seed(0);
  job_print_code = inspect_print_code;
#define X(name) spec_##name,
  const struct command_spec commands[] = {COMMANDS(X) INSPECT_COMMANDS(X)};
#undef X
  return commands_run(
      "wavetune",
      "Tunes GPU kernels once for a whole cluster: submit jobs, publish releases, fetch caches.",
      commands, ARRAY_LENGTH(commands), argc, argv);
}
