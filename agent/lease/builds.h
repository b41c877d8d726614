/* A build's objects on this machine: for each config of a lease the code that is loaded and how it
 * is launched, or why there is none. docs/builds.md defines builds.
 *
 * The key chooses the variant; configs are matched by value. Objects are stored in
 * FOLDER/blob-<digest>.co: each is fetched once, and checked against its digest by every build_code
 * that needs it. Memory: build_objects own everything. Threads: any; several may share a
 * folder, a build_code belongs to one. */
#ifndef WAVETUNE_AGENT_LEASE_BUILDS_H
#define WAVETUNE_AGENT_LEASE_BUILDS_H

#include "agent/compile/launch_spec.h"
#include "agent/compile/sources.h"
#include "common/builds/build.h"
#include "common/verdict/verdict.h"

/* The compiled object of one config, from a build or from the compile pool. */
struct lease_object {
  bool is_ok;
  char *path;                /* is_ok only */
  struct digest digest;      /* of its bytes, is_ok only */
  struct launch_spec launch; /* is_ok only */
  enum outcome outcome;      /* unless is_ok: compile or timeout, and why */
  char *detail;
  int64_t compile_ms;
};
void lease_object_release(struct lease_object *object);

/* The ordinal must be first: arrays are searched with compare_ordinals. */
struct config_object {
  uint64_t config;
  struct lease_object object;
};

/* The bytes that a case passes in a buffer. */
struct case_blob {
  struct digest digest;
  char *path;
};

struct build_objects {
  size_t n;
  struct config_object *all; /* by rising config, each once */
  json_t *of_key;            /* the case of a captured kernel (common/kernel/kernel_case.h), a
                                reference; else NULL */
  size_t n_blobs;
  struct case_blob *blobs;
  struct case_blob expected; /* values of Triton's interpreter; path NULL: none */
};

struct build_request {
  const struct kernel *kernel;
  const struct key *key;
  const struct space *space;
  const char *gpu_name, *arch; /* of the device */
  size_t n;
  const uint64_t *configs; /* in any order; duplicates are allowed */
};

/* A build that is opened for many keys: the code of a config is fetched and checked once, when the
 * first key needs it. `json` is the build; `reader` gets a blob by its digest and is called until
 * build_code_free. Borrows the kernel. False when the build is not for this kernel or arch. */
struct build_code;
must_check bool build_code_new(const char *folder, const json_t *json, const struct kernel *kernel,
                               const char *arch, const struct source_reader *reader,
                               struct build_code **ret_code, struct error *error);
void build_code_free(struct build_code *code);
DEFINE_CLEANUP(struct build_code *, cleanup_build_code_free, build_code_free)
#define cleanup_build_code __attribute__((cleanup(cleanup_build_code_free)))

/* The objects of one key; the request's kernel and arch are those of `code`. A config without an
 * object is no error: its outcome is compile. False when the build has no variant for this key, or
 * a blob cannot be read. */
must_check bool build_code_objects(struct build_code *code, const struct build_request *request,
                                   struct build_objects **ret_objects, struct error *error);

/* Opens a build and returns its objects for a single key. */
must_check bool build_objects_prepare(const char *folder, const json_t *json,
                                      const struct build_request *request,
                                      const struct source_reader *reader,
                                      struct build_objects **ret_objects, struct error *error);
void build_objects_free(struct build_objects *objects);

/* The object of a config, which must be among the request's. */
const struct lease_object *build_objects_find(const struct build_objects *objects, uint64_t config);

/* Reads the folder that `pack` writes: its build.json (a new reference), and one of its objects;
 * `context` is the folder's path. */
must_check bool build_folder_read(const char *folder, json_t **ret_json, struct error *error);
bool build_folder_blob(void *context, const struct source *source, char **ret_bytes,
                       size_t *ret_size, struct error *error);

#endif
