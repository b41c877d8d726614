/* The rule by which a budget is spent. Memory and threads: the header. */
#include "common/verdict/budget.h"

#include "common/verdict/verdict.h"

_Static_assert(VERDICT_PROCESSES_MIN == 3, "BUDGET_LEAST_US");

static int64_t left_us(const struct budget *budget) {
  return budget->total_us > budget->spent_us ? budget->total_us - budget->spent_us : 0;
}

/* Of one finalist in one process; 0: not known. */
static double finalist_us(const struct budget *budget) {
  return budget->measured ? BUDGET_FINALIST_CONFIGS * (double)budget->spent_us / (double)budget->measured : 0;
}

int64_t budget_least_final_us(const struct budget *budget, int64_t processes) {
  return (int64_t)(BUDGET_FINALISTS_MIN * (double)processes * finalist_us(budget));
}

int64_t budget_screen_left_us(const struct budget *budget, int64_t processes) {
  if (budget->total_us == 0)
    return BUDGET_UNBOUNDED;
  int64_t share_us = (int64_t)(BUDGET_SCREEN_SHARE * (double)budget->total_us);
  int64_t least_us = (int64_t)(BUDGET_SCREEN_LEAST * (double)budget->total_us);
  int64_t before_final_us = budget->total_us - budget_least_final_us(budget, processes);
  int64_t most_us = before_final_us > share_us ? share_us : before_final_us < least_us ? least_us : before_final_us;
  return most_us > budget->spent_us ? most_us - budget->spent_us : 0;
}

size_t budget_finalists(const struct budget *budget, int64_t processes, size_t most) {
  double each_us = (double)processes * finalist_us(budget);
  if (budget->total_us == 0 || (double)most * each_us <= (double)left_us(budget))
    return most;
  size_t n = (size_t)((double)left_us(budget) / each_us);
  return n > BUDGET_FINALISTS_MIN ? n : BUDGET_FINALISTS_MIN;
}

int64_t budget_process_us(const struct budget *budget, int64_t processes) {
  if (budget->total_us == 0)
    return BUDGET_UNBOUNDED;
  int64_t us = left_us(budget) / processes;
  return us > 0 ? us : 1;
}

bool budget_pays_process(const struct budget *budget) {
  return budget->total_us == 0 || budget->final_processes == 0 ||
         left_us(budget) >= budget->final_us / budget->final_processes;
}
