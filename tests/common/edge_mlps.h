/* edge_mlps.h - MLPs on edges of many shapes, which tests run or compile */
#ifndef DFGNN_TESTS_EDGE_MLPS_H
#define DFGNN_TESTS_EDGE_MLPS_H

#include "dfgnn_mlp.h"

/* The CUDA kernels serve all of them. */
static const dfgnn_edge_mlp edge_mlps[] = {
    {sizeof(dfgnn_edge_mlp), .dtype = DFGNN_BF16, .layers = 3, .edge_dim = 64,
     .width = {64, 64, 64}, .activation = DFGNN_ACTIVATION_SILU,
     .norm = DFGNN_NORM_LAYER, .epsilon = 1e-5, .residual = 1,
     .reduce_dst = DFGNN_REDUCE_SUM, .edge_list = 1},
    {sizeof(dfgnn_edge_mlp), .dtype = DFGNN_F16, .layers = 2, .edge_dim = 17,
     .width = {33, 15}, .activation = DFGNN_ACTIVATION_GELU,
     .norm = DFGNN_NORM_RMS, .epsilon = 1e-5, .reduce_dst = DFGNN_REDUCE_MEAN,
     .reduce_src = DFGNN_REDUCE_MEAN},
    {sizeof(dfgnn_edge_mlp), .dtype = DFGNN_F32, .layers = 2, .edge_dim = 24,
     .width = {48, 24}, .activation = DFGNN_ACTIVATION_RELU,
     .norm = DFGNN_NORM_LAYER, .epsilon = 1e-3, .residual = 1,
     .reduce_dst = DFGNN_REDUCE_SUM, .reduce_src = DFGNN_REDUCE_SUM,
     .edge_list = 1},
    {sizeof(dfgnn_edge_mlp), .dtype = DFGNN_F32, .math = DFGNN_MATH_TF32,
     .layers = 2, .edge_dim = 32, .width = {48, 32},
     .activation = DFGNN_ACTIVATION_ELU, .slope = 1,
     .last = DFGNN_ACTIVATION_SOFTPLUS, .reduce_dst = DFGNN_REDUCE_SUM},
    {sizeof(dfgnn_edge_mlp), .dtype = DFGNN_F32, .layers = 1, .width = {20},
     .last = DFGNN_ACTIVATION_LEAKY_RELU, .slope = .2,
     .reduce_dst = DFGNN_REDUCE_MEAN},
    {sizeof(dfgnn_edge_mlp), .dtype = DFGNN_BF16, .layers = 4, .edge_dim = 32,
     .width = {16, 40, 8, 32}, .activation = DFGNN_ACTIVATION_GELU_TANH,
     .last = DFGNN_ACTIVATION_SIGMOID, .residual = 1},
    {sizeof(dfgnn_edge_mlp), .dtype = DFGNN_F16, .layers = 3, .edge_dim = 128,
     .width = {128, 128, 128}, .activation = DFGNN_ACTIVATION_TANH,
     .norm = DFGNN_NORM_LAYER, .epsilon = 1e-5, .residual = 1,
     .reduce_dst = DFGNN_REDUCE_SUM},
    {sizeof(dfgnn_edge_mlp), .dtype = DFGNN_BF16, .layers = 2, .edge_dim = 8,
     .width = {32, 40}, .activation = DFGNN_ACTIVATION_RELU,
     .reduce_dst = DFGNN_REDUCE_MAX},
    {sizeof(dfgnn_edge_mlp), .dtype = DFGNN_F32, .layers = 2, .width = {32, 19},
     .activation = DFGNN_ACTIVATION_SILU, .norm = DFGNN_NORM_LAYER,
     .epsilon = 1e-5, .reduce_dst = DFGNN_REDUCE_MIN, .edge_list = 1},
    /* from here on weights are streamed */
    {sizeof(dfgnn_edge_mlp), .dtype = DFGNN_BF16, .layers = 2, .edge_dim = 136,
     .width = {264, 136}, .activation = DFGNN_ACTIVATION_SILU,
     .norm = DFGNN_NORM_LAYER, .epsilon = 1e-5, .residual = 1,
     .reduce_dst = DFGNN_REDUCE_SUM, .reduce_src = DFGNN_REDUCE_MEAN,
     .edge_list = 1},
    {sizeof(dfgnn_edge_mlp), .dtype = DFGNN_F32, .layers = 3, .edge_dim = 20,
     .width = {140, 40, 20}, .activation = DFGNN_ACTIVATION_GELU,
     .last = DFGNN_ACTIVATION_SILU, .norm = DFGNN_NORM_RMS, .epsilon = 1e-5,
     .residual = 1, .reduce_dst = DFGNN_REDUCE_MAX,
     .reduce_src = DFGNN_REDUCE_MIN},
    {sizeof(dfgnn_edge_mlp), .dtype = DFGNN_F16, .layers = 2, .edge_dim = 24,
     .width = {40, 48}, .activation = DFGNN_ACTIVATION_RELU,
     .last = DFGNN_ACTIVATION_SOFTPLUS, .gate = 1, .norm = DFGNN_NORM_LAYER,
     .epsilon = 1e-5, .residual = 1, .reduce_dst = DFGNN_REDUCE_MEAN,
     .reduce_src = DFGNN_REDUCE_SUM},
    {sizeof(dfgnn_edge_mlp), .dtype = DFGNN_BF16, .layers = 1, .edge_dim = 17,
     .width = {34}, .last = DFGNN_ACTIVATION_TANH, .gate = 1,
     .reduce_dst = DFGNN_REDUCE_MIN, .reduce_src = DFGNN_REDUCE_MAX,
     .edge_list = 1},
    {sizeof(dfgnn_edge_mlp), .dtype = DFGNN_F32, .math = DFGNN_MATH_TF32,
     .layers = 2, .edge_dim = 40, .width = {136, 1030},
     .activation = DFGNN_ACTIVATION_LEAKY_RELU, .slope = .1,
     .reduce_dst = DFGNN_REDUCE_SUM},
    {sizeof(dfgnn_edge_mlp), .dtype = DFGNN_F32, .layers = 1, .width = {24},
     .norm = DFGNN_NORM_LAYER, .epsilon = 1e-5, .reduce_src = DFGNN_REDUCE_MAX},
};

enum { EDGE_MLPS = sizeof edge_mlps / sizeof *edge_mlps };

#endif
