"""The structs and numbers of include/dfgnn.h.

Every descriptor begins with its own size, so a library newer than this file
fills in what the file does not know.  tests/test_abi.py compares each offset
with what the C compiler makes of the header.
"""

import ctypes
from ctypes import (
    CFUNCTYPE, POINTER, c_char, c_char_p, c_double, c_int, c_int64,
    c_size_t, c_uint32, c_uint64, c_void_p)

OPS = {
    name: number for number, name in enumerate((
        "gt", "agnn", "gat", "gatv2", "spmm-sum", "spmm-mean",
        "spmm-weighted", "reduce-min", "reduce-max", "reduce-mean",
        "reduce-var", "reduce-std", "reduce-pna"))
}
PASSES = {"forward": 0, "backward": 1}
DTYPES = {"f32": 0, "f16": 1, "bf16": 2, "f64": 3}
MATH_F32, MATH_TF32 = 0, 1
INDEX_I32, INDEX_I64 = 0, 1
EDGE_PROJECTED = -1
SCALE_DEFAULT = float("-inf")
EDGE_USES = {"both": 0, "keys": 1, "values": 2}
MESSAGES = {"copy": 0, "relu": 1, "gate": 2, "gate-value": 3}
EFFORTS = {"default": 0, "stored": 1, "estimate": 2, "measure": 3, "paper": 4,
           "race": 5}
SOURCES = ("exact", "similar", "nearest", "rule", "paper", "pinned", "forced",
           "model")
ACTIVATIONS = {None: 0, "relu": 1, "silu": 2, "gelu": 3, "gelu_tanh": 4,
               "elu": 5, "leaky_relu": 6, "tanh": 7, "sigmoid": 8,
               "softplus": 9}
NORMS = {None: 0, "layer": 1, "rms": 2}
REDUCTIONS = {None: 0, "sum": 1, "mean": 2, "max": 3, "min": 4}
PARTITIONINGS = {"metis": 0, "range": 1}
LOG_LEVELS = {"none": 1, "error": 2, "warn": 3, "info": 4, "debug": 5}

OK = 0
ERROR_INVALID = -1
ERROR_MEMORY = -2
ERROR_UNSUPPORTED = -3
ERROR_INTERRUPTED = -10


class Descriptor(ctypes.Structure):
    """A struct that is zero but for its size, as DFGNN_INIT makes it."""

    def __init__(self, **fields):
        super().__init__(struct_size=ctypes.sizeof(type(self)), **fields)


class Options(Descriptor):
    _fields_ = [
        ("struct_size", c_size_t),
        ("device", c_char_p),
        ("store", c_char_p),
        ("effort", c_int),
        ("threads", c_int),
        ("paper_capacity", c_int64),
        ("log_level", c_int),
        ("log", c_void_p),
        ("log_data", c_void_p),
    ]


class DeviceInfo(Descriptor):
    _fields_ = [
        ("struct_size", c_size_t),
        ("backend", c_char * 16),
        ("arch", c_char * 32),
        ("model", c_char * 128),
        ("ordinal", c_int),
        ("units", c_int),
        ("cache_bytes", c_int64),
        ("memory_bytes", c_int64),
        ("shared_bytes", c_int64),
        ("driver", c_char * 32),
        ("runtime", c_char * 32),
    ]


class Csr(Descriptor):
    _fields_ = [
        ("struct_size", c_size_t),
        ("destinations", c_int64),
        ("sources", c_int64),
        ("edges", c_int64),
        ("offsets", c_void_p),
        ("indices", c_void_p),
        ("offset_type", c_int),
        ("index_type", c_int),
        ("on_device", c_int),
        ("graphs", c_int64),
        ("graph_ptr", c_void_p),
        ("family", c_char_p),
        ("name", c_char_p),
        ("trusted", c_int),
        ("stream", c_void_p),
        ("column_offsets", c_void_p),
        ("column_rows", c_void_p),
        ("column_edges", c_void_p),
        ("refilled", c_int),
    ]


class Coo(Descriptor):
    _fields_ = [
        ("struct_size", c_size_t),
        ("destinations", c_int64),
        ("sources", c_int64),
        ("edges", c_int64),
        ("destination", c_void_p),
        ("source", c_void_p),
        ("index_type", c_int),
        ("on_device", c_int),
        ("graphs", c_int64),
        ("graph_ptr", c_void_p),
        ("family", c_char_p),
        ("name", c_char_p),
        ("sorted", c_int),
        ("trusted", c_int),
        ("self_loops", c_int),
    ]


