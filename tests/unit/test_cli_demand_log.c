/* Misses in logs: each spelling of vLLM 0.33.0, SGLang 0.5.23 and AITER, and what is no miss. */
#include <criterion/criterion.h>
#include <fcntl.h>

#include "cli/demand_log.h"
#include "common/base/file.h"

/* The misses that the lines state, without the names of the files. */
static void expect_misses(const char *lines, const char *expected) {
  cleanup_demand_log struct demand_log log = demand_log_new();
  cleanup_json json_t *wanted = json_loads(expected, JSON_DECODE_ANY, NULL);
  for (const char *at = lines; *at;) {
    size_t size = strcspn(at, "\n");
    demand_log_line(&log, at, size);
    at += size + (at[size] == '\n');
  }
  json_elements (log.misses, i, miss)
    if (!string_equal(json_text(miss, "table"), "aiter-csv"))
      json_object_del(miss, "file");
  cleanup_free char *found = json_canonical(log.misses);
  cr_assert_not_null(wanted, "%s", expected);
  cr_expect(json_equal(log.misses, wanted), "%s", found);
  cr_expect_eq(log.n_unread, 0);
}

#define MI300X "\"device\": \"AMD_Instinct_MI300X\""

Test(demand_log, vllm_moe_states_one_table_that_it_looked_for_in_two_folders) {
  expect_misses(
      "WARNING 11-29 07:00:01 [fused_moe.py:1166] Using default MoE config. Performance might be "
      "sub-optimal! Config file not found at /tables/E=256,N=256,device_name=AMD_Instinct_MI300X,"
      "dtype=fp8_w8a8,block_shape=[128,128].json, /usr/lib/vllm/fused_moe/configs/E=256,N=256,"
      "device_name=AMD_Instinct_MI300X,dtype=fp8_w8a8,block_shape=[128,128].json\n"
      "Config file not found at /c/E=8,N=14336,device_name=AMD_Instinct_MI300X.json",
      "[{\"table\": \"vllm-moe\", " MI300X ", \"misses\": 1, \"members\": {\"E\": 256, \"N\": 256, "
      "\"dtype\": \"fp8_w8a8\", \"block_shape\": \"[128,128]\"}}, {\"table\": \"vllm-moe\", " MI300X
      ", \"misses\": 1, \"members\": {\"E\": 8, \"N\": 14336}}]");
}

Test(demand_log, vllm_block_fp8_and_its_repetitions_are_counted) {
  expect_misses(
      "(Worker_TP0) WARNING Using default W8A8 Block FP8 kernel config. Performance might be "
      "sub-optimal! Config file not found at /v/configs/N=2112,K=7168,device_name="
      "AMD_Instinct_MI300X,dtype=fp8_w8a8,block_shape=[128,128].json\n"
      "(Worker_TP1) WARNING Using default W8A8 Block FP8 kernel config. Performance might be "
      "sub-optimal! Config file not found at /v/configs/N=2112,K=7168,device_name="
      "AMD_Instinct_MI300X,dtype=fp8_w8a8,block_shape=[128,128].json\x1b[0m",
      "[{\"table\": \"vllm-w8a8\", " MI300X
      ", \"misses\": 2, \"members\": {\"N\": 2112, \"K\": 7168, "
      "\"dtype\": \"fp8_w8a8\", \"block_shape\": \"[128,128]\"}}]");
}

