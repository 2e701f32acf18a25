/* option_values.h - how the text of an option becomes a value of tool_settings:
 * the functions that rows of the option table name */
#ifndef DFGNN_TOOLS_OPTION_VALUES_H
#define DFGNN_TOOLS_OPTION_VALUES_H

#include "tools/common.h"

/* Each parses the text into the option's field.  On failure the message says
 * what was found and what was expected. */
tool_set_function option_flag;  /* the field becomes option->flag */
tool_set_function option_text;  /* kept as it is */
tool_set_function option_store; /* a file */
tool_set_function option_int;   /* from option->least to option->most */
tool_set_function option_seed, option_effort;
tool_set_function option_seconds; /* 500ms, 10s, 2m, 1h */
tool_set_function option_since;   /* a date, or 12h or 30d ago */
tool_set_function option_shard;   /* I/N */
tool_set_function option_again;   /* noisy, all */
tool_set_function option_device;  /* names of devices, with commas */
tool_set_function option_orders;  /* names of orders, as bits */
tool_set_function option_list;    /* items with commas, by option->item */

/* Each parses an item of a list into a slot of the field's type. */
tool_item_function option_enumeration, option_size, option_edge_dim,
    option_op; /* an operator, or a program that has a name */

#endif
