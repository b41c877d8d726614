/* The rule by which a budget is spent. */
#include "common/verdict/budget.h"

#include "common/verdict/verdict.h"

_Static_assert(VERDICT_PROCESSES_MIN == 3, "BUDGET_LEAST_US");

static int64_t left_us(const struct budget *budget) {
  return budget->total_us > budget->spent_us ? budget->total_us - budget->spent_us : 0;
}

/* The time of one finalist in one process, without opening the kernel; 0: not known. */
static double finalist_us(const struct budget *budget) {
  double configs_us = (double)(budget->spent_us - budget->opening_us);
  return budget->measured ? BUDGET_FINALIST_CONFIGS * configs_us / (double)budget->measured : 0;
}

/* The time to open the kernel in this number of processes; 0: not known. */
static double openings_us(const struct budget *budget, int64_t processes) {
  return budget->openings
             ? (double)processes * (double)budget->opening_us / (double)budget->openings
             : 0;
}

int64_t budget_least_final_us(const struct budget *budget, int64_t processes) {
  return (int64_t)(openings_us(budget, processes) +
                   BUDGET_FINALISTS_MIN * (double)processes * finalist_us(budget));
}

int64_t budget_configs_us(int64_t share_us, int64_t rest_us, int64_t opening_us) {
  if (opening_us >= rest_us)
    return 0;
  int64_t us = (int64_t)((double)share_us * (double)(rest_us - opening_us) / (double)rest_us);
  return us > 0 ? us : 1;
}

int64_t budget_screen_left_us(const struct budget *budget, int64_t processes) {
  if (budget->total_us == 0)
    return BUDGET_UNBOUNDED;

  int64_t share_us = (int64_t)(BUDGET_SCREEN_SHARE * (double)budget->total_us);
  int64_t least_us = (int64_t)(BUDGET_SCREEN_LEAST * (double)budget->total_us);
  int64_t before_final_us = budget->total_us - budget_least_final_us(budget, processes);
  int64_t most_us = before_final_us > share_us   ? share_us
                    : before_final_us < least_us ? least_us
                                                 : before_final_us;
  return most_us > budget->spent_us ? most_us - budget->spent_us : 0;
}

size_t budget_finalists(const struct budget *budget, int64_t processes, size_t most) {
  double each_us = (double)processes * finalist_us(budget);
  double configs_us = (double)left_us(budget) - openings_us(budget, processes);
  if (budget->total_us == 0 || (double)most * each_us <= configs_us)
    return most;
  size_t n = each_us > 0 && configs_us > 0 ? (size_t)(configs_us / each_us) : 0;
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
