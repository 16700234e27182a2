/* Field numbers of profile.proto (github.com/google/pprof, proto/profile.proto) and the wire types of
 * protocol buffers that it uses (protobuf.dev, "Encoding"). */
#ifndef PROFILE_PPROF_FORMAT_H
#define PROFILE_PPROF_FORMAT_H

enum wire_type { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };

#define WIRE_TAG(field, type) ((uint32_t)(field) << 3 | (uint32_t)(type))
#define WIRE_MAX_VARINT       10 /* bytes */

enum {
        PROFILE_FIELD_SAMPLE_TYPE = 1,
        PROFILE_FIELD_SAMPLE = 2,
        PROFILE_FIELD_MAPPING = 3,
        PROFILE_FIELD_LOCATION = 4,
        PROFILE_FIELD_FUNCTION = 5,
        PROFILE_FIELD_STRING_TABLE = 6,
        PROFILE_FIELD_TIME_NANOS = 9,
        PROFILE_FIELD_DURATION_NANOS = 10,
        PROFILE_FIELD_PERIOD_TYPE = 11,
        PROFILE_FIELD_PERIOD = 12,
        PROFILE_FIELD_COMMENT = 13,
        PROFILE_FIELD_DEFAULT_SAMPLE_TYPE = 14,
};

enum { VALUE_TYPE_FIELD_TYPE = 1, VALUE_TYPE_FIELD_UNIT = 2 };

enum { SAMPLE_FIELD_LOCATION_ID = 1, SAMPLE_FIELD_VALUE = 2, SAMPLE_FIELD_LABEL = 3 };

enum { LABEL_FIELD_KEY = 1, LABEL_FIELD_STR = 2, LABEL_FIELD_NUM = 3, LABEL_FIELD_NUM_UNIT = 4 };

enum {
        MAPPING_FIELD_ID = 1,
        MAPPING_FIELD_START = 2,
        MAPPING_FIELD_LIMIT = 3,
        MAPPING_FIELD_OFFSET = 4,
        MAPPING_FIELD_FILE = 5,
        MAPPING_FIELD_BUILD_ID = 6,
        MAPPING_FIELD_HAS_FUNCTIONS = 7,
        MAPPING_FIELD_HAS_FILENAMES = 8,
        MAPPING_FIELD_HAS_LINES = 9,
        MAPPING_FIELD_HAS_INLINE = 10,
};

enum {
        LOCATION_FIELD_ID = 1,
        LOCATION_FIELD_MAPPING_ID = 2,
        LOCATION_FIELD_ADDRESS = 3,
        LOCATION_FIELD_LINE = 4,
        LOCATION_FIELD_IS_FOLDED = 5,
};

enum { LINE_FIELD_FUNCTION_ID = 1, LINE_FIELD_LINE = 2 };

enum {
        FUNCTION_FIELD_ID = 1,
        FUNCTION_FIELD_NAME = 2,
        FUNCTION_FIELD_SYSTEM_NAME = 3,
        FUNCTION_FIELD_FILE = 4,
        FUNCTION_FIELD_START_LINE = 5,
};

#endif