Test(demand_log, sglang_has_blanks_versions_and_tables_of_the_second_product) {
  expect_misses(
      "Using default W8A8 Block INT8 kernel config. Performance might be sub-optimal! Config file "
      "not found at /s/N=512,K=64,device_name=AMD_Instinct_MI300X,dtype=int8_w8a8,block_shape="
      "[128, 128].json\n"
      "Using default MoE kernel config. Performance might be sub-optimal! Config file not found at "
      "/s/configs/triton_3_6_0/E=8,N=1792,device_name=AMD_Instinct_MI300X,dtype=fp8_w8a8,"
      "block_shape=[128, 128],per_channel_quant=True_down.json, you can create them with "
      "https://github.com/sgl-project/sglang/tree/main/benchmark/kernels/fused_moe_triton\n"
      "Config file not found at /s/configs/triton_3_6_0/E=8,N=7168,device_name=AMD_Instinct_MI300X"
      ".json. Fallback to triton version 3.1.0 and use MoE kernel config from /s/configs/"
      "triton_3_1_0/E=8,N=7168,device_name=AMD_Instinct_MI300X.json. Performance might be "
      "sub-optimal!\n"
      "Down MoE config file not found at /s/configs/triton_3_6_0/E=8,N=64,device_name="
      "AMD_Instinct_MI300X_down.json; reusing the tuned up-projection config without TMA.",
      "[{\"table\": \"sglang-w8a8\", " MI300X
      ", \"misses\": 1, \"members\": {\"N\": 512, \"K\": 64, "
      "\"dtype\": \"int8_w8a8\", \"block_shape\": \"[128,128]\"}},"
      "{\"table\": \"sglang-moe\", " MI300X ", \"misses\": 1, \"triton\": \"3.6.0\", \"members\": "
      "{\"E\": 8, \"N\": 1792, \"dtype\": \"fp8_w8a8\", \"block_shape\": \"[128,128]\", "
      "\"per_channel_quant\": true, \"down\": true}},"
      "{\"table\": \"sglang-moe\", " MI300X ", \"misses\": 1, \"triton\": \"3.6.0\", \"fallback\": "
      "\"3.1.0\", \"members\": {\"E\": 8, \"N\": 7168}},"
      "{\"table\": \"sglang-moe\", " MI300X ", \"misses\": 1, \"triton\": \"3.6.0\", \"members\": "
      "{\"E\": 8, \"N\": 64, \"down\": true}}]");
}

Test(demand_log, mamba_flydsl_and_lora_have_their_tables) {
  expect_misses(
      "Using default Mamba SSU config. Performance might be sub-optimal! Config file not found at "
      "/t/headdim=64,dstate=128,device_name=AMD_Instinct_MI300X,cache_dtype=float16.json\n"
      "Using default FlyDSL MoE config. Performance might be sub-optimal! Config file not found at "
      "/c/E=8,N=64,device_name=AMD_Instinct_MI300X,dtype=int4_w4a16,backend=flydsl.json\n"
      "No LoRA kernel configs found in /t/AMD_Instinct_MI300X_EXPAND_TRUE.json\n"
      "No LoRA kernel configs found in /t/AMD_Instinct_MI300X_FUSED_MOE_LORA_W13_SHRINK.json",
      "[{\"table\": \"vllm-ssm\", " MI300X ", \"misses\": 1, \"members\": {\"headdim\": 64, "
      "\"dstate\": 128, \"cache_dtype\": \"float16\"}},"
      "{\"table\": \"vllm-flydsl\", " MI300X ", \"misses\": 1, \"members\": {\"E\": 8, \"N\": 64}},"
      "{\"table\": \"vllm-lora\", " MI300X
      ", \"misses\": 1, \"members\": {\"op\": \"EXPAND_TRUE\"}},"
      "{\"table\": \"vllm-lora-moe\", " MI300X ", \"misses\": 1, \"members\": {\"op\": "
      "\"FUSED_MOE_LORA_W13_SHRINK\"}}]");
}

Test(demand_log, aiter_states_the_shape_and_the_table_that_lacks_it) {
  expect_misses(
      "[aiter] shape is M:16, N:1536, K:7168, not found tuned config in /tmp/aiter_configs/"
      "a8w8_blockscale_tuned_gemm.csv, will use default config!\n"
      "shape is M:1, N:8, K:4, q_dtype_w:torch.float8_e4m3fnuz, not found tuned config in a.csv, "
      "will use default config!\n"
      "shape is M:2, N:8, K:4 dtype='torch.bfloat16' otype='torch.bfloat16' bias=False, "
      "scaleAB=False, bpreshuffle=False, not found tuned config in b.csv, will use default config! "
      "using torch solution:0\n"
      "shape is B:3, M:1, N:8, K:4 dtype is bf16, not found tuned config in CKGEMM, will use "
      "default config!\n"
      "shape is B:3, M:1, N:8, K:4, not found tuned/padded config in m.csv, the caller will fall "
      "back!",
      "[{\"table\": \"aiter-csv\", \"device\": \"\", \"misses\": 1, \"file\": "
      "\"a8w8_blockscale_tuned_gemm.csv\", \"members\": {\"M\": 16, \"N\": 1536, \"K\": 7168}},"
      "{\"table\": \"aiter-csv\", \"device\": \"\", \"misses\": 1, \"file\": \"a.csv\", "
      "\"members\": "
      "{\"M\": 1, \"N\": 8, \"K\": 4, \"q_dtype_w\": \"torch.float8_e4m3fnuz\"}},"
      "{\"table\": \"aiter-csv\", \"device\": \"\", \"misses\": 1, \"file\": \"b.csv\", "
      "\"members\": "
      "{\"M\": 2, \"N\": 8, \"K\": 4, \"dtype\": \"torch.bfloat16\", \"otype\": "
      "\"torch.bfloat16\", "
      "\"bias\": \"False\", \"scaleAB\": \"False\", \"bpreshuffle\": \"False\"}},"
      "{\"table\": \"aiter-csv\", \"device\": \"\", \"misses\": 1, \"file\": \"CKGEMM\", "
      "\"members\": "
      "{\"B\": 3, \"M\": 1, \"N\": 8, \"K\": 4}},"
      "{\"table\": \"aiter-csv\", \"device\": \"\", \"misses\": 1, \"file\": \"m.csv\", "
      "\"members\": "
      "{\"B\": 3, \"M\": 1, \"N\": 8, \"K\": 4}}]");
}

