/* One agent to a device of a machine (agent/run/claim.h). Ids are this process's, so that a test in
 * another tree claims other devices. */
#include <criterion/criterion.h>

#include "agent/run/claim.h"

static bool claims(const char *backend, const char *partition, json_t *facts, int *ret_fd) {
  cleanup_json json_t *json = json_pack("{s:o}", "facts", facts);
  struct device_seen device = {.name = "gpu0",
                               .backend = backend,
                               .environment = {.partition = (char *)partition},
                               .json = json};
  struct error error = {0};
  bool is_claimed = device_claim(&device, ret_fd, &error);
  cr_expect_eq(is_claimed, !*error.message);
  cr_expect(is_claimed || strstr(error.message, "works on gpu0: end it"), "%s", error.message);
  return is_claimed;
}

static json_t *pci(void) { return json_pack("{s:o}", "pci", json_sprintf("test %d", getpid())); }
static json_t *gpu_id(int more) {
  return json_pack("{s:I, s:s}", "gpu_id", (json_int_t)getpid() * 100 + more, "pci", "any");
}

Test(claim, a_gpu_is_claimed_once_until_the_claim_is_closed) {
  int first, second, third;
  cr_expect(claims("cuda", "", pci(), &first) && first >= 0);
  cr_expect_not(claims("cuda", "", pci(), &second));
  close(first);
  cr_expect(claims("cuda", "", pci(), &third) && third >= 0);
  close(third);
}

Test(claim, partitions_that_have_ids_are_claimed_each) {
  int one, other, again;
  cr_expect(claims("hip", "CPX/NPS4", gpu_id(1), &one) && one >= 0);
  cr_expect(claims("hip", "CPX/NPS4", gpu_id(2), &other) && other >= 0);
  cr_expect_not(claims("hip", "CPX/NPS4", gpu_id(2), &again));
}

Test(claim, instances_of_a_gpu_that_have_none_are_not_claimed) {
  int one, other, unknown;
  cr_expect(claims("cuda", "MIG 1g.18gb", pci(), &one) && one == -1);
  cr_expect(claims("cuda", "MIG 1g.18gb", pci(), &other) && other == -1);
  cr_expect(claims("hip", "", json_object(), &unknown) && unknown == -1);
}
