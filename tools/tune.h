/* tune.h - the commands of dfgnn-tune, one file each */
#ifndef DFGNN_TOOLS_TUNE_H
#define DFGNN_TOOLS_TUNE_H

#include "tools/common.h"

extern const tool_command tune_run, tune_compile, tune_show, tune_explain,
    tune_variants, tune_info, tune_stat, tune_export, tune_import, tune_merge,
    tune_publish, tune_sign, tune_verify, tune_prune, tune_diff, tune_doctor,
    tune_pin, tune_model, tune_report;

#endif
