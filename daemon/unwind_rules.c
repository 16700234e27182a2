#include "daemon/unwind_rules.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/idtable.h"
#include "bpf/abi.h"

struct unwind_rules {
        struct unwind_rule *rule;
        uint32_t n;
        struct idtable index;
};

static uint64_t rule_bits(const struct unwind_rule *rule)
{
        uint64_t bits;

        memcpy(&bits, rule, sizeof(bits));
        return bits;
}

static bool rule_equal(const void *ctx, uint32_t id, const void *key)
{
        const struct unwind_rules *r = ctx;

        return rule_bits(&r->rule[id]) == rule_bits(key);
}

static uint64_t rule_hash(const void *ctx, uint32_t id)
{
        const struct unwind_rules *r = ctx;

        return hash_u64(rule_bits(&r->rule[id]), 0);
}

int unwind_rules_new(struct unwind_rules **ret, struct unwind_rule *rule)
{
        struct unwind_rules *r = calloc(1, sizeof(*r));

        if (!r)
                return -ENOMEM;
        r->rule = rule;
        r->n = UNWIND_RULE_FIRST;
        for (uint8_t i = 0; i < UNWIND_RULE_FIRST; i++)
                r->rule[i] = (struct unwind_rule){.kind_fp = i};
        *ret = r;
        return 0;
}

struct unwind_rules *unwind_rules_free(struct unwind_rules *r)
{
        if (r) {
                idtable_free(&r->index);
                free(r);
        }
        return NULL;
}

uint16_t unwind_rules_id(struct unwind_rules *r, const struct unwind_rule *rule, uint32_t *budget)
{
        uint64_t hash = hash_u64(rule_bits(rule), 0);
        uint32_t id = idtable_find(&r->index, hash, rule_equal, r, rule);

        if (id != IDTABLE_NONE)
                return (uint16_t)id;
        if (r->n == ABI_MAX_RULES || *budget == 0)
                return UNWIND_UNSUPPORTED;
        r->rule[r->n] = *rule;
        if (idtable_add(&r->index, hash, r->n, rule_hash, r) < 0)
                return UNWIND_UNSUPPORTED;
        (*budget)--;
        return (uint16_t)r->n++;
}

const struct unwind_rule *unwind_rules_get(const struct unwind_rules *r, uint16_t id)
{
        return &r->rule[id];
}

uint32_t unwind_rules_n(const struct unwind_rules *r)
{
        return r->n;
}
