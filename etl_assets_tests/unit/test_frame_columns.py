"""Which columns a user's frame may have, by their types alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import types
from pyspark.sql.types import StructField, StructType

from etl_assets.delta.table import Table
from etl_assets.delta.write.frame_columns import check_fits, check_frame
from etl_assets.delta.write.write_spec import WriteMode, WriteSpec
from etl_assets.errors import ContractError, EtlAssetsError, SchemaMismatch
from etl_assets_tests.reference.tables import local_domain

TABLE = Table(name="mine", domain=local_domain(Path("/data")))
BY_ID = WriteSpec(keys=("id",))
TEXT, INT, LONG, DOUBLE = types.StringType(), types.IntegerType(), types.LongType(), types.DoubleType()


def columns(**by_name: types.DataType) -> StructType:
    return StructType([StructField(name, type_) for name, type_ in by_name.items()])


@pytest.mark.parametrize(
    ("found", "stored"),
    [
        (INT, LONG),
        (types.ByteType(), types.ShortType()),
        (types.FloatType(), DOUBLE),
        (types.DecimalType(5, 2), types.DecimalType(7, 3)),
        (types.NullType(), TEXT),
        (columns(a=INT), StructType([StructField("a", INT, nullable=False)])),
    ],
    ids=str,
)
def test_a_type_whose_values_stay_what_they_are_fits(found: types.DataType, stored: types.DataType):
    check_fits(columns(id=found), columns(id=stored), TABLE)


@pytest.mark.parametrize(
    ("found", "stored"),
    [
        (LONG, INT),
        (DOUBLE, INT),
        (INT, DOUBLE),
        (INT, TEXT),
        (types.DateType(), types.TimestampType()),
        (types.TimestampNTZType(), types.TimestampType()),
        (types.DecimalType(7, 2), types.DecimalType(7, 3)),
        (types.ArrayType(INT), types.ArrayType(LONG)),
        (columns(a=INT, b=INT), columns(b=INT, a=INT)),
    ],
    ids=str,
)
def test_a_type_that_would_be_cast_is_refused_with_both(found: types.DataType, stored: types.DataType):
    with pytest.raises(SchemaMismatch) as refused:
        check_fits(columns(id=found), columns(id=stored), TABLE)
    assert (refused.value.table, refused.value.column) == ("mine", "id")
    assert refused.value.found == found.simpleString().upper()
    assert f".cast('{stored.simpleString()}')" in refused.value.fix


@pytest.mark.parametrize(
    ("frame", "said", "fix"),
    [
        (
            columns(id=INT, more=INT),
            "have the column more (INT): which its table does not have",
            "declare `schema_changes` add",
        ),
        (columns(ID=INT), "have the column ID (INT): in its table it is id", "rename it in the asset to id"),
        (columns(), "lack its column id (INT)", "F.lit(None).cast('int')"),
    ],
    ids=["more", "case", "less"],
)
def test_another_set_of_columns_is_refused(frame: StructType, said: str, fix: str):
    with pytest.raises(SchemaMismatch) as refused:
        check_fits(frame, columns(id=INT), TABLE)
    assert said in refused.value.message
    assert fix in refused.value.fix


@pytest.mark.parametrize(
    ("type_", "fix"),
    [
        (types.MapType(TEXT, INT), "F.map_entries('v')"),
        (types.ArrayType(columns(m=types.MapType(TEXT, INT))), "F.map_entries('v')"),
        (types.VariantType(), "F.to_json('v')"),
        (types.NullType(), "give it a type"),
        (types.DayTimeIntervalType(), "cast 'v' to a type that can be stored"),
    ],
    ids=lambda value: value.simpleString() if isinstance(value, types.DataType) else None,
)
def test_a_type_that_cannot_be_stored_is_refused_with_what_to_store_instead(type_: types.DataType, fix: str):
    with pytest.raises(SchemaMismatch, match="the column v of the rows for mine") as refused:
        check_frame(BY_ID, columns(id=INT, v=type_), table="mine")
    assert fix in refused.value.fix


@pytest.mark.parametrize("mode", [WriteMode.APPEND, WriteMode.REPLACE])
def test_maps_are_stored_where_rows_are_not_compared(mode: WriteMode):
    spec = WriteSpec(write_mode=mode)
    check_frame(spec, columns(v=types.ArrayType(types.MapType(TEXT, INT))), table="mine")
    with pytest.raises(SchemaMismatch, match="has the type VARIANT, which cannot be stored"):
        check_frame(spec, columns(v=types.MapType(TEXT, types.VariantType())), table="mine")


def test_a_column_of_nulls_takes_the_type_that_its_table_has():
    check_frame(BY_ID, columns(id=INT, v=types.NullType()), table="mine", is_new=False)


@pytest.mark.parametrize(
    ("names", "error"),
    [(("id", "ID"), SchemaMismatch), (("id", "id"), SchemaMismatch), (("key",), ContractError)],
)
def test_names_that_are_not_clear_are_refused(names: tuple[str, ...], error: type[EtlAssetsError]):
    with pytest.raises(error, match="id"):
        check_frame(BY_ID, StructType([StructField(name, INT) for name in names]), table="mine")


@pytest.mark.parametrize("type_", [DOUBLE, types.BinaryType(), columns(a=INT)], ids=str)
def test_files_are_laid_out_by_types_that_are_read_back_exactly(type_: types.DataType):
    spec = WriteSpec(keys=("id",), delta_partition="part")
    with pytest.raises(ContractError, match="cannot be its `delta_partition`"):
        check_frame(spec, columns(id=INT, part=type_), table="mine")
