0000000000000100 <f>:
	s_nop 0                                                    // 000000000100: BF800000
	global_load_dword v0, v[1:2], off                          // 000000000104: DC508000
	v_mfma_f32_16x16x16_f16 a[0:3], v[0:1], v[2:3], 0          // 000000000108: D3CD8000
	s_cbranch_scc1 65534                                       // 00000000010C: BF85FFFE <f+0x8>
	ds_read2_b64 v[0:3], v4 offset1:1                          // 000000000110: D8EE0000
	s_cbranch_scc0 65534                                       // 000000000114: BF84FFFE <f+0x10>
	s_cbranch_scc1 65530                                       // 000000000118: BF85FFFA <f+0x4>
	s_branch 65521                                             // 00000000011C: BF82FFF1
	s_waitcnt vmcnt(0) lgkmcnt(0)                              // 000000000120: BF8C0070
	s_endpgm                                                   // 000000000124: BF810000
0000000000000200 <g>:
	s_cbranch_scc1 1                                           // 000000000200: BF850001
	s_nop 0                                                    // 000000000204: BF800000
	s_nop 0                                                    // 000000000208: BF800000
	s_cbranch_scc1 65533                                       // 00000000020C: BF85FFFD
	s_setpc_b64 s[30:31]                                       // 000000000210: BE801D1E