Test(demand_log, other_lines_state_nothing) {
  expect_misses("Using configuration from /c/E=8,N=64,device_name=X.json for MoE layer.\n"
                "shape is M:1, N:2, K:3 dtype='x', is tuned on cu_num = 304 in a.csv\n"
                "ValueError: Config file not found: a.yaml\n\n",
                "[]");
}

Test(demand_log, a_name_that_is_not_understood_is_counted) {
  static const char *const lines[] = {
      "Config file not found at /etc/other.json",
      "Config file not found at E=8,N=x,device_name=Y.json",
      "Config file not found at E=8,E=8,device_name=Y.json",
      "Config file not found at E=8,N=8.json",
      "Config file not found at E=8,N=12345678901,device_name=Y.json",
      "Config file not found at N=8,K=8,device_name=Y,block_shape=[128,128.json",
      "Config file not found at nothing",
      "No LoRA kernel configs found in /t/_SHRINK.json",
      "shape is M:x, N:2, K:3, not found tuned config in a.csv",
      "shape is M:1, N:2, not found tuned config in a.csv"};
  cleanup_demand_log struct demand_log log = demand_log_new();
  list_foreach (line, lines)
    demand_log_line(&log, *line, strlen(*line));
  cr_expect_eq(log.n_unread, ARRAY_LENGTH(lines), "%zu", log.n_unread);
  cr_expect_eq(json_array_size(log.misses), 0);
}

Test(demand_log, long_lines_and_bytes_that_are_no_text_do_no_harm) {
  static const char line[] = "Config file not found at /c/E=8,N=64,device_name=X.json\r";
  char path[] = "/tmp/wavetune-log-XXXXXX";
  cleanup_fd int fd = mkstemp(path);
  cleanup_free char *noise = xmalloc(1 << 20);
  for (size_t i = 0; i < 1 << 20; i++)
    noise[i] = (char)(i % 255 == '\n' || i % 255 == '\r' ? 0 : i % 255);
  cr_assert(fd >= 0 && unlink(path) == 0);
  cr_assert(fd_write_all(fd, noise, 1 << 20) && fd_write_all(fd, "\n\0\xff ", 4) &&
            fd_write_all(fd, line, strlen(line)) && fd_write_all(fd, line, strlen(line) - 1));

  cleanup_demand_log struct demand_log log = demand_log_new();
  struct error error;
  cr_assert_eq(lseek(fd, 0, SEEK_SET), 0);
  cr_assert(demand_log_read(&log, fd, "the log", &error), "%s", error.message);
  cr_assert_eq(json_array_size(log.misses), 1);
  cr_expect_eq(json_integer_value(json_object_get(json_array_get(log.misses, 0), "misses")), 2);
  cr_expect_not(demand_log_read(&log, -1, "the log", &error));
}

Test(demand_log, only_so_many_misses_are_kept) {
  cleanup_demand_log struct demand_log log = demand_log_new();
  for (size_t i = 1; i <= LOG_MISSES_MAX + 2; i++) {
    cleanup_free char *line =
        xasprintf("Config file not found at E=%zu,N=64,device_name=X.json", i);
    demand_log_line(&log, line, strlen(line));
  }
  cr_expect_eq(json_array_size(log.misses), LOG_MISSES_MAX);
  cr_expect_eq(log.n_left, 2);
}
