/* Builds: compiled code for one triton kernel, toolchain and arch, in variants chosen by the job's
 * key. docs/builds.md is the format.
 *
 * JSON: {"kernel": "sha256:…", "toolchain": {"triton": "3.6.0", "torch": "2.9.0"},
 *        "arch": "gfx942", "warp_size": 64,
 *        "variants": [{"when": "M % 16 == 0", "signature": {…}, "constexprs": {…},
 *                      "objects": [{"config": {"BLOCK_M": 64, …}, "digest": "sha256:…",
 *                                   "metadata": {…}}],
 *                      "failed": [{"config": {…}, "error": "one line"}]}]}
 * `when` is an expression over the key (absent: always); the first variant whose `when` is true is
 * used. A variant of a captured kernel has in its place {"key": {…}, "case": {…}}: it is used for
 * exactly this key, 1 and 1.0 and true being different, and common/kernel/kernel_case.h says what
 * is passed then. Each of its objects has "grid": [x, y, z], and may have "arguments" and "fills"
 * (common/builds/launch_arguments.h). There may be BUILD_CASES_MAX of them.
 * It may have "expected": "sha256:…" (common/builds/expected.h) or, in its place,
 * "not_interpreted": one line that says why there are no such values. It may have "also": at most
 * BUILD_ALSO_MAX further specialisations of its key, {"signature": {…}, "objects": [{"config": {…},
 * "digest": "sha256:…", "metadata": {…}}]}: what Triton compiles for other launches with the same
 * key. They are not measured; programs that are told a config get their code too.
 * Required: kernel, toolchain (triton; torch and rocm where known), arch, warp_size, variants with
 * objects. A variant without `when` is the last one. A config is in `objects` or in `failed`,
 * once. signature, constexprs and metadata are objects that only the agent reads, except
 * metadata's "files": names with the digests of texts kept beside the code, and "cache": {"folder":
 * 52 characters of base32, "files": {name: digest}}: what Triton itself keeps in that folder of its
 * cache for the object, one of them NAME.json (the metadata).
 * Optional: "record", a function record (common/builds/function_record.h) of the function that was
 * packed.
 * The digest of a build is that of its canonical JSON. Objects and files are blobs.
 *
 * Memory: owns everything. Threads: read-only after build_parse. */
#ifndef WAVETUNE_COMMON_BUILDS_BUILD_H
#define WAVETUNE_COMMON_BUILDS_BUILD_H

#include "common/builds/launch_arguments.h"
#include "common/code/code_object.h"

#define BUILD_VARIANTS_MAX 256
#define BUILD_CASES_MAX 4096
#define BUILD_ALSO_MAX 16
#define BUILD_OBJECTS_MAX 65536           /* over all variants, with "also" and those that failed */
#define BUILD_SIZE_MAX ((size_t)16 << 20) /* of its JSON */
#define BUILD_ERROR_MAX 4096
#define BUILD_WARP_SIZE_MAX 1024

/* The commands that make a build and push it, for errors: a format of the arch and the text of
 * key_format_shell. */
#define BUILD_COMMANDS                                                                             \
  "`python3 -m wavetune pack DIR --arch %s --key %s --output FOLDER` and push it with `wavetune "  \
  "kernel push DIR "                                                                               \
  "--build FOLDER`"

/* The same for a captured kernel: a format of the text of key_format_shell. */
#define BUILD_CAPTURE                                                                              \
  "it was captured: have the program run with the key %s and WAVETUNE_CAPTURE=source, and build "  \
  "what it captures with `python3 -m wavetune build`"

struct build {
  struct digest digest;
  struct digest kernel;
  struct {
    char *triton, *torch, *rocm; /* of the toolchain; torch and rocm NULL where not stated */
  };
  char *arch;
  int64_t warp_size;
  json_t *variants; /* in `json` */
  size_t n_variants;
  struct expr **whens; /* NULL: always; bound to the kernel's key names by build_parse */
  struct key *keys;    /* of a captured kernel, in place of `whens`; else NULL */
  size_t n_objects;
  struct digest
      *objects; /* every blob that it names, code, files and contents, each once; a head has none */
  json_t *record; /* of the packed function, in `json`; NULL where there is none, and in
                     a head */
  json_t *json;
};

