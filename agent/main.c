/* wavetune-agent: measures kernels on the devices of this machine, for a server (run) or alone
 * (tune). */
#include "agent/commands.h"
#include "agent/compile/compile.h"
#include "agent/compile/confine.h"
#include "agent/worker/worker.h"

int main(int argc, char **argv) {
  /* Not in the list of commands: only the supervisor starts workers. */
  if (argc == 2 && string_equal(argv[1], "worker"))
    return worker_main();
  if (argc >= 2 && string_equal(argv[1], "rtc")) /* only the compile pool starts it */
    rtc_main(argc, argv);
  if (argc >= 2 && string_equal(argv[1], "confine")) /* only builders of captured kernels do */
    return confine_main(argc, argv);
  json_object_seed(0); /* before there are threads */
  const struct command_spec commands[] = {run_command,      tune_command,      probe_command,
                                          env_command,      env_check_command, env_set_command,
                                          env_reset_command};
  return commands_run("wavetune-agent",
                      "Measures kernels on this machine's devices, for a server or alone.",
                      commands, ARRAY_LENGTH(commands), argc, argv);
}
