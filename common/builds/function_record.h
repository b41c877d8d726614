/* The facts of one @triton.jit function that paths of Triton's and triton-dejavu's caches contain,
 * collected where Triton runs: by `python3 -m wavetune pack` (the member "record" of a build) or
 * `… identity` (a member of "functions").
 *
 * JSON: {"kernel": "sha256:…", "name": "matmul/triton",
 *   "triton": {"version": "3.6.0", "key": "<triton_key()>", "backend_hash": "<backend.hash()>"},
 *   "function": {"module", "name", "qualname", "signature": "JITFunction(m:f)", "cache_key",
 *                "source_sha256", "closure": "sha256:…"},
 *   "key_names": ["n"],                      the decorator's `key`, in its order
 *   "tuning_key": ["n"],                     which members of the wavetune key give the values of
 *                                            key_names
 *   "argument_dtypes": ["torch.float16", …], dtypes that the autotuners append, in the order of
 *                                            arguments; absent: those of the manifest's buffers
 *   "configs": ["BLOCK: 256, num_warps: 4, …", …],   str(Config) of each, in the decorator's order
 *   "autotune": {…},
 *   "dejavu": {"layout": "dejavu_0.7", "autotune_config", "code_version", "tune_features",
 *              "kernel_configs", "search_parameters", "quantiles", "warmup", "rep",
 *              "use_cuda_graph", "ignore_dtypes"}}   or absent
 * kernel and name: at least one, of the wavetune kernel. closure: of all texts and constants that
 * the function's behaviour depends on, whatever their place (python/wavetune/_runtime/closure.py).
 * Unknown members are ignored.
 *
 * Texts that become parts of paths are checked by record_take_text, which identities
 * (common/cache/identity.h) use too, and folders of Triton's cache are named by
 * triton_folder_format.
 *
 * Memory: a record owns everything; copies of texts are owned by the caller. Threads: a record is
 * read-only after parsing; the other functions are pure. */
#ifndef WAVETUNE_COMMON_BUILDS_FUNCTION_RECORD_H
#define WAVETUNE_COMMON_BUILDS_FUNCTION_RECORD_H

#include "common/base/digest.h"
#include "common/base/json.h"
#include "common/record/record.h"

struct function_record {
  bool has_kernel;
  struct digest kernel;
  char *name; /* of the wavetune kernel, or NULL */
  struct {    /* NULL where not stated */
    char *triton_version, *triton_key, *backend_hash;
  };
  struct {
    char *module, *function, *qualname, *signature, *cache_key, *source_sha256;
    struct digest closure; /* digest_is_none: not stated */
  };
  RECORD_ARRAY(char *, n_key_names, key_names);
  RECORD_ARRAY(char *, n_tuning_key, tuning_key); /* as many as key_names */
  RECORD_ARRAY(char *, n_dtypes, dtypes);         /* NULL: not stated */
  RECORD_ARRAY(char *, n_configs, configs);
  json_t *autotune, *dejavu; /* objects or NULL */
};

must_check bool function_record_parse(const json_t *json, struct function_record *ret,
                                      struct error *error);
void function_record_release(struct function_record *record);

/* Texts of function records and identities: bounded, and safe where they become parts of paths. */
#define RECORD_TEXT_MAX 65536
#define RECORD_TEXT_PART_MAX 200

enum record_text_kind {
  RECORD_TEXT_ANY,
  RECORD_TEXT_PART, /* becomes a part of a path: at most RECORD_TEXT_PART_MAX bytes, no '/', not "."
                       and not ".." */
};

/* A copy of a member of 1 to RECORD_TEXT_MAX bytes; *ret is unchanged when an optional member is
 * absent or null. */
must_check bool record_take_text(const json_t *object, const char *pointer, const char *name,
                                 enum json_presence presence, enum record_text_kind kind,
                                 char **ret, struct error *error);

/* "3.6.0", "3.3.1+git1": 306, 303; 0 when it is not a version. */
int triton_version_number(const char *text);

/* The names of folders in Triton's cache: a SHA-256 in base32 (RFC 4648, upper case, unpadded). */
#define TRITON_FOLDER_LENGTH 52

/* Writes the name and a NUL to text; returns text. */
char *triton_folder_format(const struct digest *digest, char text[TRITON_FOLDER_LENGTH + 1]);

bool triton_folder_is_valid(const char *text, size_t length);

#endif