must_check bool build_parse(const json_t *json, const struct kernel *kernel,
                            struct build **ret_build, struct error *error);
void build_free(struct build *build);
DEFINE_CLEANUP(struct build *, cleanup_build_free, build_free)
#define cleanup_build cleanup_by(cleanup_build_free)

/* The head of a build, enough to choose among builds: its JSON with only "when" or "key" of each
 * variant. A new reference. build_parse_head reads it back; `digest` is the whole build's. */
must_check json_t *build_head(const struct build *build);
must_check bool build_parse_head(const json_t *head, const struct digest *digest,
                                 const struct kernel *kernel, struct build **ret_build,
                                 struct error *error);

/* The specialisations of a variant's key, borrowed: number 0 is the variant itself, others are of
 * its "also"; NULL: there is none of this number. Each has "signature" and "objects". */
const json_t *build_specialisation(const struct build *build, size_t variant, size_t number);

/* What Triton would look for in its cache, for a config of a specialisation: {"folder", "files"},
 * borrowed; NULL where the build has none. Members of `config` that the build's configs do not have
 * are ignored. */
const json_t *build_cache(const json_t *specialisation, const json_t *config);

/* The index of the variant for a key; the error states what to pack or capture. */
must_check bool build_variant(const struct build *build, const struct key *key, size_t *ret_index,
                              struct error *error);

/* The kernel with the case of a variant, for a captured kernel; *ret_kernel is NULL for others. */
must_check bool build_variant_kernel(const struct kernel *kernel, const json_t *variant,
                                     struct kernel **ret_kernel, struct error *error);

/* How a build launches its objects, compared with the kernel's manifest and the compiled code:
 * an object's metadata, and the arguments that its variant passes. docs/builds.md is the format.
 *
 * Memory: a launch owns its arguments and fills; the rest is borrowed from the build's JSON.
 * Threads: pure functions. */
#define BUILD_SCRATCH_MAX 4

/* How an object is launched: Triton's metadata, and what captured kernels state beside it. */
struct build_launch {
  const char *name; /* the symbol */
  int64_t warps, warp_size;
  int64_t shared_bytes; /* dynamic */
  int64_t n_scratch;    /* null pointers after the arguments */
  int64_t clusters;     /* workgroups of a cluster; 1: none */
  bool is_cooperative;
  bool has_grid; /* of a captured kernel */
  int64_t grid[3];
  struct launch_arguments arguments; /* not stated: the signature's */
  struct launch_fills fills;
};
void build_launch_release(struct build_launch *launch);
#define cleanup_build_launch cleanup_by(build_launch_release)

/* Reads how an entry of "objects" is launched; `warp_size` is the build's, for metadata that state
 * none. */
must_check bool build_launch_read(const json_t *object, int64_t warp_size, struct build_launch *ret,
                                  struct error *error);

/* Triton's name of a type, without the '*' of a pointer, as a dtype; false: manifests have no such
 * type. */
must_check bool build_type_parse(const char *type, enum dtype *ret_dtype);

/* Whether the variant's signature and constexprs are the manifest's arguments, each once and with
 * its type. A scalar integer may be narrower, since Triton chooses by the value: what is passed
 * then is the low half of it. A buffer may be a tensor descriptor ("tensordesc<…>"), which only
 * objects with "arguments" can be passed. */
must_check bool build_signature_agrees(const struct kernel *kernel, const json_t *variant,
                                       struct error *error);

/* Whether the code is for the arch ("gfx942"). */
must_check bool build_code_is_for(const struct code_object *code, const char *arch,
                                  struct error *error);

/* Whether the code takes what a launch passes: its arguments, else the signature's in the
 * manifest's order, then the scratch pointers, and runs in wavefronts of launch->warp_size. A
 * build's JSON is sorted by name, so that without the manifest (`kernel` NULL) only the number of
 * arguments is known. */
must_check bool build_code_agrees(const struct kernel *kernel, const json_t *variant,
                                  const struct build_launch *launch, const struct code_kernel *code,
                                  struct error *error);

#endif
