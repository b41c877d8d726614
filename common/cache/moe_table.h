/* Tables of the fused mixture-of-experts kernel, as vLLM and SGLang read them: one file for each shape and device, in it a
 * config for each number of tokens M.
 *
 *   vLLM:   E=128,N=384,device_name=AMD_Instinct_MI300X[,dtype=fp8_w8a8][,block_shape=[128,128]].json
 *   SGLang: configs/triton_3_4_0/E=…,N=…,device_name=…[,dtype=…][,block_shape=[128, 128]][,per_channel_quant=True][_down].json
 * Bodies are what json.dump(indent=4) writes, and a newline: {"1": {"BLOCK_SIZE_M": 16, …}, …} with M ascending. "triton_version"
 * is read and not written: older readers take every member for an M.
 *
 * "exports" of a kernel, under the format's name, say how its key and its configs are those of the tables:
 *   {"E": "E", "N": "N", "M": "M", "dtype": "fp8_w8a8", "block_shape": [128, 128], "config": {"BLOCK_SIZE_M": "BLOCK_M"}}
 * E, N and M: the name of a member of the key, an expression over the key, or an integer. dtype (absent: none): the name of a
 * member, whose value is a text or None, else the text itself. block_shape (absent: none): the name of a member, whose value
 * is the text "[128,128]" or None, else two integers. per_channel_quant and down (SGLang; absent: false): the name of a
 * member, or a boolean. config: for members of the table the name of the config's, or an integer that always stands there;
 * members of configs that are not named keep their names.
 *
 * Tables that are imported without a kernel are those of the external kernel vllm-moe/fused_moe or sglang-moe/fused_moe,
 * whose key has the members' own names. Provenance: "source", the path, and "order", the config's members where they do
 * not stand in the usual order.
 *
 * Memory: what format.h says. Threads: pure functions. */
#ifndef WAVETUNE_COMMON_CACHE_MOE_TABLE_H
#define WAVETUNE_COMMON_CACHE_MOE_TABLE_H

#include "common/cache/format.h"

/* What the two readers do not have in common. */
struct moe_dialect {
  const char *format;         /* its name */
  const char *variable;       /* that tells the reader of the folder */
  const char *separator;      /* between the numbers of a block shape */
  bool has_versions;          /* tables lie in configs/triton_… */
  bool has_variants;          /* per_channel_quant and down */
  bool takes_device_from_pci; /* the reader knows AMD's devices by their PCI ids, and so without " OAM" and " VF" */
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
must_check bool moe_name_parse(const struct moe_dialect *dialect, const char *text, struct moe_name *ret,
                               struct error *error);
must_check char *moe_name_format(const struct moe_dialect *dialect, const struct moe_name *name);

/* "[128,128]" or "[128, 128]". */
bool moe_block_shape_parse(const char *text, int64_t ret[2]);

/* The members of a config in the order that the tuners of vLLM and SGLang write them; a new reference. */
must_check json_t *moe_config_ordered(const json_t *config);

must_check bool moe_render(const struct moe_dialect *dialect, const struct render_request *request,
                           struct cache_files *ret, struct error *error);
must_check bool moe_read(const struct moe_dialect *dialect, const struct import_request *request, struct imported *ret,
                         struct error *error);

#endif
