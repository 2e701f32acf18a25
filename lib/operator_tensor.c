/* operator_tensor.c - the tables of tensors for other languages */
#include "kernels/mlp/tensors.h"
#include "lib/base/descriptor.h"
#include "lib/base/error.h"
#include "lib/operator.h"

static void name_shape(char shape[8], uint32_t dims) {
  static const char letters[] = "NMEHDF"; /* by the bits of DFGNN_DIM_... */
  for (int bit = 0; letters[bit]; bit++)
    if (dims & (1u << bit))
      *shape++ = letters[bit];
}

static void tell(dfgnn_tensor_info *info, const dfgnn_operator *operator,
                 int i) {
  const dfgnn_tensor *tensor = operator->tensors;
  while (tensor->name && i--)
    tensor++;
  if (!tensor->name)
    return;
  info->name = tensor->name;
  name_shape(info->shape, tensor->shape);
  info->role = tensor->role;
  info->element = tensor->element;
  info->flag = tensor->flag;
  info->strided = tensor->strides != 0;
  info->offset = tensor->offset;
}

/* ---- MLPs ---------------------------------------------------------------- */

/* DFGNN_ROLE_COUNT: the pass has no such tensor. */
static dfgnn_role mlp_role(const dfgnn_mlp_tensor *tensor, dfgnn_pass pass) {
  const int backward = pass == DFGNN_PASS_BACKWARD;
  switch (tensor->use) {
  case DFGNN_MLP_INPUT:
    return tensor->columns == DFGNN_MLP_COLUMNS_WEIGHT ? DFGNN_ROLE_INPUT
                                                       : DFGNN_ROLE_MODIFIER;
  case DFGNN_MLP_OUTPUT:
    return backward ? DFGNN_ROLE_COUNT : DFGNN_ROLE_OPTIONAL;
  case DFGNN_MLP_SAVED:
    return backward ? DFGNN_ROLE_SAVED : DFGNN_ROLE_OPTIONAL;
  case DFGNN_MLP_COTANGENT:
    return backward ? DFGNN_ROLE_MODIFIER : DFGNN_ROLE_COUNT;
  default:
    return backward ? DFGNN_ROLE_GRADIENT : DFGNN_ROLE_COUNT;
  }
}

static void name_mlp_shape(char shape[8], const dfgnn_mlp_tensor *tensor) {
  static const char rows[] = {[DFGNN_MLP_ROWS_DST] = 'N',
                              [DFGNN_MLP_ROWS_SRC] = 'M',
                              [DFGNN_MLP_ROWS_EDGE] = 'E'};
  static const char *const columns[] = {
      [DFGNN_MLP_COLUMNS_ONE] = "",      [DFGNN_MLP_COLUMNS_EDGE] = "F",
      [DFGNN_MLP_COLUMNS_FIRST] = "A",   [DFGNN_MLP_COLUMNS_OUT] = "C",
      [DFGNN_MLP_COLUMNS_WEIGHT] = "OI", [DFGNN_MLP_COLUMNS_BIAS] = "O",
      [DFGNN_MLP_COLUMNS_KEPT] = "K"};
  if (tensor->rows != DFGNN_MLP_ROWS_ONE)
    *shape++ = rows[tensor->rows];
  for (const char *letter = columns[tensor->columns]; *letter; letter++)
    *shape++ = *letter;
}

static void tell_mlp(dfgnn_tensor_info *info, dfgnn_pass pass, int i) {
  static const dfgnn_element elements[] = {
      [DFGNN_MLP_STORAGE] = DFGNN_ELEMENT_STORAGE,
      [DFGNN_MLP_REAL] = DFGNN_ELEMENT_SCALAR,
      [DFGNN_MLP_INDEX] = DFGNN_ELEMENT_INDEX};
  const dfgnn_mlp_tensor *tensor = dfgnn__mlp_tensors;
  for (; tensor->name; tensor++)
    if (mlp_role(tensor, pass) != DFGNN_ROLE_COUNT && !i--)
      break;
  if (!tensor->name)
    return;
  info->name = tensor->name;
  name_mlp_shape(info->shape, tensor);
  info->role = mlp_role(tensor, pass);
  info->element = elements[tensor->element];
  info->layer = tensor->layer;
  info->offset = tensor->offset;
}

dfgnn_status dfgnn_operator_tensor(dfgnn_tensor_info *info, dfgnn_op op,
                                   dfgnn_pass pass, int i) {
  static const dfgnn_descriptor_kind kind =
      DFGNN_DESCRIPTOR("info", dfgnn_tensor_info, "DFGNN_TENSOR_INFO_INIT");
  const dfgnn_operator *found = dfgnn__operator(op, pass);
  dfgnn_tensor_info whole = {0};
  dfgnn_status status = dfgnn__can_give(info, &kind);
  if (status)
    return status;
  const char *name = dfgnn_name(DFGNN_NAMES_OP, op);
  const char *pass_name = dfgnn_name(DFGNN_NAMES_PASS, pass);
  if (!found && name && pass_name)
    return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED, "operator %s has no %s pass",
                       name, pass_name);
  if (!found)
    return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED,
                       "found operator %d and pass %d, expected those of "
                       "dfgnn_types.h",
                       (int)op, (int)pass);
  if (i < 0)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "tensor %d of %s, expected a number from 0", i,
                       found->name);
  if (op == DFGNN_OP_MLP)
    tell_mlp(&whole, pass, i);
  else
    tell(&whole, found, i);
  dfgnn__give(info, &whole, &kind);
  return DFGNN_OK;
}
