/* now.h - the headers of today, without names of before */
#ifndef DFGNN_NO_OLD_NAMES
#define DFGNN_NO_OLD_NAMES
#endif
#include "dfgnn.h"
#include "dfgnn_graph.h"
#include "dfgnn_mlp.h"
#include "dfgnn_operator.h"
#include "dfgnn_program.h"
#include "dfgnn_tune.h"
