"""Makes the Parquet files of this folder, and the same table as CSV: `python make.py .`, with pyarrow."""
import pyarrow as pa, pyarrow.parquet as pq, random, datetime as dt, csv, sys, decimal, struct, os
out=sys.argv[1]; os.makedirs(out, exist_ok=True)
r=random.Random(5); n=40
f32=lambda x: struct.unpack('f',struct.pack('f',x))[0]
D=dict(
 patient=[f"p{i:03d}" for i in range(n)],
 age=[r.randint(20,90) for _ in range(n)],
 weight=[None if i%9==4 else round(r.uniform(50,100),1) for i in range(n)],
 height=[f32(r.uniform(1.5,2)) for _ in range(n)],
 sex=[r.choice(["f","m"]) for _ in range(n)],
 smoker=[None if i==7 else r.random()<.4 for i in range(n)],
 admitted=[dt.date(2024,1,1)+dt.timedelta(days=r.randint(-30000,300)) for _ in range(n)],
 seen=[dt.datetime(2024,5,1,8,30)+dt.timedelta(seconds=r.randint(-10**9,10**6), milliseconds=r.choice([0,250])) for _ in range(n)],
 ward=[r.choice(["north","south","east",None]) for _ in range(n)],
 cost=[decimal.Decimal(r.randint(-99999,99999))/100 for _ in range(n)],
 code=[2**53+1+r.randint(0,2**62) for _ in range(n)],
 floor=[r.randint(-3,9) for _ in range(n)],
)
D['diagnosis']=[r.choice(["sick","healthy"]) for _ in range(n)]
D['cost']=[c.quantize(decimal.Decimal('0.01')) for c in D['cost']]
def arrays(tz, unit):
    t=dict(patient=pa.string(),age=pa.int64(),weight=pa.float64(),height=pa.float32(),sex=pa.dictionary(pa.int8(),pa.string()),smoker=pa.bool_(),admitted=pa.date32(),seen=pa.timestamp(unit,tz=tz),ward=pa.large_string(),cost=pa.decimal128(10,2),code=pa.uint64(),floor=pa.int8(),diagnosis=pa.string())
    a={k:pa.array(D[k],type=t[k] if k!='sex' else None) for k in t}
    a['sex']=a['sex'].dictionary_encode()
    a['visits']=pa.array([[1,2]]*n)       # nested, never read
    a['scan']=pa.array([b'\xff\0']*n)     # binary, never read
    return a
a=arrays('UTC','us')
pq.write_table(pa.table(a), f"{out}/patients.parquet", row_group_size=25, store_schema=False, write_statistics=["age"],
  compression={k:c for k,c in zip(a,['snappy','gzip','lz4','zstd','none']*9)})
b=arrays(None,'ms')
keys=list(b)[-3::-1]  # neither nested nor binary, in another order
pq.write_table(pa.table({k:b[k] for k in keys}), f"{out}/patients-2.parquet", compression='zstd', data_page_version='2.0', use_dictionary=False,
  use_deprecated_int96_timestamps=True, data_page_size=256, write_batch_size=8, write_statistics=False, store_schema=False,
  column_encoding={'height':'BYTE_STREAM_SPLIT','smoker':'RLE'})
def text(v):
    if v is None: return ''
    if isinstance(v,bool): return str(v)
    if isinstance(v,dt.datetime): return v.isoformat()+'Z'
    if isinstance(v,float): return repr(v)
    return str(v)
with open(f"{out}/patients.csv","w") as f:
    w=csv.writer(f,lineterminator="\n"); w.writerow(D); w.writerows([[text(D[k][i]) for k in D] for i in range(n)])