class Problem(Descriptor):
    _fields_ = [
        ("struct_size", c_size_t),
        ("op", c_int),
        ("pass_", c_int),
        ("dtype", c_int),
        ("math", c_int),
        ("layout", c_int),
        ("effort", c_int),
        ("heads", c_int64),
        ("dim", c_int64),
        ("deterministic", c_int),
        ("weights", c_int),
        ("cold", c_int),
        ("max_workspace", c_int64),
        ("bias", c_int),
        ("dropout", c_int),
        ("edge_dim", c_int64),
        ("edge_use", c_int),
        ("reserved", c_int),
        ("message", c_int),
        ("accumulate", c_int),
        ("edge_list", c_int),
        ("unused", c_int),
        ("program", c_void_p),
    ]


class Strides(ctypes.Structure):
    _fields_ = [("node", c_int64), ("head", c_int64), ("feature", c_int64)]


class Args(Descriptor):
    _fields_ = [
        ("struct_size", c_size_t),
        ("query", c_void_p),
        ("key", c_void_p),
        ("value", c_void_p),
        ("score_dst", c_void_p),
        ("score_src", c_void_p),
        ("att", c_void_p),
        ("beta", c_void_p),
        ("out", c_void_p),
        ("lse", c_void_p),
        ("weights", c_void_p),
        ("scale", c_double),
        ("slope", c_double),
        ("query_strides", Strides),
        ("key_strides", Strides),
        ("value_strides", Strides),
        ("out_strides", Strides),
        ("bias", c_void_p),
        ("dropout", c_double),
        ("seed", c_void_p),
        ("seed_value", c_uint64),
        ("edge_weight", c_void_p),
        ("scale_dst", c_void_p),
        ("scale_src", c_void_p),
        ("out_min", c_void_p),
        ("out_max", c_void_p),
        ("out_std", c_void_p),
        ("arg_min", c_void_p),
        ("arg_max", c_void_p),
        ("grad_out", c_void_p),
        ("grad_out_min", c_void_p),
        ("grad_out_max", c_void_p),
        ("grad_out_std", c_void_p),
        ("grad_query", c_void_p),
        ("grad_key", c_void_p),
        ("grad_value", c_void_p),
        ("grad_score_dst", c_void_p),
        ("grad_score_src", c_void_p),
        ("grad_att", c_void_p),
        ("grad_beta", c_void_p),
        ("grad_bias", c_void_p),
        ("grad_edge_weight", c_void_p),
        ("grad_out_strides", Strides),
        ("grad_query_strides", Strides),
        ("grad_key_strides", Strides),
        ("grad_value_strides", Strides),
        ("edge_attr", c_void_p),
        ("edge_bias", c_void_p),
        ("score_edge", c_void_p),
        ("reserved_norm", c_void_p * 3),
        ("gate_dst", c_void_p),
        ("gate_src", c_void_p),
        ("grad_edge_attr", c_void_p),
        ("grad_edge_bias", c_void_p),
        ("grad_score_edge", c_void_p),
        ("reserved_grad_norm", c_void_p * 2),
        ("grad_gate_dst", c_void_p),
        ("grad_gate_src", c_void_p),
        ("gate_dst_strides", Strides),
        ("gate_src_strides", Strides),
        ("grad_gate_dst_strides", Strides),
        ("grad_gate_src_strides", Strides),
        ("grad_lse", c_void_p),
        ("edge_number", c_void_p),
        ("old_scale", c_int),
        ("unused", c_int),
        ("program_inputs", c_void_p),
        ("program_outputs", c_void_p),
        ("program_input_count", c_int),
        ("program_output_count", c_int),
    ]


class Candidate(ctypes.Structure):
    _fields_ = [("variant", c_char_p), ("reason", c_char_p),
                ("measured", c_double), ("predicted", c_double)]


class Explanation(ctypes.Structure):
    _fields_ = [
        ("variant", c_char_p),
        ("source", c_int),
        ("distance", c_double),
        ("because", c_char_p),
        ("count", c_size_t),
        ("candidates", POINTER(Candidate)),
        ("model", c_char_p),
    ]


