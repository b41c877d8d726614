/* What the files of cli/ share beyond common/program/cli.h: functions of one group of commands that
 * others call, and the table of all commands except those of inspect/.
 *
 * Memory: the caller owns what a call returns. Threads: one. */
#ifndef WAVETUNE_CLI_CLI_H
#define WAVETUNE_CLI_CLI_H

#include "common/program/cli.h"

/* Pushes a kernel folder: uploads what the server lacks and registers the manifest (kernel.c). */
struct kernel_folder;
void kernel_push(struct http_client *client, const struct kernel_folder *folder);

/* When --timeout ends, by clock_monotonic_ms; 0: never. */
int64_t jobs_until_ms(const struct options *options);

/* Follows the jobs whose ids are the member `member` of the answers to their ends, with a progress
 * bar on a terminal, and adds their summaries to `jobs`, in this order (jobs_wait.c). While the
 * server does not answer it tries again for --patience. Ends the program with EXIT_TIMEOUT when
 * some had not ended at `until_ms`. For commands with OPTION_PATIENCE and OPTION_TIMEOUT. */
void jobs_gather(struct http_client *client, const struct options *options, const json_t *answers,
                 const char *member, int64_t until_ms, json_t *jobs);

/* Follows the jobs as jobs_gather does, prints each in this order, and names those without a
 * winner. Returns an exit code. */
must_check int jobs_await(struct http_client *client, const struct options *options,
                          const json_t *answers, const char *member);

/* Reads the value of an option, an object or NAME=VALUE,… (why.c); NULL of NULL. */
must_check json_t *values_of_text(const char *option, const char *text);

/* The ids of the jobs that a file names: the output of `submit --json` or of `jobs --json`, a JSON
 * array of ids, or lines with an id as the first word or after the word "job", as `submit` prints
 * them. */
must_check json_t *jobs_file_read(const char *path);

/* Prints a finished job: the table of finalists, the winner, the equivalence set (show.c). */
void job_print(struct http_client *client, const json_t *job);

/* Prints the winner's assembly or its TTGIR. Set by main.c, the only file here that includes
 * inspect/. */
typedef void job_code_printer(struct http_client *client, const json_t *job, bool wants_asm,
                              bool as_json);
extern job_code_printer *job_print_code;

#define COMMANDS(COMMAND)                                                                          \
  COMMAND(kernel_push)                                                                             \
  COMMAND(kernel_sign)                                                                             \
  COMMAND(kernel_list)                                                                             \
  COMMAND(kernel_show)                                                                             \
  COMMAND(kernel_builds)                                                                           \
  COMMAND(kernel_remove_build)                                                                     \
  COMMAND(kernel_hash)                                                                             \
  COMMAND(space_expand)                                                                            \
  COMMAND(space_count)                                                                             \
  COMMAND(shapes)                                                                                  \
  COMMAND(submit)                                                                                  \
  COMMAND(jobs)                                                                                    \
  COMMAND(cancel)                                                                                  \
  COMMAND(report)                                                                                  \
  COMMAND(retry)                                                                                   \
  COMMAND(show)                                                                                    \
  COMMAND(events)                                                                                  \
  COMMAND(measurements)                                                                            \
  COMMAND(audit)                                                                                   \
  COMMAND(top)                                                                                     \
  COMMAND(campaigns)                                                                               \
  COMMAND(cost)                                                                                    \
  COMMAND(agents)                                                                                  \
  COMMAND(agents_drain)                                                                            \
  COMMAND(agents_resume)                                                                           \
  COMMAND(agents_remove)                                                                           \
  COMMAND(environments)                                                                            \
  COMMAND(publish)                                                                                 \
  COMMAND(why)                                                                                     \
  COMMAND(override_add)                                                                            \
  COMMAND(override_list)                                                                           \
  COMMAND(override_remove)                                                                         \
  COMMAND(import)                                                                                  \
  COMMAND(imports)                                                                                 \
  COMMAND(releases)                                                                                \
  COMMAND(releases_fetches)                                                                        \
  COMMAND(channels)                                                                                \
  COMMAND(promote)                                                                                 \
  COMMAND(rollback)                                                                                \
  COMMAND(sign)                                                                                    \
  COMMAND(fetch)                                                                                   \
  COMMAND(export)                                                                                  \
  COMMAND(demand)                                                                                  \
  COMMAND(captures)                                                                                \
  COMMAND(captures_show)                                                                           \
  COMMAND(captures_tune)                                                                           \
  COMMAND(captures_space)                                                                          \
  COMMAND(captures_remove)                                                                         \
  COMMAND(policy)                                                                                  \
  COMMAND(policy_set)                                                                              \
  COMMAND(policy_list)                                                                             \
  COMMAND(policy_remove)                                                                           \
  COMMAND(policy_suggestions)                                                                      \
  COMMAND(policy_run)                                                                              \
  COMMAND(poison_list)                                                                             \
  COMMAND(poison_release)                                                                          \
  COMMAND(proposals)                                                                               \
  COMMAND(proposals_show)                                                                          \
  COMMAND(proposals_promote)                                                                       \
  COMMAND(proposals_reject)                                                                        \
  COMMAND(campaign_revalidate)                                                                     \
  COMMAND(compatible_list)                                                                         \
  COMMAND(compatible_add)                                                                          \
  COMMAND(compatible_remove)                                                                       \
  COMMAND(shares)                                                                                  \
  COMMAND(shares_set)                                                                              \
  COMMAND(gc)                                                                                      \
  COMMAND(diff)                                                                                    \
  COMMAND(key_new)                                                                                 \
  COMMAND(key_show)                                                                                \
  COMMAND(token_make)                                                                              \
  COMMAND(token_list)                                                                              \
  COMMAND(token_revoke)

/* Each command's file defines its table row, `const struct command_spec spec_NAME`. */
#define X(name) extern const struct command_spec spec_##name;
COMMANDS(X)
#undef X

#endif
