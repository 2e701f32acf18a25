/* check_registry.c - names of variants, and why one cannot run a problem */
#include "tests/unit/fixture.h"

#include <limits.h>

#include "lib/operator.h"
#include "lib/registry.h"

enum { BYTES = 1000 };

static dfgnn_status no_launch(const dfgnn_launch *launch) {
  (void)launch;
  return DFGNN_ERROR_UNSUPPORTED;
}

static size_t thousand(const dfgnn_setting *setting) {
  (void)setting;
  return BYTES;
}

static const char *even_widths(const dfgnn_setting *setting) {
  return setting->problem->dim % 2 ? "needs an even width" : NULL;
}

/* "able" does all that there is, "bare" plain GT, "edged" GT with edge
 * features. */
static const dfgnn_family fakes[] = {
    FAKE_FAMILY(
        "cpu.attention.fwd.able", "able",
        .passes =
            DFGNN_BIT(DFGNN_PASS_FORWARD) | DFGNN_BIT(DFGNN_PASS_BACKWARD),
        .dtypes = DFGNN_DTYPES_ALL, .revision = 4, .weights = 1, .bias = 1,
        .dropout = 1, .accumulate = 1, .edge_ops = DFGNN_OPS_ATTENTION,
        .messages = DFGNN_BIT(DFGNN_MESSAGE_GATE), .applicable = even_widths,
        .workspace = thousand, .launch = no_launch),
    FAKE_FAMILY("cpu.attention.fwd.bare", "bare", .ops = DFGNN_BIT(DFGNN_OP_GT),
                .launch = no_launch, .deterministic = 0),
    FAKE_FAMILY("cpu.attention.fwd.edged", "edged",
                .ops = DFGNN_BIT(DFGNN_OP_GT),
                .edge_ops = DFGNN_BIT(DFGNN_OP_GT), .edges_only = 1,
                .launch = no_launch),
    DFGNN_FAMILIES_END};

static dfgnn_problem problem;
static dfgnn_matrix matrix;

static const char *refusal_by(const char *variant, const char *backend) {
  static const dfgnn_signature signature;
  dfgnn_device_info device = {.units = 1};
  snprintf(device.backend, sizeof device.backend, "%s", backend);
  const dfgnn_setting setting = {.problem = &problem,
                                 .matrix = &matrix,
                                 .signature = &signature,
                                 .device = &device};
  const dfgnn_variant *v = dfgnn__variant_find(variant);
  ck_assert_ptr_nonnull(v);
  return dfgnn__variant_refusal(v, &setting);
}

static void set_up(void) { problem = PROBLEM(.dim = 32); }

TEST(every_variant_is_found_by_its_name) {
  size_t count = dfgnn__variant_count();
  ck_assert_uint_gt(count, 100);
  for (size_t i = 0; i < count; i++) {
    const dfgnn_variant *v = dfgnn__variant(i);
    ck_assert_ptr_eq(dfgnn__variant_find(v->name), v); /* so names differ */
    ck_assert_uint_eq(dfgnn__variant_index(v), i);
  }
  ck_assert_ptr_null(dfgnn__variant(count));
  ck_assert_ptr_null(dfgnn__variant_find("cpu.attention.fwd.abl"));
}