class Signature(Descriptor):
    _fields_ = [
        ("struct_size", c_size_t),
        ("destinations", c_int64),
        ("sources", c_int64),
        ("edges", c_int64),
        ("max_degree", c_int64),
        ("mean_degree", c_double),
        ("p50_degree", c_int64),
        ("p90_degree", c_int64),
        ("p99_degree", c_int64),
        ("degree_cv", c_double),
        ("isolated", c_double),
        ("histogram", c_double * 24),
        ("reuse", c_double),
        ("locality", c_double),
        ("graphs", c_int64),
        ("largest_graph", c_int64),
        ("density", c_double),
        ("fingerprint", c_uint64),
        ("max_source_degree", c_int64),
        ("p50_source_degree", c_int64),
        ("p99_source_degree", c_int64),
        ("source_cv", c_double),
        ("isolated_sources", c_double),
    ]


PROGRESS = CFUNCTYPE(None, c_void_p, c_double, c_char_p)
STOP = CFUNCTYPE(c_int, c_void_p)


class Part(Descriptor):
    _fields_ = [
        ("struct_size", c_size_t),
        ("parts", c_int),
        ("rank", c_int),
        ("total_nodes", c_int64),
        ("total_edges", c_int64),
        ("nodes", c_int64),
        ("halo", c_int64),
        ("edges", c_int64),
        ("cut", c_int64),
        ("boundary", c_int64),
        ("sends", c_int64),
        ("node", c_void_p),
        ("halo_node", c_void_p),
        ("receive", c_void_p),
        ("send", c_void_p),
        ("send_row", c_void_p),
        ("first_edge", c_void_p),
        ("offset", c_void_p),
        ("index", c_void_p),
        ("fingerprint", c_uint64),
        ("digest", c_uint64),
    ]


class TuneOptions(Descriptor):
    _fields_ = [
        ("struct_size", c_size_t),
        ("budget_s", c_double),
        ("seed", c_uint64),
        ("margin", c_double),
        ("exhaustive", c_int),
        ("remeasure", c_int),
        ("tool", c_char_p),
        ("job_hash", c_char_p),
        ("variants", POINTER(c_char_p)),
        ("progress", PROGRESS),
        ("stop", STOP),
        ("data", c_void_p),
    ]


class ReportOptions(Descriptor):
    _fields_ = [
        ("struct_size", c_size_t),
        ("store", c_char_p),
        ("against", c_char_p),
        ("graphs", POINTER(c_char_p)),
        ("title", c_char_p),
        ("command", c_char_p),
        ("commit", c_char_p),
        ("copy_gbps", c_double),
        ("all", c_int),
    ]


class TuneReport(Descriptor):
    _fields_ = [
        ("struct_size", c_size_t),
        ("variant", c_char * 160),
        ("anchor", c_char * 160),
        ("median_ms", c_double),
        ("ratio", c_double),
        ("candidates", c_int),
        ("measured", c_int),
        ("wrong", c_int),
        ("failed", c_int),
        ("resumed", c_int),
        ("separated", c_int),
        ("kept", c_int),
        ("seconds", c_double),
        ("payback_calls", c_double),
    ]


class VariantInfo(Descriptor):
    _fields_ = [
        ("struct_size", c_size_t),
        ("name", c_char_p),
        ("algorithm", c_char_p),
        ("backend", c_char_p),
        ("parameters", c_char_p),
        ("ops", c_uint32),
        ("passes", c_uint32),
        ("revision", c_int),
        ("deterministic", c_int),
    ]


class EdgeValue(Descriptor):
    _fields_ = [
        ("struct_size", c_size_t),
        ("name", c_char * 64),
        ("place", c_int),
        ("rank", c_int),
        ("axes", c_int64 * 3),
        ("role", c_int),
        ("of", c_int),
        ("kept", c_int),
        ("argument", c_char * 64),
    ]


class EdgeOperator(Descriptor):
    _fields_ = [
        ("struct_size", c_size_t),
        ("found", c_int),
        ("op", c_int),
        ("pass_", c_int),
        ("message", c_int),
        ("edge_use", c_int),
        ("heads", c_int64),
        ("dim", c_int64),
        ("edge_dim", c_int64),
        ("scale", c_double),
        ("slope", c_double),
        ("dropout", c_double),
    ]


