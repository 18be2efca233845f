"""Records what numpy and the official package make of arrays: `.npy` data, and messages with everything below them.

Run with the Python of an environment that has flwr 1.25 and ml_dtypes (for bfloat16); it writes `arrays.jsonl` and
`messages.jsonl` beside itself. Elements are recorded as the bytes they have in the order of C, little-endian.
"""

import datetime
import json
import struct
from pathlib import Path

import ml_dtypes
import numpy as np
from flwr.app.error import Error
from flwr.app.metadata import Metadata
from flwr.common import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.common import message as message_module
from flwr.common.inflatable import get_all_nested_objects, get_object_tree
from flwr.common.message import make_message

HERE = Path(__file__).parent
MIB = 1024 * 1024
# Larger objects are recorded by id alone; the test makes the same bytes by rule.
LARGEST_RECORDED_BYTES = 4096
REPLY_TIME = datetime.datetime.fromtimestamp(1763221301.25, tz=datetime.timezone.utc)


def counted(dtype, shape):
    return np.arange(1, 1 + int(np.prod(shape))).reshape(shape).astype(dtype)


def arrays():
    """Named arrays; the name says how numpy keeps the elements."""
    kinds = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16",
             ml_dtypes.bfloat16, "float32", "float64"]
    for kind in kinds:
        yield "plain", counted(kind, (2, 3))
    yield "plain", np.array([np.nan, np.inf, -np.inf, -0.0, 1e-45, 3.4e38], dtype="float32")
    yield "plain", np.array([65504, 6e-8, np.nan, -np.inf, 1 / 3], dtype="float16")
    yield "plain", np.array([1e38, 1 / 3, np.nan, -np.inf], dtype=ml_dtypes.bfloat16)
    for shape in [(), (1,), (0,), (3, 0, 2), (2, 1, 3, 1, 2), (12345,), (1,) * 64]:
        yield "plain", counted("uint8", shape)
    # Headers whose unpadded length passes the boundary of a block.
    for dimensions in range(12, 30):
        yield "plain", counted("int8", (1,) * dimensions)
    for shape in [(2, 3), (4, 3, 2), (2, 3, 4, 5)]:
        yield "fortran", np.asfortranarray(counted("int16", shape))
    yield "fortran", counted("float32", (3, 2)).T
    for kind in [">i2", ">u4", ">i8", ">f2", ">f4", ">f8"]:
        yield "big-endian", counted(kind, (2, 3))
    yield "big-endian fortran", np.asfortranarray(counted(">f8", (2, 3, 4)))


def array_rows():
    for form, array in arrays():
        made = Array(array)
        elements = np.ascontiguousarray(array)
        elements = elements.astype(elements.dtype.newbyteorder("<")) if "big" in form else elements
        yield {"form": form, "dtype": str(elements.dtype), "declared": made.dtype, "shape": list(made.shape),
               "elements": elements.tobytes().hex(), "hex": made.data.hex()}


def contents():
    same = np.float32([[0.5, -1], [2, 3]])
    yield "model", RecordDict({
        "arrays": ArrayRecord({"hidden.weight": Array(same), "ä": Array(np.float64([1.5])), "again": Array(same.copy()),
                               "count": Array(np.array(7, dtype="int64")), "none": Array(np.zeros((0, 3), "float16"))}),
        "config": ConfigRecord({"server-round": 3, "lr": 0.01, "name": "x", "flags": [True, False], "raw": b"\x00"}),
        "metrics": MetricRecord({"train_loss": 0.25, "num-examples": 17, "each": [1.0, 2.0], "big": 2**63}),
    })
    yield "twice the same record", RecordDict({"a": ArrayRecord([same]), "b": ArrayRecord([same.copy()])})
    yield "numbered", RecordDict({"arrays": ArrayRecord([np.float32([1, 2]), np.float32([3])])})
    yield "other form", RecordDict({"arrays": ArrayRecord({"x": Array("float32", (2,), "pickle", b"whatever")})})
    yield "empty", RecordDict({"arrays": ArrayRecord(), "config": ConfigRecord(), "metrics": MetricRecord()})
    yield "nothing", RecordDict()
    # Four chunks, of which two are equal: zeros, except for the header of the file and the last element.
    long = np.zeros(16 * MIB // 4 - 32, dtype="float32")
    long[-1] = 1
    yield "chunks", RecordDict({"arrays": ArrayRecord({"long": Array(long)})})


def bits(number):
    return struct.unpack("<Q", struct.pack("<d", number))[0]


def told(metadata):
    given = {key.lstrip("_"): value for key, value in vars(metadata).items() if key != "_delivered_at"}
    given["ttl"], given["created_at"] = bits(metadata.ttl), bits(metadata.created_at)
    return given


def nested(tree):
    return [tree.object_id, [nested(child) for child in tree.children]]


def objects(top):
    for object_id, item in get_all_nested_objects(top).items():
        content = item.deflate()
        yield [object_id, content.hex() if len(content) <= LARGEST_RECORDED_BYTES else None]


def message_rows():
    message_module.now = lambda: REPLY_TIME
    for case, content in contents():
        about = Metadata(run_id=2**64 - 1, message_id="", src_node_id=1, dst_node_id=2**63 + 5, reply_to_message_id="",
                         group_id="3", created_at=1763221234.567891, ttl=3600.0, message_type="train")
        instruction = make_message(metadata=about, content=content)
        about.__dict__["_message_id"] = instruction.object_id
        reply = Message(content, reply_to=instruction)
        error = Message(Error(code=2, reason="ä"), reply_to=instruction)
        yield {"case": case, "metadata": told(about), "objects": list(objects(instruction)),
               "tree": nested(get_object_tree(instruction)), "reply": told(reply.metadata),
               "reply_id": reply.object_id, "error_id": error.object_id}


def write(name, rows):
    with open(HERE / name, "w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


write("arrays.jsonl", array_rows())
write("messages.jsonl", message_rows())
