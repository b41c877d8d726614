/* JSON tables that other programs read: a file for each shape and device, in it a config for each
 * number of rows. A kind of table is a row of facts (table_kinds.c); a family is the kinds that one
 * cache format writes and reads (tables.c, tables_read.c).
 *
 * A kind has members, a flat JSON object that identifies a row. `path` is a template of the file's
 * path without ".json": {member} is the value of a member, {device}, {triton} and {arch} are the
 * place's, and [...] is left out where the member in it is null. Flags follow it: each is a text at
 * the name's end. Members of the use TABLE_ROW are not in the path: they are the names in the
 * file's body, one nested in the other in their order, and the last of them has the config.
 *
 * Memory: facts are static, results the caller's. Threads: pure. */
#ifndef WAVETUNE_COMMON_FORMATS_TABLES_H
#define WAVETUNE_COMMON_FORMATS_TABLES_H

#include "common/cache/format.h"

#define TABLE_MEMBERS_MAX 8
#define TABLE_NEEDED_MAX 6
#define TABLE_KINDS_MAX 6
#define TABLE_SWITCHES_MAX 3
#define TABLE_NUMBER_MAX INT32_MAX /* in names and tables */
#define TABLES_FILE "wavetune-tables.json"

struct table_member {
  const char *name;
  /* A block shape is the text "[128,128]". A bound is one of AITER's: the text "M_LEQ_16",
   * "M_GEQ_16" or "any", or of experts "small_M", "medium_M", "large_M". */
  enum table_value { TABLE_NUMBER, TABLE_TEXT, TABLE_BLOCK_SHAPE, TABLE_FLAG, TABLE_BOUND } value;
  enum table_use { TABLE_OPTIONAL, TABLE_REQUIRED, TABLE_ROW } use;
  const char *pattern; /* of a text, a regular expression without groups; NULL: letters, digits and
                          _ - . ; of a flag its text */
};

/* What a reader calls the device. */
enum table_device {
  TABLE_DEVICE_VLLM,     /* by AMD's PCI ids, else the driver's name; no blanks, no '/' */
  TABLE_DEVICE_VLLM_MOE, /* the same, with one name for the family of the H200 */
  TABLE_DEVICE_TORCH,    /* torch's name, without blanks */
  TABLE_DEVICE_LORA,     /* the same, without '-' */
  TABLE_DEVICE_ARCH,     /* nothing but the arch is in the path */
};

struct table_kind {
  const char *name;   /* in "exports" */
  const char *kernel; /* the external kernel of tables that are imported without a kernel */
  const char *below;  /* folders that are written and need not be there when a table is read */
  const char *path;   /* the template */
  const char *prefix; /* a file of such a name must be a table; NULL: others are left alone */
  const char *example;
  enum table_device device;
  bool may_state_triton; /* the body may have "triton_version" */
  const char *twins[2];  /* the first text is written as the second one */
  size_t n_members;
  struct table_member members[TABLE_MEMBERS_MAX];
  const char *needed[TABLE_NEEDED_MAX]; /* positive integers in every config */
};

/* The conditions under which a program reads the tables, as environment variables. */
struct table_switch {
  const char *variable, *value; /* value NULL: not set, or 0 */
  bool is_rocm;                 /* on ROCm only */
};

struct table_family {
  const char *format;
  const char *variable; /* that names the folder; NULL: the program reads its package's folder, and
                           the wheel's plug-in reads ours */
  const struct table_kind *kinds[TABLE_KINDS_MAX]; /* a path that several match is of the last */
  struct table_switch switches[TABLE_SWITCHES_MAX];
};

/* The place of a table: what its path states besides the row; NULL: nothing. */
struct table_place {
  char *device; /* as the reader spells it */
  char *triton; /* "3.4.0" */
  char *arch;
};
void table_place_release(struct table_place *place);
#define cleanup_table_place cleanup_by(table_place_release)

/* The path of the row's table, below the format's folder. The error names a member that the path
 * needs. */
must_check bool table_path_make(const struct table_kind *kind, const struct table_place *place,
                                const json_t *row, char **ret_path, struct error *error);

/* The kind whose template the end of the path matches; NULL: none. */
const struct table_kind *table_kind_of_path(const struct table_family *family, const char *path);
/* Whether the path is that of a table, or its name says that it must be. */
bool table_family_has(const struct table_family *family, const char *path);
/* Reads a path: its kind, the row without the members of the body, and the place. */
must_check bool table_path_parse(const struct table_family *family, const char *path,
                                 const struct table_kind **ret_kind, json_t **ret_row,
                                 struct table_place *ret_place, struct error *error);

/* The value of a member in the body as a number by which rows are sorted; -1: not a value. And the
 * text of such a number. */
int64_t table_row_number(const struct table_member *member, const char *text);
#define TABLE_ROW_SIZE 32
const char *table_row_text(const struct table_member *member, int64_t number,
                           char text[TABLE_ROW_SIZE]);
#define TABLE_BOUND_ANY (INT64_C(1) << 40) /* of "any", after all others */
/* Whether AITER looks for the row "M_LEQ_m". */
bool table_bound_is_read(int64_t m);

/* The member whose number the rows of a kind have, or the first of several. */
static inline const struct table_member *table_first_row(const struct table_kind *kind) {
  size_t i = 0;
  while (kind->members[i].use != TABLE_ROW)
    i++;
  return &kind->members[i];
}

/* The members of a config in the order that the tuners of vLLM, SGLang and AITER write them; a new
 * reference. */
must_check json_t *table_config_ordered(const json_t *config);
/* Refuses a config that the reader could not use: members that are missing or nested. */
must_check bool table_config_check(const struct table_kind *kind, const json_t *config,
                                   struct error *error);

must_check bool tables_render(const struct table_family *family,
                              const struct render_request *request, struct cache_files *ret,
                              struct error *error);
must_check bool tables_read(const struct table_family *family, const struct import_request *request,
                            const struct cache_file *file, struct imported *imported,
                            struct error *error);

/* The family that has the kind of this name; NULL: none. */
const struct table_family *table_family_find(const char *kind, const struct table_kind **ret_kind);
/* Adds the switches of a family to an object, for an environment with ROCm or without. */
void table_switches_add(const struct table_family *family, bool is_rocm, json_t *switches);

extern const struct table_family tables_vllm_moe, tables_vllm_w8a8, tables_sglang_moe,
    tables_sglang_w8a8, tables_aiter_triton;

#endif
