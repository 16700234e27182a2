/* A profile as OpenTelemetry's protocol carries it: the message ExportProfilesServiceRequest of
 * opentelemetry/proto/collector/profiles/v1development/profiles_service.proto, as in
 * opentelemetry-proto 1.10.0 (the profiles' messages are the same in 1.11.0; those of 1.9.0 and before
 * number the fields of a sample otherwise). */
#ifndef PROFILE_OTLP_H
#define PROFILE_OTLP_H

#include <stdint.h>

#include "base/buf.h"
#include "profile/profile.h"

#define OTLP_PATH    "/v1development/profiles"
#define OTLP_VERSION "1.10.0" /* of opentelemetry-proto */

struct otlp_source {
        const char *host;    /* the resource's host.name */
        const char *version; /* of profd */
        const char *id;      /* the same whenever this profile is sent again: receivers know it by that */
};

/* Appends a request with the samples [first, first + n) and with the parts of the tables that these need.
 * There is a resource for each container and one for the rest, and in it a profile for each sample type, the
 * default one first. Labels become attributes by OpenTelemetry's names where it has one. Samples of the
 * value 0 are left out. 0 or -errno. */
int otlp_encode(const struct profile *p, const struct otlp_source *source, uint32_t first, uint32_t n,
                struct buf *out);

/* What a receiver answers (ExportProfilesServiceResponse): how many profiles it took none of, and why
 * (`message` holds `size` bytes and is cut there; "" when it says nothing). 0 or -EBADMSG. */
int otlp_answer(const void *data, size_t n, int64_t *ret_rejected, char *message, size_t size);

#endif
