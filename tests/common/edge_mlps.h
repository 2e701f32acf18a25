/* edge_mlps.h - MLPs on edges that have CUDA kernels, which tests run or
 * compile */
#ifndef DFGNN_TESTS_EDGE_MLPS_H
#define DFGNN_TESTS_EDGE_MLPS_H

#include "dfgnn_mlp.h"

static const dfgnn_edge_mlp edge_mlps[] = {
    {sizeof(dfgnn_edge_mlp), .dtype = DFGNN_BF16, .layers = 3, .edge_dim = 64,
     .width = {64, 96, 64}, .activation = DFGNN_ACTIVATION_SILU,
     .norm = DFGNN_NORM_LAYER, .epsilon = 1e-5, .residual = 1,
     .reduce_dst = DFGNN_REDUCE_SUM, .edge_list = 1},
    {sizeof(dfgnn_edge_mlp), .dtype = DFGNN_F16, .layers = 2, .edge_dim = 32,
     .width = {64, 32}, .activation = DFGNN_ACTIVATION_GELU,
     .norm = DFGNN_NORM_RMS, .epsilon = 1e-3, .reduce_dst = DFGNN_REDUCE_MEAN},
    {sizeof(dfgnn_edge_mlp), .dtype = DFGNN_BF16, .layers = 4, .edge_dim = 32,
     .width = {32, 64, 32, 32}, .activation = DFGNN_ACTIVATION_GELU_TANH,
     .residual = 1, .reduce_dst = DFGNN_REDUCE_MEAN},
    {sizeof(dfgnn_edge_mlp), .dtype = DFGNN_F16, .layers = 3, .edge_dim = 128,
     .width = {128, 128, 128}, .activation = DFGNN_ACTIVATION_RELU,
     .norm = DFGNN_NORM_LAYER, .epsilon = 1e-5, .residual = 1,
     .reduce_dst = DFGNN_REDUCE_SUM},
    {sizeof(dfgnn_edge_mlp), .dtype = DFGNN_F16, .layers = 3, .edge_dim = 64,
     .width = {128, 96, 96}, .activation = DFGNN_ACTIVATION_RELU,
     .reduce_dst = DFGNN_REDUCE_MEAN},
    {sizeof(dfgnn_edge_mlp), .dtype = DFGNN_F16, .layers = 2, .edge_dim = 96,
     .width = {128, 64}, .activation = DFGNN_ACTIVATION_SILU,
     .norm = DFGNN_NORM_RMS, .epsilon = 1e-5},
};

enum { EDGE_MLPS = sizeof edge_mlps / sizeof *edge_mlps };

#endif