TEST(what_a_family_cannot_do_is_refused_with_the_reason) {
  int checked = 0;
  problem.deterministic = 0;
  ck_assert_ptr_null(refusal_by("cpu.attention.fwd.bare", "cpu"));
  ck_assert_ptr_null(refusal_by("cpu.attention.fwd.able", "cpu"));
#define REFUSED(member, value, text)                                           \
  do {                                                                         \
    const dfgnn_problem before = problem;                                      \
    problem.member = value;                                                    \
    const char *reason = refusal_by("cpu.attention.fwd.bare", "cpu");          \
    ck_assert_msg(reason != NULL, #member " is not refused");                  \
    ck_assert_str_eq(reason, text);                                            \
    ck_assert_msg(!refusal_by("cpu.attention.fwd.able", "cpu"),                \
                  #member " is refused by who can do it");                     \
    problem = before;                                                          \
    checked++;                                                                 \
  } while (0)
  REFUSED(op, DFGNN_OP_GAT, "another operator");
  REFUSED(pass, DFGNN_PASS_BACKWARD, "another pass");
  REFUSED(dtype, DFGNN_F16, "does not take this dtype");
  REFUSED(weights, 1, "does not write attention weights");
  REFUSED(bias, 1, "does not take an edge bias");
  REFUSED(dropout, 1, "has no dropout");
  REFUSED(accumulate, 1, "does not add to gradients");
  REFUSED(edge_dim, 8, "does not take edge features");
  REFUSED(edge_dim, DFGNN_EDGE_PROJECTED, "does not take edge features");
  REFUSED(message, DFGNN_MESSAGE_GATE, "does not compute such messages");
  REFUSED(deterministic, 1, "not deterministic");
#undef REFUSED
  ck_assert_int_eq(checked, 11);
  ck_assert_str_eq(refusal_by("cpu.attention.fwd.able", "cuda"),
                   "another backend");
  ck_assert_str_eq(refusal_by("cpu.attention.fwd.edged", "cpu"),
                   "is for edge features alone");
}

TEST(rows_whose_edges_no_arg_can_number_are_refused) {
  static const dfgnn_op ops[] = {DFGNN_OP_REDUCE_MIN, DFGNN_OP_REDUCE_MAX,
                                 DFGNN_OP_REDUCE_PNA, DFGNN_OP_REDUCE_MEAN};
  for (int i = 0; i < 4; i++) {
    problem.op = ops[i];
    for (int longer = 0; longer < 2; longer++) {
      matrix.max_degree = (int64_t)INT32_MAX + longer;
      const char *reason = refusal_by(
          "cpu.reduce.fwd.balanced/simd=portable,prefetch=0,parts=4", "cpu");
      ck_assert_msg(!reason == (!longer || i == 3), "%d: %s", i, reason);
    }
  }
  matrix.max_degree = 0;
}

TEST(a_family_refuses_by_its_own_reasons_last) {
  problem.dim = 33;
  ck_assert_str_eq(refusal_by("cpu.attention.fwd.able", "cpu"),
                   "needs an even width");
}

TEST(a_workspace_as_large_as_its_limit_is_allowed) {
  problem.max_workspace = BYTES;
  ck_assert_ptr_null(refusal_by("cpu.attention.fwd.able", "cpu"));
  problem.max_workspace = BYTES - 1;
  ck_assert_str_eq(refusal_by("cpu.attention.fwd.able", "cpu"),
                   "needs more workspace than max_workspace");
  problem.max_workspace = 0;
  ck_assert_ptr_nonnull(refusal_by("cpu.attention.fwd.able", "cpu"));
}

TEST(what_was_measured_of_a_revision_is_of_use_or_not) {
  const char *able = "cpu.attention.fwd.able";
  ck_assert_int_eq(dfgnn__variant_use(able, 4), DFGNN_USE_CURRENT);
  ck_assert_int_eq(dfgnn__variant_use(able, 3), DFGNN_USE_OLDER);
  ck_assert_int_eq(dfgnn__variant_use(able, 5), DFGNN_USE_NEWER);
  ck_assert_int_eq(dfgnn__variant_use("cpu.gone", 1), DFGNN_USE_UNKNOWN);
  ck_assert_int_eq(dfgnn__variant_use("hip.other", 1), DFGNN_USE_FOREIGN);
}

TEST(elements_beyond_all_memory_have_a_bound) {
  const int64_t most = (int64_t)1 << 40;
  int seen = 0;
  for (int op = 0; op < DFGNN_OP_COUNT; op++)
    for (int pass = 0; pass < DFGNN_PASS_COUNT; pass++) {
      const dfgnn_problem p = {.op = (dfgnn_op)op,
                               .pass = (dfgnn_pass)pass,
                               .heads = 65535,
                               .dim = 65536,
                               .edge_dim = 65536,
                               .message = DFGNN_MESSAGE_GATE_VALUE};
      const dfgnn_operator *o = dfgnn__operator(p.op, p.pass);
      for (const dfgnn_tensor *t = o ? o->tensors : NULL; t && t->name; t++) {
        const int64_t n = dfgnn__tensor_elements(t, &p, most, most, most);
        ck_assert_int_gt(n, 0);
        ck_assert_int_le(n, DFGNN_MOST_ELEMENTS);
        seen += n == DFGNN_MOST_ELEMENTS;
      }
      if (o)
        ck_assert(dfgnn__compulsory_bytes(&p, most, most, most) > 0x1p40);
    }
  ck_assert_int_gt(seen, 20);
  ck_assert_str_eq(dfgnn_status_string((dfgnn_status)INT_MIN),
                   "unknown status");
}

int main(void) {
  dfgnn__registry_add(fakes);
  return run_case(&(test_case){.name = "registry", .setup = set_up});
}