class EdgeTensor(ctypes.Structure):
    _fields_ = [
        ("name", c_char_p),
        ("data", c_void_p),
        ("dtype", c_int),
        ("rank", c_int),
        ("axes", c_int64 * 3),
    ]


class EdgeMlp(Descriptor):
    _fields_ = [
        ("struct_size", c_size_t),
        ("dtype", c_int),
        ("math", c_int),
        ("layers", c_int),
        ("edge_dim", c_int64),
        ("width", c_int64 * 4),
        ("activation", c_int),
        ("last", c_int),
        ("slope", c_double),
        ("gate", c_int),
        ("norm", c_int),
        ("epsilon", c_double),
        ("residual", c_int),
        ("reduce_dst", c_int),
        ("reduce_src", c_int),
        ("edge_list", c_int),
        ("reserved", c_int),
    ]


class EdgeMlpArgs(Descriptor):
    _fields_ = [
        ("struct_size", c_size_t),
        ("edge", c_void_p),
        ("dst_part", c_void_p),
        ("src_part", c_void_p),
        ("weight", c_void_p * 4),
        ("bias", c_void_p * 4),
        ("norm_weight", c_void_p),
        ("norm_bias", c_void_p),
        ("dst_factor", c_void_p),
        ("src_factor", c_void_p),
        ("edge_out", c_void_p),
        ("out_dst", c_void_p),
        ("out_src", c_void_p),
        ("arg_dst", c_void_p),
        ("arg_src", c_void_p),
        ("grad_edge_out", c_void_p),
        ("grad_out_dst", c_void_p),
        ("grad_out_src", c_void_p),
        ("grad_edge", c_void_p),
        ("grad_dst_part", c_void_p),
        ("grad_src_part", c_void_p),
        ("grad_weight", c_void_p * 4),
        ("grad_bias", c_void_p * 4),
        ("grad_norm_weight", c_void_p),
        ("grad_norm_bias", c_void_p),
        ("grad_dst_factor", c_void_p),
        ("grad_src_factor", c_void_p),
    ]


