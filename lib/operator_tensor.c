/* operator_tensor.c - the tables of tensors for other languages */
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

dfgnn_status dfgnn_operator_tensor(dfgnn_tensor_info *info, dfgnn_op op,
                                   dfgnn_pass pass, int i) {
  static const dfgnn_descriptor_kind kind =
      DFGNN_DESCRIPTOR("info", dfgnn_tensor_info, "DFGNN_TENSOR_INFO_INIT");
  const dfgnn_operator *found = dfgnn__operator(op, pass);
  dfgnn_tensor_info whole = {0};
  DFGNN_TRY(dfgnn__can_give(info, &kind));
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
  tell(&whole, found, i);
  dfgnn__give(info, &whole, &kind);
  return DFGNN_OK;
}
