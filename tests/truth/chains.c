#include "tests/truth/chains.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#define MAX_TOKENS 4096

void truth_chains_add(struct truth_chains *c, const char *line)
{
        struct truth_chain *chain = &c->chain[c->n];
        char *copy, *token, *save;

        if ((strncmp(line, "chain ", 6) != 0 && strncmp(line, "other ", 6) != 0) || c->n == TRUTH_MAX_CHAINS)
                return;
        *chain = (struct truth_chain){.other = line[0] == 'o', .token = calloc(MAX_TOKENS, sizeof(char *))};
        copy = strdup(line + 6);
        copy[strcspn(copy, "\n")] = 0;
        for (token = strtok_r(copy, ";", &save); token && chain->n < MAX_TOKENS;
             token = strtok_r(NULL, ";", &save))
                chain->token[chain->n++] = strdup(token);
        free(copy);
        c->n++;
}

void truth_chains_done(struct truth_chains *c)
{
        for (uint32_t i = 0; i < c->n; i++) {
                for (uint32_t k = 0; k < c->chain[i].n; k++)
                        free(c->chain[i].token[k]);
                free(c->chain[i].token);
        }
        c->n = 0;
}

static bool is(const char *token, const char *what)
{
        return strcmp(token, what) == 0;
}

static bool matches(char *const *token, uint32_t n_tokens, const char *const *frame, uint32_t n)
{
        while (n && n_tokens) {
                if (frame[0] && is(frame[0], TRUTH_FOLDED)) {
                        for (; n_tokens; token++, n_tokens--)
                                if (matches(token, n_tokens, frame + 1, n - 1))
                                        return true;
                        return n == 1;
                }
                if (is(token[0], "*")) {
                        for (; n; frame++, n--)
                                if (matches(token + 1, n_tokens - 1, frame, n))
                                        return true;
                        break;
                }
                if (!is(token[0], "?") && (!frame[0] || fnmatch(token[0], frame[0], 0) != 0))
                        return false;
                token++, n_tokens--;
                frame++, n--;
        }
        while (n_tokens && is(token[0], "*"))
                token++, n_tokens--;
        return !n && !n_tokens;
}

enum truth_match truth_chains_match(const struct truth_chains *c, const char *const *frame, uint32_t n)
{
        enum truth_match best = TRUTH_WRONG;

        for (uint32_t i = 0; i < c->n && best != TRUTH_EXACT; i++) {
                const struct truth_chain *chain = &c->chain[i];

                /* The sample may be in any of the chain's functions. */
                for (uint32_t from = 0; n && from < chain->n; from++)
                        if (matches(chain->token + from, chain->n - from, frame, n)) {
                                best = chain->other ? TRUTH_OTHER : TRUTH_EXACT;
                                break;
                        }
        }
        return best;
}
