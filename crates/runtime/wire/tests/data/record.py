"""Records what the official package makes of given values: objects as bytes, and error replies.

Run with the Python of an environment that has flwr 1.25; it writes `made.jsonl` and `errors.jsonl` beside itself.
Floating-point numbers are written as the 64 bits they consist of, so that no reader has to round.
"""

import json
import math
import struct
from pathlib import Path

from flwr.app.error import Error
from flwr.app.metadata import Metadata
from flwr.common import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from flwr.common.constant import ErrorCode
from flwr.common.inflatable import get_all_nested_objects
from flwr.common.message import make_message

HERE = Path(__file__).parent
MIB = 1024 * 1024
# Larger objects are recorded by id alone; the test makes the same bytes by rule.
LARGEST_RECORDED_BYTES = 4096


def metadata(**changes):
    fields = dict(run_id=7, message_id="", src_node_id=1, dst_node_id=2**64 - 2, reply_to_message_id="",
                  group_id="3", created_at=1763221234.567891, ttl=43200.0, message_type="train")
    return Metadata(**{**fields, **changes})


def cases():
    """Named objects, each recorded with everything below it."""
    scalars = {
        "zero": 0, "minus": -1, "top": 2**63 - 1, "bottom": -(2**63), "unsigned": 2**63, "most": 2**64 - 1,
        "float": 0.1, "negative zero": -0.0, "infinite": math.inf, "not a number": math.nan,
    }
    lists = {
        "none": [], "ints": [0, -1, 2**63 - 1], "mixed width": [1, 2**63], "floats": [-0.0, math.inf, 1e-310],
    }
    yield "metric values", MetricRecord({**scalars, **lists})
    yield "config values", ConfigRecord({
        **scalars, "true": True, "false": False, "": "", "text": "grün ✓", "bytes": b"\x00\xff", "no bytes": b"",
        **lists, "bools": [True, False], "texts": ["", "ß", "\x00"], "byte strings": [b"", b"\x00"],
    })
    yield "empty config", ConfigRecord()
    yield "empty metrics", MetricRecord()
    names = ["", " ", "ä", "😀", "\x7f", "\u2028\uffff", "\"\\/", "\b\f\n\r\t", "\x00\x1f", "~", "a" * 300, "e\u0301"]
    yield "names", ArrayRecord({name: Array("x", (), "y", b"") for name in names})
    yield "shapes", ArrayRecord({
        "scalar": Array("float64", (), "numpy.ndarray", b"\x01"),
        "deep": Array("int8", tuple(range(40)), "other", b"\x02"),
        "wide": Array("int8", (2**40, 0), "ä\"", b"\x03"),
    })
    yield "chunks", Array("uint8", (12 * MIB + 5,), "raw", pattern(12 * MIB + 5))
    yield "equal chunks", Array("uint8", (21 * MIB,), "raw", bytes(10 * MIB) + pattern(5 * MIB) + bytes(6 * MIB))
    yield "full chunk", Array("uint8", (5 * MIB,), "raw", bytes(5 * MIB))
    content = RecordDict({"config": ConfigRecord({"lr": 0.1}), "again": ConfigRecord({"lr": 0.1})})
    yield "content", make_message(metadata=metadata(), content=content)
    yield "empty content", make_message(metadata=metadata(run_id=0, group_id="", ttl=0), content=RecordDict())


def pattern(length):
    """Byte number i is ((i * i) >> 8) + (i >> 20), cut to eight bits."""
    return bytes((((i * i) >> 8) + (i >> 20)) & 255 for i in range(length))


def errors():
    yield metadata(), ErrorCode.UNKNOWN, ""
    every_code = [value for name, value in vars(ErrorCode).items() if name.isupper()]
    for code in sorted(every_code):
        yield metadata(reply_to_message_id="ab" * 32), code, f"reason {code}"
    yield metadata(run_id=0, src_node_id=1, dst_node_id=1, group_id="", ttl=0, message_type="system"), 3, "Grüße × ✓"
    yield metadata(run_id=2**64 - 1, ttl=1e-9, created_at=0.1 + 0.2, message_type="query.a_b"), 8, "x" * 500
    yield metadata(message_id="not part of the object", group_id="1\n2"), 7, "line\nline\x00"


def bits(number):
    return struct.unpack("<Q", struct.pack("<d", number))[0]


def write(name, rows):
    with open(HERE / name, "w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


def object_rows():
    for case, top in cases():
        for object_id, item in get_all_nested_objects(top).items():
            content = item.deflate()
            recorded = content.hex() if len(content) <= LARGEST_RECORDED_BYTES else None
            yield {"case": case, "type": type(item).__qualname__, "id": object_id, "hex": recorded}


def error_rows():
    for about, code, reason in errors():
        message = make_message(metadata=about, error=Error(code=code, reason=reason))
        given = {key.lstrip("_"): value for key, value in vars(about).items() if key != "_delivered_at"}
        given["ttl"], given["created_at"] = bits(about.ttl), bits(about.created_at)
        yield {"metadata": given, "code": code, "reason": reason, "id": message.object_id,
               "hex": message.deflate().hex()}


write("made.jsonl", object_rows())
write("errors.jsonl", error_rows())
