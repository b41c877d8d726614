/* The commands of wavetune-agent, one file each; each returns its exit code. */
#ifndef WAVETUNE_AGENT_COMMANDS_H
#define WAVETUNE_AGENT_COMMANDS_H

#include "common/program/options.h"

extern const struct command_spec run_command, tune_command, probe_command, env_command,
    env_check_command, env_set_command, env_reset_command;

/* Prints the one sentence that a failed command owes; returns `code`. */
int command_failed(const char *command, enum exit_code code, const struct error *error);

#endif
