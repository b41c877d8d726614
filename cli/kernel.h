/* What `kernel push` and `kernel sign` share: folders of kernels and of builds, read whole, and
 * signatures over them.
 *
 * Memory: a push owns what it read. Threads: one. */
#ifndef WAVETUNE_CLI_KERNEL_H
#define WAVETUNE_CLI_KERNEL_H

#include "cli/channel.h"
#include "common/builds/build.h"
#include "common/cache/code_signature.h"
#include "common/kernel/kernel_folder.h"

/* clang-format off */
#define OPTION_BUILD(says) \
  {.name = "build", .type = OPTION_LIST, .argument = "FOLDER", .flag_only = true, \
   .help = says}
#define OPTION_CODE_EXPIRES(more) \
  {.name = "expires", .type = OPTION_TEXT, .argument = "TIME", .flag_only = true, \
   .help = "when agents stop to believe the signature: 7d, 36h or 2026-12-24T00:00:00Z; " \
            "default: " more}
/* clang-format on */

/* A folder as `python3 -m wavetune pack` writes it (docs/builds.md). */
struct build_folder {
  const char *path;
  struct build *build;
};

struct push {
  size_t n_kernels, n_builds;
  struct kernel_folder **kernels;
  struct build_folder *builds;
};
/* The kernels that a command's arguments name and the builds of its --build, each of one of these
 * kernels. */
must_check bool push_load(const struct options *options, struct push *push, struct error *error);
void push_release(struct push *push);
#define cleanup_push __attribute__((cleanup(push_release)))

/* Whether the folder has every object that its build names, each with the digest that it should
 * have. */
must_check bool build_folder_is_whole(const struct build_folder *folder, struct error *error);

/* Signs with each key, says on stderr what is signed and by whom, and posts it. *ret_signatures are
 * all that the server has then, a new reference. Returns an exit code. */
must_check int code_sign_and_post(struct http_client *client, const struct signed_code *code,
                                  const struct signers *signers, int64_t expires_s,
                                  json_t **ret_signatures);

/* "sha256:…, sha256:…": the keys of an answer's signatures, "" for none; owned by the caller. */
must_check char *signature_keys_format(const json_t *signatures);

#endif
