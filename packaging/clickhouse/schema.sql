-- Tables and views for profd's windows in ClickHouse (24.3 or newer). Load with
--   clickhouse-client --multiquery < schema.sql
-- after profile.proto was copied to the server's format_schema_path (/var/lib/clickhouse/format_schemas).
--
-- Windows are the pprof files that profd stores; ClickHouse reads them as they are (ProtobufSingle). profd numbers
-- mappings, functions and locations 1..n in order, so that an id is an index. One file becomes one row of profd.pprof
-- (insert.sql), and from there rows of profd.samples and profd.stacks (load.sql).

CREATE DATABASE IF NOT EXISTS profd;

CREATE TABLE IF NOT EXISTS profd.samples
(
    host         LowCardinality(String),
    window       String,
    start        DateTime64(9, 'UTC'),
    stop         DateTime64(9, 'UTC'),
    unit         LowCardinality(String),
    comm         LowCardinality(String),
    thread_name  LowCardinality(String),
    container_id LowCardinality(String),
    user         LowCardinality(String),
    pid          UInt32,
    stack        UInt64,
    samples      UInt64,
    cpu_ns       UInt64,
    cache_misses UInt64
)
ENGINE = MergeTree
PARTITION BY toYYYYMMDD(start)
ORDER BY (unit, comm, host, start)
TTL toDateTime(start) + INTERVAL 30 DAY;

-- Frames from the innermost outwards, inlined functions as frames of their own.
CREATE TABLE IF NOT EXISTS profd.stacks
(
    stack     UInt64,
    functions Array(LowCardinality(String)),
    objects   Array(LowCardinality(String)),
    build_ids Array(LowCardinality(String))
)
ENGINE = ReplacingMergeTree
ORDER BY stack;

-- What the loader has finished; it resumes after the newest of each host.
CREATE TABLE IF NOT EXISTS profd.windows
(
    host     LowCardinality(String),
    window   String,
    last_seq UInt64,
    start    DateTime64(9, 'UTC'),
    stop     DateTime64(9, 'UTC'),
    samples  UInt64,
    lost     UInt64,
    loaded   DateTime DEFAULT now()
)
ENGINE = ReplacingMergeTree(loaded)
ORDER BY (host, window);

CREATE TABLE IF NOT EXISTS profd.gaps
(
    host   LowCardinality(String),
    start  DateTime64(9, 'UTC'),
    stop   DateTime64(9, 'UTC'),
    reason LowCardinality(String)
)
ENGINE = ReplacingMergeTree
ORDER BY (host, start);

-- One file, one row, only while it is taken apart by load.sql: one loader at a time writes to a database.
CREATE TABLE IF NOT EXISTS profd.pprof
(
    host                        String,
    window                      String,
    `sample_type.type`          Array(Int64),
    `sample.location_id`        Array(Array(UInt64)),
    `sample.value`              Array(Array(Int64)),
    `sample.label.key`          Array(Array(Int64)),
    `sample.label.str`          Array(Array(Int64)),
    `sample.label.num`          Array(Array(Int64)),
    `mapping.filename`          Array(Int64),
    `mapping.build_id`          Array(Int64),
    `location.mapping_id`       Array(UInt64),
    `location.line.function_id` Array(Array(UInt64)),
    `function.name`             Array(Int64),
    string_table                Array(String),
    time_nanos                  Int64,
    duration_nanos              Int64
)
ENGINE = Memory;

CREATE TABLE IF NOT EXISTS profd.window_stacks
(
    host      String,
    window    String,
    local     UInt64, -- hash of the location IDs in the file
    stack     UInt64,
    functions Array(LowCardinality(String)),
    objects   Array(LowCardinality(String)),
    build_ids Array(LowCardinality(String))
)
ENGINE = Memory;

-- Views take their range as parameters:
--   SELECT * FROM profd.hottest_functions(since = '2026-12-01 02:00:00', until = '2026-12-01 03:00:00') LIMIT 20

