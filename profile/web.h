/* The flame graph's page, made of profile/web/ when building (embed.py): what comes before its data, and
 * what after. */
#ifndef PROFILE_WEB_H
#define PROFILE_WEB_H

#include <stddef.h>

extern const char web_flamegraph_head[], web_flamegraph_tail[];
extern const size_t web_flamegraph_head_size, web_flamegraph_tail_size;

#endif
