-- Takes one window apart: from profd.pprof to profd.stacks and profd.samples. Parameters: host, window. What is left in
-- profd.pprof and profd.window_stacks is of no use after that; both are emptied of it by the last statements.
-- The tables inside the file refer to each other by index: joins, since an array that a lambda or ARRAY JOIN carries
-- along is copied for each element.

INSERT INTO profd.window_stacks (host, window, local, functions, objects, build_ids, stack)
WITH
    file AS (SELECT * FROM profd.pprof WHERE host = {host:String} AND window = {window:String} LIMIT 1),
    strings AS (SELECT i - 1 AS id, text FROM file ARRAY JOIN string_table AS text, arrayEnumerate(string_table) AS i),
    functions AS
    (
        SELECT f.id AS id, strings.text AS name
        FROM (SELECT i AS id, n FROM file ARRAY JOIN `function.name` AS n, arrayEnumerate(`function.name`) AS i) AS f
        INNER JOIN strings ON strings.id = f.n
    ),
    mappings AS
    (
        SELECT m.id AS id, files.text AS object, builds.text AS build_id
        FROM (SELECT i AS id, n, b FROM file
              ARRAY JOIN `mapping.filename` AS n, `mapping.build_id` AS b, arrayEnumerate(`mapping.filename`) AS i) AS m
        INNER JOIN strings AS files ON files.id = m.n
        INNER JOIN strings AS builds ON builds.id = m.b
    ),
    lines AS -- of each location, innermost first; one without a name is one of its object
    (
        SELECT l.id AS id, l.position AS position, if(functions.name = '', mappings.object, functions.name) AS function,
               mappings.object AS object, mappings.build_id AS build_id
        FROM
        (
            SELECT id, mapping, function, position
            FROM (SELECT i AS id, m AS mapping, if(empty(f), [0], f) AS of FROM file
                  ARRAY JOIN `location.mapping_id` AS m, `location.line.function_id` AS f,
                             arrayEnumerate(`location.mapping_id`) AS i)
            ARRAY JOIN of AS function, arrayEnumerate(of) AS position
        ) AS l
        LEFT JOIN functions ON functions.id = l.function
        LEFT JOIN mappings ON mappings.id = l.mapping
    ),
    frames AS
    (
        SELECT local, depth, location
        FROM (SELECT DISTINCT cityHash64(ids) AS local, ids FROM file ARRAY JOIN `sample.location_id` AS ids)
        ARRAY JOIN ids AS location, arrayEnumerate(ids) AS depth
    )
SELECT {host:String}, {window:String}, local, arrayMap(x -> x.3, f) AS functions, arrayMap(x -> x.4, f) AS objects,
       arrayMap(x -> x.5, f) AS build_ids, cityHash64(functions, objects, build_ids)
FROM
(
    SELECT frames.local AS local,
           arraySort(x -> (x.1, x.2), groupArray((depth, position, function, object, build_id))) AS f
    FROM frames
    INNER JOIN lines ON lines.id = frames.location
    GROUP BY local
);

INSERT INTO profd.stacks
SELECT DISTINCT stack, functions, objects, build_ids
FROM profd.window_stacks WHERE host = {host:String} AND window = {window:String};

INSERT INTO profd.samples
WITH
    file AS (SELECT * FROM profd.pprof WHERE host = {host:String} AND window = {window:String} LIMIT 1),
    strings AS (SELECT i - 1 AS id, text FROM file ARRAY JOIN string_table AS text, arrayEnumerate(string_table) AS i),
    types AS
    (
        SELECT t.i AS i, strings.text AS text
        FROM (SELECT i, n FROM file ARRAY JOIN `sample_type.type` AS n, arrayEnumerate(`sample_type.type`) AS i) AS t
        INNER JOIN strings ON strings.id = t.n
    ),
    (SELECT max(id) FROM strings WHERE text = 'unit') AS key_unit,
    (SELECT max(id) FROM strings WHERE text = 'comm') AS key_comm,
    (SELECT max(id) FROM strings WHERE text = 'thread_name') AS key_thread,
    (SELECT max(id) FROM strings WHERE text = 'container_id') AS key_container,
    (SELECT max(id) FROM strings WHERE text = 'user') AS key_user,
    (SELECT max(id) FROM strings WHERE text = 'pid') AS key_pid,
    (SELECT max(i) FROM types WHERE text = 'samples') AS of_samples,
    (SELECT max(i) FROM types WHERE text = 'cpu') AS of_cpu,
    (SELECT max(i) FROM types WHERE text = 'cache-misses') AS of_misses
SELECT
    {host:String}, {window:String}, fromUnixTimestamp64Nano(time_nanos), fromUnixTimestamp64Nano(time_nanos + duration_nanos),
    unit.text, comm.text, thread.text, container.text, user.text, s.pid,
    stacks.stack, s.samples, s.cpu, s.misses
FROM
(
    -- A label or a value that is missing: index 0 of an array is 0, and string 0 is ''.
    SELECT
        time_nanos, duration_nanos, cityHash64(ids) AS local,
        str[indexOf(keys, key_unit)] AS unit, str[indexOf(keys, key_comm)] AS comm,
        str[indexOf(keys, key_thread)] AS thread, str[indexOf(keys, key_container)] AS container,
        str[indexOf(keys, key_user)] AS user, toUInt32(num[indexOf(keys, key_pid)]) AS pid,
        if(of_samples = 0, 0, toUInt64(v[greatest(of_samples, 1)])) AS samples, if(of_cpu = 0, 0, toUInt64(v[greatest(of_cpu, 1)])) AS cpu, if(of_misses = 0, 0, toUInt64(v[greatest(of_misses, 1)])) AS misses
    FROM file
    ARRAY JOIN `sample.location_id` AS ids, `sample.value` AS v, `sample.label.key` AS keys, `sample.label.str` AS str,
               `sample.label.num` AS num
) AS s
INNER JOIN strings AS unit ON unit.id = s.unit
INNER JOIN strings AS comm ON comm.id = s.comm
INNER JOIN strings AS thread ON thread.id = s.thread
INNER JOIN strings AS container ON container.id = s.container
INNER JOIN strings AS user ON user.id = s.user
INNER JOIN (SELECT local, any(stack) AS stack FROM profd.window_stacks
            WHERE host = {host:String} AND window = {window:String} GROUP BY local) AS stacks ON stacks.local = s.local;

TRUNCATE TABLE profd.pprof;

TRUNCATE TABLE profd.window_stacks;