-- The hottest functions of the fleet: CPU time in the function itself, and with all that it called.
CREATE VIEW IF NOT EXISTS profd.hottest_functions AS
SELECT
    function,
    sumIf(cpu_ns, function = functions[1]) / 1e9 AS self_s,
    sum(cpu_ns) / 1e9 AS total_s,
    uniqExact(host) AS hosts
FROM
(
    SELECT host, cpu_ns, functions, arrayJoin(arrayDistinct(functions)) AS function
    FROM
    (
        SELECT host, stack, sum(cpu_ns) AS cpu_ns
        FROM profd.samples
        WHERE start >= {since:DateTime64(9, 'UTC')} AND start < {until:DateTime64(9, 'UTC')}
        GROUP BY host, stack
    ) AS s
    INNER JOIN (SELECT stack, any(functions) AS functions FROM profd.stacks GROUP BY stack) AS f USING (stack)
)
GROUP BY function
ORDER BY self_s DESC, function;

-- One unit on all hosts: each function's share of the unit's CPU time on each.
CREATE VIEW IF NOT EXISTS profd.unit_across_hosts AS
SELECT
    host,
    functions[1] AS function,
    sum(cpu_ns) / 1e9 AS self_s,
    self_s / sum(self_s) OVER (PARTITION BY host) AS share
FROM profd.samples AS s
INNER JOIN (SELECT stack, any(functions) AS functions FROM profd.stacks GROUP BY stack) AS f USING (stack)
WHERE unit = {unit:String} AND start >= {since:DateTime64(9, 'UTC')} AND start < {until:DateTime64(9, 'UTC')}
GROUP BY host, function
ORDER BY host, self_s DESC;

-- The builds of one object in the fleet: on how many hosts each runs, and its hottest functions.
CREATE VIEW IF NOT EXISTS profd.by_build_id AS
SELECT
    build_ids[1] AS build_id,
    functions[1] AS function,
    uniqExact(host) AS hosts,
    sum(cpu_ns) / 1e9 AS self_s,
    self_s / sum(self_s) OVER (PARTITION BY build_id) AS share
FROM profd.samples AS s
INNER JOIN
(
    SELECT stack, any(functions) AS functions, any(objects) AS objects, any(build_ids) AS build_ids
    FROM profd.stacks GROUP BY stack
) AS f USING (stack)
WHERE objects[1] = {object:String} AND start >= {since:DateTime64(9, 'UTC')} AND start < {until:DateTime64(9, 'UTC')}
GROUP BY build_id, function
ORDER BY build_id, self_s DESC;

-- A unit before and after a moment: each function's share of samples, the change, and its standard error, by which
-- noise is told from change (beyond 2 or 3 of them).
CREATE VIEW IF NOT EXISTS profd.before_after AS
SELECT
    function,
    before_samples / before_all AS before_share,
    after_samples / after_all AS after_share,
    after_share - before_share AS change,
    sqrt(before_share * (1 - before_share) / before_all + after_share * (1 - after_share) / after_all) AS error
FROM
(
    SELECT
        functions[1] AS function,
        sumIf(s.samples, start < {moment:DateTime64(9, 'UTC')}) AS before_samples,
        sumIf(s.samples, start >= {moment:DateTime64(9, 'UTC')}) AS after_samples,
        sum(before_samples) OVER () AS before_all,
        sum(after_samples) OVER () AS after_all
    FROM profd.samples AS s
    INNER JOIN (SELECT stack, any(functions) AS functions FROM profd.stacks GROUP BY stack) AS f USING (stack)
    WHERE unit = {unit:String} AND start >= {moment:DateTime64(9, 'UTC')} - toIntervalSecond({seconds:UInt32})
      AND start < {moment:DateTime64(9, 'UTC')} + toIntervalSecond({seconds:UInt32})
    GROUP BY function
)
WHERE before_all > 0 AND after_all > 0
ORDER BY abs(change) DESC, function;
