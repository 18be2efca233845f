"""The reference result of official Flower: the object ids of a reply, computed with the functions of `flwr-clientapp`.

Called with a directory that holds `objects/` (files named by id), `context` and `root` (the id of the instruction), the
directory of the app and its reference. Prints ids and then the state of the Context.
"""

import importlib
import sys
from pathlib import Path

from flwr.clientapp.client_app import LoadClientAppError
from flwr.common.serde import context_from_proto, context_to_proto
from flwr.proto.message_pb2 import Context


def module(*names):
    for name in names:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError:
            continue
    raise ModuleNotFoundError(names)


place, app_directory, reference = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
inflatable = module("flwr.supercore.inflatable.inflatable_object", "flwr.common.inflatable")
inflating = module("flwr.supercore.inflatable.inflatable_utils", "flwr.common.inflatable_utils")
loading = module("flwr.supercore.object_ref", "flwr.common.object_ref")

contents = {path.name: path.read_bytes() for path in (place / "objects").iterdir()}
root = (place / "root").read_text()
message = inflating.inflate_object_from_contents(root, contents)
message.metadata.__dict__["_message_id"] = root
context = context_from_proto(Context.FromString((place / "context").read_bytes()))
app = loading.load_app(reference, LoadClientAppError, app_directory)
reply = app(message=message, context=context)
with inflatable.no_object_id_recompute():
    objects = inflatable.get_all_nested_objects(reply)
# All objects except the message itself, which contains the time of its creation.
print(*sorted(set(objects) - {reply.object_id}))
print(context_to_proto(context).state.SerializeToString(deterministic=True).hex())
