"""Makes the Arrow files of this folder, with pyarrow: `python make.py .` beside the folder `parquet`, whose table they hold."""
import csv, datetime as dt, decimal, os, sys
import pyarrow as pa, pyarrow.ipc as ipc

out = sys.argv[1]
with open(f"{out}/../parquet/patients.csv") as file:
    rows = list(csv.DictReader(file))


def column(name, read):
    return [None if row[name] == "" else read(row[name]) for row in rows]


moment = lambda text: dt.datetime.fromisoformat(text[:-1])
D = dict(
    patient=column("patient", str),
    age=column("age", int),
    weight=column("weight", float),
    height=column("height", float),
    sex=column("sex", str),
    smoker=column("smoker", lambda text: text == "True"),
    admitted=column("admitted", dt.date.fromisoformat),
    seen=column("seen", moment),
    ward=column("ward", str),
    cost=column("cost", decimal.Decimal),
    code=column("code", int),
    floor=column("floor", int),
    diagnosis=column("diagnosis", str),
)


def table(types, more):
    arrays = {name: pa.array(D[name], type=kind) for name, kind in types.items()}
    return pa.table(arrays | more)


count = len(rows)
words = lambda index: pa.dictionary(index, pa.string())
first = dict(
    patient=pa.string(), age=pa.int64(), weight=pa.float64(), height=pa.float32(), sex=words(pa.int8()), smoker=pa.bool_(),
    admitted=pa.date32(), seen=pa.timestamp("us", tz="UTC"), ward=pa.large_string(), cost=pa.decimal128(10, 2), code=pa.uint64(),
    floor=pa.int8(), diagnosis=pa.string(),
)
more = dict(
    visits=pa.array([[1, 2]] * count),  # nested, never read
    scan=pa.array([b"\xff\0"] * count),  # binary, never read
    note=pa.array([None] * count),  # of no type
)
# Feather, version 2, with its usual compression: 25 rows, then 15.
options = ipc.IpcWriteOptions(compression="lz4")
with ipc.new_file(f"{out}/patients.arrow", table(first, more).schema, options=options) as writer:
    writer.write_table(table(first, more), max_chunksize=25)
# Other types and another order of the columns, as a stream, whose dictionaries grow.
second = dict(
    diagnosis=words(pa.uint16()), floor=pa.int16(), code=pa.uint64(), cost=pa.decimal64(10, 2), ward=words(pa.int32()),
    seen=pa.timestamp("ms"), admitted=pa.date64(), smoker=pa.bool_(), sex=pa.string_view(), height=pa.float32(), weight=pa.float64(),
    age=pa.uint8(), patient=pa.large_string(),
)
options = ipc.IpcWriteOptions(compression="zstd", emit_dictionary_deltas=True)
whole = table(second, {})
starts = [0, 1, 3, 17]
ends = starts[1:] + [count]
grown = []
for name in ("diagnosis", "ward"):
    # Each part of the rows knows the values so far.
    parts, known = [], []
    for start, end in zip(starts, ends):
        texts = D[name][start:end]
        known += [text for text in dict.fromkeys(texts) if text is not None and text not in known]
        keys = pa.array([None if text is None else known.index(text) for text in texts], type=second[name].index_type)
        parts.append(pa.DictionaryArray.from_arrays(keys, pa.array(known)))
    grown.append((name, parts))
with ipc.new_stream(f"{out}/patients-2.arrows", whole.schema, options=options) as writer:
    for at, (start, end) in enumerate(zip(starts, ends)):
        arrays = {name: whole[name].combine_chunks()[start:end] for name in second}
        for name, parts in grown:
            arrays[name] = parts[at]
        writer.write_batch(pa.record_batch([arrays[name] for name in second], schema=whole.schema))