# The functions by name: (type of the result, types of the arguments).  Callers
# pass a Status to _library.check().
Status = c_int
FUNCTIONS = {
    "dfgnn_version": (c_char_p, []),
    "dfgnn_last_error": (c_char_p, []),
    "dfgnn_status_string": (c_char_p, [c_int]),
    "dfgnn_context_create": (Status, [POINTER(c_void_p), POINTER(Options)]),
    "dfgnn_context_destroy": (None, [c_void_p]),
    "dfgnn_context_reload": (Status, [c_void_p]),
    "dfgnn_context_device": (Status, [POINTER(DeviceInfo), c_void_p]),
    "dfgnn_edge_program_create": (Status, [POINTER(c_void_p), c_char_p]),
    "dfgnn_edge_program_destroy": (None, [c_void_p]),
    "dfgnn_edge_program_text": (c_char_p, [c_void_p]),
    "dfgnn_edge_program_hash": (c_uint64, [c_void_p]),
    "dfgnn_edge_program_walks": (Status, [POINTER(c_int), POINTER(c_int),
                                          c_void_p]),
    "dfgnn_edge_program_problem": (Status, [POINTER(Problem), c_void_p,
                                            c_int]),
    "dfgnn_edge_program_operator": (Status, [POINTER(EdgeOperator),
                                             c_void_p]),
    "dfgnn_edge_program_input_count": (c_int, [c_void_p]),
    "dfgnn_edge_program_output_count": (c_int, [c_void_p]),
    "dfgnn_edge_program_input": (Status, [POINTER(EdgeValue), c_void_p,
                                          c_int]),
    "dfgnn_edge_program_output": (Status, [POINTER(EdgeValue), c_void_p,
                                           c_int]),
    "dfgnn_edge_program_gradient": (Status, [POINTER(c_void_p), c_void_p,
                                             c_char_p, c_char_p]),
    "dfgnn_edge_program_keep": (Status, [POINTER(c_void_p), c_void_p,
                                         c_char_p, c_char_p]),
    "dfgnn_edge_program_execute": (Status, [
        c_void_p, c_void_p, POINTER(EdgeTensor), c_int, POINTER(EdgeTensor),
        c_int, c_uint64, c_void_p]),
    "dfgnn_edge_program_execute_in": (Status, [
        c_void_p, c_void_p, POINTER(EdgeTensor), c_int, POINTER(EdgeTensor),
        c_int, c_uint64, c_void_p, c_void_p]),
    "dfgnn_edge_program_workspace": (Status, [
        POINTER(c_size_t), c_void_p, c_void_p, POINTER(EdgeTensor), c_int,
        POINTER(EdgeTensor), c_int]),
    "dfgnn_edge_mlp_execute_in": (Status, [
        POINTER(EdgeMlp), c_void_p, POINTER(EdgeMlpArgs), c_int, c_void_p,
        c_void_p]),
    "dfgnn_edge_mlp_workspace": (Status, [
        POINTER(c_size_t), POINTER(EdgeMlp), c_void_p, POINTER(EdgeMlpArgs),
        c_int]),
    "dfgnn_edge_mlp_serves": (Status, [POINTER(EdgeMlp), c_void_p,
                                       POINTER(EdgeMlpArgs), c_int]),
    "dfgnn_edge_mlp_check": (Status, [
        POINTER(c_double), POINTER(c_char_p), POINTER(EdgeMlp), c_void_p,
        POINTER(EdgeMlpArgs), c_int]),
    "dfgnn_graph_create_csr": (Status, [POINTER(c_void_p), c_void_p,
                                        POINTER(Csr), c_void_p]),
    "dfgnn_graph_create_coo": (Status, [POINTER(c_void_p), c_void_p,
                                        POINTER(Coo), c_void_p]),
    "dfgnn_graph_edge_order": (c_void_p, [c_void_p, POINTER(c_int)]),
    "dfgnn_graph_csr": (Status, [POINTER(Csr), c_void_p]),
    "dfgnn_graph_destroy": (None, [c_void_p]),
    "dfgnn_graph_signature": (Status, [POINTER(Signature), c_void_p]),
    "dfgnn_graph_bytes": (c_size_t, [c_void_p]),
    "dfgnn_plan_create": (Status, [POINTER(c_void_p), c_void_p, c_void_p,
                                   POINTER(Problem)]),
    "dfgnn_plan_destroy": (None, [c_void_p]),
    "dfgnn_plan_workspace": (c_size_t, [c_void_p]),
    "dfgnn_plan_variant": (c_char_p, [c_void_p]),
    "dfgnn_plan_source": (c_int, [c_void_p]),
    "dfgnn_plan_explain": (Status,
                           [POINTER(POINTER(Explanation)), c_void_p]),
    "dfgnn_explanation_free": (None, [POINTER(Explanation)]),
    "dfgnn_execute": (c_int, [c_void_p, c_void_p, c_void_p, c_void_p]),
    "dfgnn_variant_count": (c_size_t, []),
    "dfgnn_variant_get": (Status, [POINTER(VariantInfo), c_size_t]),
    "dfgnn_tune": (Status, [POINTER(TuneReport), c_void_p, c_void_p,
                            POINTER(Problem), POINTER(TuneOptions)]),
    "dfgnn_report": (Status, [c_char_p, POINTER(ReportOptions)]),
    "dfgnn_csr_generate": (Status, [POINTER(POINTER(Csr)), c_char_p]),
    "dfgnn_csr_read": (Status, [POINTER(POINTER(Csr)), c_char_p]),
    "dfgnn_csr_write": (Status, [POINTER(Csr), c_char_p]),
    "dfgnn_csr_free": (None, [POINTER(Csr)]),
    "dfgnn_context_digest": (Status, [c_char_p, c_void_p]),
    "dfgnn_csr_partition": (Status, [c_void_p, POINTER(Csr), c_int, c_int]),
    "dfgnn_part_create": (Status, [POINTER(POINTER(Part)), POINTER(Csr),
                                   c_void_p, c_int, c_int]),
    "dfgnn_part_free": (None, [POINTER(Part)]),
    "dfgnn_part_write": (Status, [POINTER(Part), c_char_p]),
    "dfgnn_xla_cpu": (c_void_p, [c_void_p]),
    "dfgnn_xla_cuda": (c_void_p, [c_void_p]),
}

__all__ = [name for name in dir() if not name.startswith("_")]
