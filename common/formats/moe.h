/* Tables of the fused mixture-of-experts kernel, as vLLM and SGLang read them: one file for each
 * shape and device, in it a config for each number of tokens M.
 *
 *   vLLM:   E=128,N=384,device_name=AMD_Instinct_MI300X[,dtype=fp8_w8a8]
 *           [,block_shape=[128,128]].json
 *   SGLang: configs/triton_3_4_0/E=…,N=…,device_name=…[,dtype=…][,block_shape=[128, 128]]
 *           [,per_channel_quant=True][_down].json
 * Bodies are what json.dump(indent=4) writes, and a newline: {"1": {"BLOCK_SIZE_M": 16, …}, …} with
 * M ascending. "triton_version" is read and not written: older readers take every member for an M.
 *
 * "exports" of a kernel, under the format's name, say how its key and its configs are those of the
 * tables:
 *   {"E": "E", "N": "N", "M": "M", "dtype": "fp8_w8a8", "block_shape": [128, 128],
 *    "config": {"BLOCK_SIZE_M": "BLOCK_M"}}
 * E, N and M: the name of a member of the key, an expression over the key, or an integer. dtype
 * (absent: none): the name of a member, whose value is a text or None, else the text itself.
 * block_shape (absent: none): the name of a member, whose value is the text "[128,128]" or None,
 * else two integers. per_channel_quant and down (SGLang; absent: false): the name of a member, or a
 * boolean. config: for members of the table the name of the config's, or an integer that always
 * stands there; members of configs that are not named keep their names.
 *
 * Tables that are imported without a kernel are those of the external kernel vllm-moe/fused_moe or
 * sglang-moe/fused_moe, whose key has the members' own names. Provenance: "source", the path, and
 * "order", the config's members where they do not stand in the usual order.
 *
 * moe.c has both formats, names and rendering; moe_mapping.c the exports, and reading.
 * Memory: what format.h says; a mapping owns its expressions and borrows the rest from the kernel.
 * Threads: pure functions. */
#ifndef WAVETUNE_COMMON_FORMATS_MOE_H
#define WAVETUNE_COMMON_FORMATS_MOE_H

#include "common/cache/format.h"

#define MOE_NUMBER_MAX INT32_MAX /* in names and tables */

/* What the two readers do not have in common. */
struct moe_dialect {
  const char *format;         /* its name */
  const char *variable;       /* that tells the reader of the folder */
  const char *separator;      /* between the numbers of a block shape */
  bool has_versions;          /* tables lie in configs/triton_… */
  bool has_variants;          /* per_channel_quant and down */
  bool takes_device_from_pci; /* the reader knows AMD's devices by their PCI ids, and so without "
                                 OAM" and " VF" */
};

/* What a file is of. */
struct moe_name {
  int64_t e, n;
  char *device; /* with '_' for ' ' */
  char *dtype;  /* or NULL */
  bool has_block_shape, per_channel_quant, down;
  int64_t block_shape[2];
};
void moe_name_release(struct moe_name *name);
#define cleanup_moe_name __attribute__((cleanup(moe_name_release)))

/* The file's name, without folders. */
must_check bool moe_name_parse(const struct moe_dialect *dialect, const char *text,
                               struct moe_name *ret, struct error *error);
/* "[128,128]" or "[128, 128]". */
bool moe_block_shape_parse(const char *text, int64_t ret[2]);

/* The members of a config in the order that the tuners of vLLM and SGLang write them; a new
 * reference. */
must_check json_t *moe_config_ordered(const json_t *config);

must_check bool moe_read(const struct moe_dialect *dialect, const struct import_request *request,
                         struct imported *ret, struct error *error);

/* A kernel's "exports" */

enum moe_source_kind { MOE_ABSENT, MOE_MEMBER, MOE_EXPRESSION, MOE_NUMBER, MOE_TEXT, MOE_PAIR };

/* Where a number, a text or a flag of a table comes from. */
struct moe_source {
  enum moe_source_kind kind;
  size_t member;      /* of the key */
  struct expr *expr;  /* over the key */
  int64_t numbers[2]; /* one of MOE_NUMBER (flags: 0 or 1), two of MOE_PAIR */
  const char *text;
};

struct moe_mapping {
  const struct kernel *kernel;
  struct moe_source e, n, m, dtype, block_shape, per_channel_quant, down;
  const json_t *config; /* object, or NULL */
};
void moe_mapping_release(struct moe_mapping *mapping);
#define cleanup_moe_mapping __attribute__((cleanup(moe_mapping_release)))

/* The sentence says which member of the kernel's exports is wrong. */
must_check bool moe_mapping_read(const struct moe_dialect *dialect, const struct kernel *kernel,
                                 struct moe_mapping *ret, struct error *error);

/* Which table (without its device) and which M the values of a key are of. */
must_check bool moe_mapping_name(const struct moe_mapping *mapping, const struct value *values,
                                 struct moe_name *ret, int64_t *ret_m, struct error *error);

/* A config as it stands in the table, in the usual order; a new reference. */
must_check bool moe_mapping_config(const struct moe_mapping *mapping, const json_t *config,
                                   json_t **ret, struct error *error);

#endif
