/* tune.h - the commands of dfgnn-tune, one file each */
#ifndef DFGNN_TOOLS_TUNE_H
#define DFGNN_TOOLS_TUNE_H

#include "tools/common.h"

/* THE list of commands, in the order of the help. */
/* clang-format off */
#define TUNE_COMMANDS(X)                                                       \
  X(run) X(survey) X(compile) X(show) X(explain) X(variants) X(info) X(stat)   \
  X(export) X(import) X(merge) X(publish) X(sign) X(verify) X(prune) X(diff)   \
  X(doctor) X(pin) X(ban)
/* clang-format on */

#define TUNE_DECLARED(name) extern const tool_command tune_##name;
TUNE_COMMANDS(TUNE_DECLARED)
#undef TUNE_DECLARED

#endif
