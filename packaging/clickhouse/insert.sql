INSERT INTO profd.pprof
SELECT {host:String}, {window:String}, *
FROM input('`sample_type.type` Array(Int64), `sample.location_id` Array(Array(UInt64)), `sample.value` Array(Array(Int64)),
            `sample.label.key` Array(Array(Int64)), `sample.label.str` Array(Array(Int64)),
            `sample.label.num` Array(Array(Int64)), `mapping.filename` Array(Int64), `mapping.build_id` Array(Int64),
            `location.mapping_id` Array(UInt64), `location.line.function_id` Array(Array(UInt64)),
            `function.name` Array(Int64), string_table Array(String), time_nanos Int64, duration_nanos Int64')
FORMAT ProtobufSingle
