"""The log of a real PostgreSQL, decoded: every built-in type, every kind of message, every kind of change."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal

import pyarrow as pa
import pytest

from etl_assets.errors import SourceRefused
from etl_assets.sources.postgres_cdc import messages as m
from etl_assets.sources.postgres_cdc.type_catalog import read_types
from etl_assets.sources.postgres_cdc.types import (
    BUILT_IN_TYPES,
    InfinityPolicy,
    NumericPolicy,
    PostgresType,
    ValuePolicies,
    announced_type,
)
from etl_assets_tests.servers import needs_postgres
from etl_assets_tests.sources.log import Log

UTC = dt.UTC
WITHOUT_COLUMNS = {"pg_node_tree", "pg_ndistinct", "pg_dependencies", "pg_mcv_list", "pg_brin_bloom_summary"}
WITHOUT_COLUMNS |= {"pg_brin_minmax_multi_summary", "aclitem"}
"""Types of the server's own catalogs: nobody can write their values, or they name its roles."""
SAMPLES = {
    "bool": ("true", True),
    "bytea": (r"\x00ff61", b"\x00\xffa"),
    "int2": ("-32768", -32768),
    "int4": ("2147483647", 2147483647),
    "int8": ("-9223372036854775808", -(2**63)),
    "oid": ("4294967295", 2**32 - 1),
    "float4": ("0.1", pa.scalar(0.1, pa.float32()).as_py()),
    "float8": ("1.7976931348623157e308", 1.7976931348623157e308),
    "date": ("2024-02-29", dt.date(2024, 2, 29)),
    "timestamp": ("2024-02-29 23:59:59.999999", dt.datetime(2024, 2, 29, 23, 59, 59, 999999)),  # noqa: DTZ001
    "timestamptz": ("2024-02-29 23:00:00+02", dt.datetime(2024, 2, 29, 21, tzinfo=UTC)),
    "numeric": ("1" * 40 + ".5", "1" * 40 + ".5"),
    "char": ("x", "x"),
    "name": ("film", "film"),
    "text": ('ü "quoted" \\ \n{,}', 'ü "quoted" \\ \n{,}'),
    "json": ('{"a" : 1}', '{"a" : 1}'),
    "jsonb": ('{"a" : 1}', '{"a": 1}'),
    "xml": ("<a/>", "<a/>"),
    "cidr": ("10.0.0.0/8", "10.0.0.0/8"),
    "money": ("$1,234.50", "$1,234.50"),
    "macaddr": ("08:00:2b:01:02:03", "08:00:2b:01:02:03"),
    "macaddr8": ("08:00:2b:01:02:03:04:05", "08:00:2b:01:02:03:04:05"),
    "inet": ("10.0.0.1/24", "10.0.0.1/24"),
    "bpchar": ("ab  ", "ab  "),
    "varchar": ("ab", "ab"),
    "time": ("24:00:00", "24:00:00"),
    "timetz": ("01:02:03.5+05:30", "01:02:03.5+05:30"),
    "interval": ("1 year 2 mons -3 days 04:05:06.7", "P1Y2M-3DT4H5M6.7S"),
    "bit": ("1", "1"),
    "varbit": ("101", "101"),
    "uuid": ("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    "point": ("(1,2)", "(1,2)"),
    "line": ("{1,-1,0}", "{1,-1,0}"),
    "lseg": ("[(0,0),(1,1)]", "[(0,0),(1,1)]"),
    "box": ("(1,1),(0,0)", "(1,1),(0,0)"),
    "path": ("((0,0),(1,1))", "((0,0),(1,1))"),
    "polygon": ("((0,0),(1,1))", "((0,0),(1,1))"),
    "circle": ("<(0,0),1>", "<(0,0),1>"),
    "tsvector": ("'a':1 'b'", "'a':1 'b'"),
    "tsquery": ("'a' & 'b'", "'a' & 'b'"),
    "jsonpath": ('$."a"', '$."a"'),
    "int2vector": ("1 2", "1 2"),
    "oidvector": ("1 2", "1 2"),
    "tid": ("(0,1)", "(0,1)"),
    "xid": ("7", "7"),
    "xid8": ("7", "7"),
    "cid": ("7", "7"),
    "pg_lsn": ("0/16B3748", "0/16B3748"),
    "pg_snapshot": ("10:20:", "10:20:"),
    "txid_snapshot": ("10:20:", "10:20:"),
    "refcursor": ("c", "c"),
    "regclass": ("pg_class", "pg_class"),
    "regcollation": ('"C"', '"C"'),
    "regconfig": ("english", "english"),
    "regdictionary": ("simple", "simple"),
    "regnamespace": ("pg_catalog", "pg_catalog"),
    "regoper": ("||/", "||/"),
    "regoperator": ("+(integer,integer)", "+(integer,integer)"),
    "regproc": ("now", "now"),
    "regprocedure": ("now()", "now()"),
    "regrole": ("pg_monitor", "pg_monitor"),
    "regtype": ("integer", "integer"),
    "gtsvector": None,
    "int4range": ("[1,5)", "[1,5)"),
    "int8range": ("[1,)", "[1,)"),
    "numrange": ("(1.5,2]", "(1.5,2]"),
    "daterange": ("empty", "empty"),
    "tsrange": ('["2024-01-01 00:00:00",)', '["2024-01-01 00:00:00",)'),
    "tstzrange": ('["2024-01-01 00:00:00+00",)', '["2024-01-01 00:00:00+00",)'),
    "int4multirange": ("{[1,5),[7,9)}", "{[1,5),[7,9)}"),
    "int8multirange": ("{[1,5)}", "{[1,5)}"),
    "nummultirange": ("{[1,5)}", "{[1,5)}"),
    "datemultirange": ("{}", "{}"),
    "tsmultirange": ("{}", "{}"),
    "tstzmultirange": ("{}", "{}"),
}
"""Type to a text of one value, and the value in Arrow. None: nothing but null can be written."""


@pytest.fixture
def log(postgres_server):
    found = Log.create(postgres_server)
    yield found
    found.close()


def one_column(found, name: str = "v") -> list:
    assert not found.refused
    return found.rows.column(name).to_pylist()


def test_the_oids_of_built_in_types_are_those_of_the_server(log):
    found = log.session.execute("SELECT oid::int8, typname, typelem::int8, typdelim::text FROM pg_type")
    server = {oid: (name, element, delimiter) for oid, name, element, delimiter in found}
    for oid, known in BUILT_IN_TYPES.items():
        name, element, delimiter = server[oid]
        assert known.name == name
        assert known.delimiter == delimiter
        assert not known.element or known.element == element


def test_every_built_in_type_arrives_with_its_value_alone_and_in_an_array(log):
    types = log.session.execute(
        "SELECT t.typname, a.typname FROM pg_type t LEFT JOIN pg_type a ON a.oid = t.typarray"
        " WHERE t.typnamespace = 'pg_catalog'::regnamespace AND t.typtype IN ('b', 'r', 'm')"
        " AND NOT EXISTS (SELECT FROM pg_type e WHERE e.typarray = t.oid) ORDER BY 1"
    ).fetchall()
    types = [(name, array) for name, array in types if name not in WITHOUT_COLUMNS]
    assert {name for name, _ in types} <= set(SAMPLES)
    columns = [f'"{name}" pg_catalog."{name}"' for name, _ in types]
    columns += [f'"{array}" pg_catalog."{array}"' for _, array in types if array]
    log.execute(f"CREATE TABLE every (id int PRIMARY KEY, {', '.join(columns)})")
    values = {"id": "1"}
    for name, _ in types:
        if sample := SAMPLES[name]:
            values[name] = sample[0]
    names = ", ".join(f'"{name}"' for name in values)
    log.session.execute(
        f"INSERT INTO every ({names}) VALUES ({', '.join(['%s'] * len(values))})".encode(), [*values.values()]
    )
    arrays = [(name, array) for name, array in types if array and SAMPLES[name]]
    log.execute(
        f"""UPDATE every SET {", ".join(f'"{array}" = ARRAY["{name}", NULL]' for name, array in arrays)}"""
    )
    log.execute("INSERT INTO every (id) VALUES (2)")

    found = log.changed_rows(("id",))

    assert not found.refused
    first, whole, empty = found.rows.to_pylist()
    expected = {name: sample[1] for name, _ in types if (sample := SAMPLES[name])}
    assert {name: first[name] for name in expected} == expected
    assert {name: whole[array] for name, array in arrays} == {
        name: [expected[name], None] for name, _ in arrays
    }
    assert set(empty.values()) == {2, None}


@pytest.mark.parametrize(
    ("type_", "texts", "expected"),
    [
        ("float8", ["NaN", "Infinity", "-Infinity", "-0"], [math.nan, math.inf, -math.inf, -0.0]),
        ("float4", ["3.4028235e38", "1e-45"], [3.4028234663852886e38, 1.401298464324817e-45]),
        ("numeric(5,2)", ["999.99", "-0.01", "7"], [Decimal("999.99"), Decimal("-0.01"), Decimal("7.00")]),
        ("numeric(3,-2)", ["12345", "-99900"], [Decimal("12300"), Decimal("-99900")]),
        ("numeric(2,4)", ["0.0099"], [Decimal("0.0099")]),
        ("numeric(38,10)", ["1" * 28 + ".5"], [Decimal("1" * 28 + ".5000000000")]),
        ("numeric(50,10)", ["1" * 40], ["1" * 40 + ".0000000000"]),
        ("numeric", ["NaN", "-Infinity", "1e3", "0.10"], ["NaN", "-Infinity", "1000", "0.10"]),
        ("date[]", ["{2024-01-01,NULL}", "{}"], [[dt.date(2024, 1, 1), None], []]),
        ("int[]", ["[0:1]={1,2}"], [[1, 2]]),
        (
            "text[]",
            [r'{"a,b","c\"d","NULL",NULL,"e\\f","{g}",""," h"}'],
            [["a,b", 'c"d', "NULL", None, "e\\f", "{g}", "", " h"]],
        ),
        ("numeric(5,2)[]", ["{1.5,NULL}"], [[Decimal("1.50"), None]]),
        ("bytea[]", [r'{"\\x00ff"}'], [[b"\x00\xff"]]),
        ("box[]", ["{(1,1),(0,0);(2,2),(1,1)}"], [["(1,1),(0,0)", "(2,2),(1,1)"]]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_values_arrive_exactly(log, type_, texts, expected):
    if type_ in ("numeric(3,-2)", "numeric(2,4)"):
        needs_postgres(log.session, 15)
    log.execute(f"CREATE TABLE t (id serial PRIMARY KEY, v {type_})")
    for text in texts:
        log.session.execute("INSERT INTO t (v) VALUES (%s)", [text])
    assert [repr(each) for each in one_column(log.changed_rows(("id",)))] == [repr(each) for each in expected]


TIMES = {
    "date": ("4713-01-01 BC", "0001-12-31 BC", "0001-01-01", "9999-12-31", "10000-02-29", "5874897-12-31"),
    "timestamp": (
        "4713-01-01 00:00:00 BC",
        "0001-12-31 23:59:59.5 BC",
        "9999-12-31 23:59:59.999999",
        "294246-12-31 23:59:59.999999",
    ),
    "timestamptz": (
        "4713-01-02 00:00:00+00 BC",
        "0044-03-15 12:00:00.25+00 BC",
        "1883-11-18 12:03:58-05",
        "294246-12-30 00:00:00+00",
    ),
}


@pytest.mark.parametrize("type_", TIMES)
def test_dates_and_times_of_the_whole_range_are_exact(log, type_):
    log.execute(f"CREATE TABLE t (id serial PRIMARY KEY, v {type_})")
    unit = "(v - '1970-01-01'::date)::numeric" if type_ == "date" else "extract(epoch FROM v) * 1000000"
    for text in TIMES[type_]:
        log.session.execute("INSERT INTO t (v) VALUES (%s)", [text])
    found = log.changed_rows(("id",))
    numbers = found.rows.column("v").cast(pa.int32() if type_ == "date" else pa.int64()).cast(pa.int64())
    assert not found.refused
    expected = log.session.execute(f"SELECT trunc({unit})::int8 FROM t ORDER BY id".encode()).fetchall()
    assert numbers.to_pylist() == [each for (each,) in expected]


@pytest.mark.parametrize(
    ("type_", "texts", "reason"),
    [
        ("date", ["infinity", "2024-01-01"], "infinity"),
        ("timestamptz", ["-infinity", "2024-01-01"], "-infinity"),
        ("timestamp", ["294276-12-31 00:00:00", "2024-01-01"], "294246"),
        ("numeric(5,2)", ["NaN", "1"], "finite"),
        ("int[]", ["{{1,2},{3,4}}", "{1}"], "dimensions"),
        ("text[]", ['{{"a,b"}}', "{a}"], "dimensions"),
        ("date[]", ["{2024-01-01,infinity}", "{2024-01-02}"], "element"),
    ],
)
def test_a_value_without_an_equivalent_refuses_its_row_and_no_other(log, type_, texts, reason):
    log.execute(f"CREATE TABLE t (id serial PRIMARY KEY, v {type_})")
    for text in texts:
        log.session.execute("INSERT INTO t (v) VALUES (%s)", [text])
    found = log.changed_rows(("id",))
    assert list(found.refused) == [0]
    assert found.refused[0].startswith("v: ")
    assert reason in found.refused[0]
    assert found.rows.column("v").is_valid().to_pylist() == [False, True]


def test_policies_decide_what_becomes_of_infinity_and_of_numeric_without_precision(log):
    policies = ValuePolicies(numeric=NumericPolicy.DECIMAL, infinity=InfinityPolicy.LIMITS)
    log.execute(
        "CREATE TABLE t (id serial PRIMARY KEY, d date, ts timestamptz, n numeric, w numeric(50,20))",
        "INSERT INTO t (d, ts, n, w) VALUES ('infinity', '-infinity', 1.5, 2.25)",
        "INSERT INTO t (d, ts, n) VALUES ('-infinity', 'infinity', 1e30)",
    )
    found = log.changed_rows(("id",), policies)
    assert found.rows.schema.field("n").type == pa.decimal128(38, 18)
    assert found.rows.schema.field("w").type == pa.decimal128(38, 20)
    first, second = found.rows.to_pylist()
    assert (first["d"], first["ts"]) == (dt.date.max, dt.datetime(1, 1, 1, tzinfo=UTC))
    assert (second["d"], second["ts"]) == (dt.date.min, dt.datetime.max.replace(tzinfo=UTC))
    assert (first["n"], first["w"]) == (Decimal("1.5"), Decimal("2.25"))
    assert list(found.refused) == [1]
    assert "decimal128(38, 18)" in found.refused[1]


def test_types_of_users_become_what_they_are_made_of(log):
    log.execute(
        "CREATE TYPE mood AS ENUM ('sad', 'so, so')",
        "CREATE DOMAIN amount AS numeric(10,2) CHECK (VALUE > 0)",
        "CREATE DOMAIN price AS amount",
        "CREATE TYPE pair AS (a int, b text)",
        "CREATE TABLE t (id int PRIMARY KEY, m mood, ms mood[], p price, ps price[], c pair)",
        "INSERT INTO t VALUES (1, 'so, so', '{sad,\"so, so\"}', 1.5, '{2.5}', '(1,x)')",
    )
    found = log.changed_rows(("id",)).rows.to_pylist()
    assert found == [
        {
            "id": 1,
            "m": "so, so",
            "ms": ["sad", "so, so"],
            "p": Decimal("1.50"),
            "ps": [Decimal("2.50")],
            "c": "(1,x)",
        }
    ]


def test_a_type_that_was_dropped_is_known_by_what_the_log_says(log):
    log.execute(
        "CREATE DOMAIN small AS int4",
        "CREATE TABLE t (id int PRIMARY KEY, v small)",
        "INSERT INTO t VALUES (1, 2)",
        "DROP TABLE t",
        "DROP DOMAIN small",
    )
    (announced,) = [each for each in log.messages() if isinstance(each, m.TypeMessage)]
    assert announced.oid not in read_types(log.session, [announced.oid])
    assert announced_type(announced) == PostgresType(oid=announced.oid, name="int4", base=23)


def test_a_value_that_was_not_sent_is_named_and_never_a_null(log):
    log.execute(
        "CREATE TABLE t (id int PRIMARY KEY, big text, n int)",
        "ALTER TABLE t ALTER big SET STORAGE EXTERNAL",
        "INSERT INTO t VALUES (1, repeat('x', 20000), 1), (2, NULL, 1)",
        "UPDATE t SET n = 2",
    )
    found = log.changed_rows(("id",))
    assert found.unchanged == {2: ("big",)}
    assert found.rows.column("n").to_pylist() == [1, 1, 2, 2]
    assert found.rows.column("big").is_valid().to_pylist() == [True, False, False, False]


def test_a_full_replica_identity_has_the_values_that_were_not_sent(log):
    log.execute(
        "CREATE TABLE t (id int, big text, n int)",
        "ALTER TABLE t REPLICA IDENTITY FULL",
        "ALTER TABLE t ALTER big SET STORAGE EXTERNAL",
        "INSERT INTO t VALUES (1, repeat('x', 20000), 1)",
        "UPDATE t SET n = 2",
        "DELETE FROM t",
    )
    found = log.changed_rows(("id",))
    assert found.unchanged == {}
    assert found.changes.to_pylist() == ["upsert", "upsert", "delete"]
    assert found.rows.column("big").to_pylist() == ["x" * 20000, "x" * 20000, None]


def test_a_changed_key_deletes_the_row_of_the_old_one(log):
    log.execute(
        "CREATE TABLE t (a int, b int, n int, PRIMARY KEY (a, b))",
        "INSERT INTO t VALUES (1, 2, 3)",
        "UPDATE t SET b = 5",
        "TRUNCATE t",
    )
    found = log.changed_rows(("a", "b"))
    assert found.changes.to_pylist() == ["upsert", "delete", "upsert", "truncate"]
    assert [tuple(row.values()) for row in found.rows.to_pylist()] == [
        (1, 2, 3),
        (1, 2, None),
        (1, 5, 3),
        (None, None, None),
    ]
    places = list(zip(found.commit_lsns.to_pylist(), found.sequences.to_pylist(), strict=True))
    assert places == sorted(places)


def test_keys_outside_the_replica_identity_are_refused(log):
    log.execute("CREATE TABLE t (id int PRIMARY KEY, code text)", "INSERT INTO t VALUES (1, 'a')")
    with pytest.raises(SourceRefused, match="lacks the key code"):
        log.changed_rows(("code",))


def test_altered_tables_origins_and_messages_of_the_log(log):
    log.execute("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)", "ALTER TABLE t ADD v int")
    log.session.execute("SELECT pg_logical_emit_message(false, 'note', 'x')")
    log.session.execute("SELECT pg_replication_origin_create(%s)", [log.slot])
    log.session.execute("SELECT pg_replication_origin_session_setup(%s)", [log.slot])
    log.execute(
        "BEGIN",
        "SELECT pg_replication_origin_xact_setup('0/10', now())",
        "INSERT INTO t VALUES (2, 3)",
        "COMMIT",
    )
    log.session.execute("SELECT pg_replication_origin_session_reset()")
    log.session.execute("SELECT pg_replication_origin_drop(%s)", [log.slot])

    found = list(log.messages())

    relations = [each for each in found if isinstance(each, m.RelationMessage)]
    assert [[column.name for column in each.columns] for each in relations] == [["id"], ["id", "v"]]
    assert [each.name for each in found if isinstance(each, m.OriginMessage)] == [log.slot]
    assert [each.content for each in found if isinstance(each, m.LogicalMessage)] == [b"x"]
    begins = [each for each in found if isinstance(each, m.BeginMessage)]
    commits = [each for each in found if isinstance(each, m.CommitMessage)]
    assert [each.commit_lsn for each in begins] == [each.commit_lsn for each in commits]
    assert all(each.end_lsn > each.commit_lsn for each in commits)


def test_a_large_transaction_is_streamed_in_parts_with_its_subtransactions(log):
    log.execute("SET logical_decoding_work_mem = '64kB'", "CREATE TABLE t (id int PRIMARY KEY, v text)")
    fill = "INSERT INTO t SELECT n, repeat('x', 100) FROM generate_series({}, {}) n"
    log.execute("BEGIN", fill.format(1, 2_000), "SAVEPOINT s", fill.format(2_001, 4_000), "ROLLBACK TO s")
    log.execute(fill.format(4_001, 6_000), "COMMIT")

    found = list(log.messages(protocol=2, streaming=True))

    (commit,) = [each for each in found if isinstance(each, m.StreamCommit)]
    aborted = {each.subtransaction for each in found if isinstance(each, m.StreamAbort)}
    starts = [each for each in found if isinstance(each, m.StreamStart)]
    assert [each.is_first for each in starts] == [True] + [False] * (len(starts) - 1)
    assert {each.xid for each in starts} == {commit.xid}
    rows = [each for each in found if isinstance(each, m.InsertMessage) and each.xid not in aborted]
    assert sorted(int(each.new[0] or b"") for each in rows) == [*range(1, 2_001), *range(4_001, 6_001)]
