/* Makes the text of a test known to the kernel half, as the tracker would. */
#ifndef TESTS_BPF_OWN_TEXT_H
#define TESTS_BPF_OWN_TEXT_H

#include <stdbool.h>

#include "daemon/sampler.h"

#define OWN_TEXT_OBJECT 3 /* frames of this program; its addresses are those at run time */

/* As code that keeps frame pointers, or with a table that says the same of every instruction. 0 or -errno.
 */
int own_text_map(struct sampler *sampler, uint64_t stamp, bool table);

#endif
