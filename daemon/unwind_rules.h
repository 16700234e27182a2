/* The one dictionary of unwind rules for all objects: each rule once, numbered as rows refer to it. */
#ifndef DAEMON_UNWIND_RULES_H
#define DAEMON_UNWIND_RULES_H

#include <stdint.h>

#include "symbolizer/unwind_format.h"

struct unwind_rules;

/* `rule`: room for ABI_MAX_RULES, shared with the kernel half. */
int unwind_rules_new(struct unwind_rules **ret, struct unwind_rule *rule);
struct unwind_rules *unwind_rules_free(struct unwind_rules *r);

/* The number of a rule, added when it is new and *budget, which it then lowers, is not 0. UNWIND_UNSUPPORTED
 * when there is no room: a stack ends there, marked. */
uint16_t unwind_rules_id(struct unwind_rules *r, const struct unwind_rule *rule, uint32_t *budget);

const struct unwind_rule *unwind_rules_get(const struct unwind_rules *r, uint16_t id);
uint32_t unwind_rules_n(const struct unwind_rules *r);

#endif
