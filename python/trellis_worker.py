"""Executes the instructions of one run, one after another, with a ClientApp that is loaded once.

A node starts this program and exchanges frames with it over standard input and output: the length of a header (4 bytes, big
endian), the header (JSON), then the parts, whose lengths the header lists in `parts`. The worker begins with `ready` or
`unusable`. The node sends an `instruction` (context, object tree) and its objects, children before parents; the answer is any
number of `object`, then one of `reply`, `failed`, `exit`.

The worker knows nothing of links and of the storage of objects. Apps run, and their results and exceptions are handled, as in
`flwr-clientapp` of the installed flwr, from 1.25 on.
"""

from __future__ import annotations

import faulthandler
import importlib
import importlib.metadata
import json
import logging
import os
import platform
import secrets
import select
import signal
import struct
import sys
import threading
import time
import traceback

OLDEST_FLWR = (1, 25)
HEADER_LENGTH = struct.Struct(">I")
REASON_LIMIT = 4000


class Unusable(Exception):
    """This interpreter cannot execute instructions."""


class NodeGone(Exception):
    """The node has closed the pipe or died."""


class Channel:
    """Frames to and from the node, on descriptors that the app and its child processes do not have."""

    def __init__(self) -> None:
        # Started programs do not inherit duplicated descriptors; forked children close them.
        self._from_node, self._to_node = os.dup(0), os.dup(1)
        os.register_at_fork(after_in_child=self._close)
        # The standard output of the app and its libraries goes to standard error.
        os.dup2(2, 1)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        sys.stdout.reconfigure(line_buffering=True)
        self._reader = open(self._from_node, "rb", buffering=1 << 16, closefd=False)

    def _close(self) -> None:
        os.close(self._from_node)
        os.close(self._to_node)

    def receive(self) -> tuple[dict, list[bytes]]:
        header = json.loads(self._read(HEADER_LENGTH.unpack(self._read(HEADER_LENGTH.size))[0]))
        return header, [self._read(length) for length in header["parts"]]

    def _read(self, length: int) -> bytes:
        data = self._reader.read(length)
        if len(data) < length:
            raise NodeGone
        return data

    def send(self, kind: str, parts: tuple = (), **header: object) -> None:
        """Sends a frame. A part is a list of buffers, which need not be joined."""
        lengths = [sum(len(buffer) for buffer in part) for part in parts]
        encoded = json.dumps({"kind": kind, "parts": lengths, **header}).encode()
        buffers = [HEADER_LENGTH.pack(len(encoded)), encoded, *(buffer for part in parts for buffer in part)]
        while buffers:
            written = os.writev(self._to_node, buffers)
            while buffers and written >= len(buffers[0]):
                written -= len(buffers.pop(0))
            if buffers:
                buffers[0] = memoryview(buffers[0])[written:]

    def wait_for_hangup(self) -> None:
        """Returns when the other end is closed, even if data is unread."""
        poll = select.poll()
        poll.register(self._from_node, 0)
        poll.poll()


class ParentWatch:
    """Kills this process group when the node dies while the app is running."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._busy = self._orphan = False
        threading.Thread(target=self._watch, name="trellis-parent-watch", daemon=True).start()

    def _watch(self) -> None:
        self._channel.wait_for_hangup()
        self._orphan = True
        # While the main thread waits for an instruction, it detects the end itself and exits normally.
        if self._busy:
            self._end()

    def _end(self) -> None:
        if os.getpgrp() == os.getpid():
            os.killpg(os.getpid(), signal.SIGKILL)
        os._exit(1)

    def __enter__(self) -> None:
        self._busy = True
        if self._orphan:
            self._end()

    def __exit__(self, *_: object) -> None:
        self._busy = False


class Flower:
    """The used parts of the installed flwr, independent of where its version has them."""

    def __init__(self) -> None:
        self.version = installed_version()
        self.serde = importlib.import_module("flwr.common.serde")
        self.protocol = importlib.import_module("flwr.proto.message_pb2")
        self.error_code = importlib.import_module("flwr.common.constant").ErrorCode
        self.error = importlib.import_module("flwr.app.error").Error
        self.message = importlib.import_module("flwr.app").Message
        client_app = importlib.import_module("flwr.clientapp.client_app")
        self.client_app, self.load_error = client_app.ClientApp, client_app.LoadClientAppError
        objects = first_module("flwr.supercore.inflatable.inflatable_object", "flwr.common.inflatable")
        self.head_values = objects.get_object_head_values_from_object_content
        self.no_object_id_recompute = objects.no_object_id_recompute
        kinds = first_module("flwr.supercore.inflatable.inflatable_utils", "flwr.common.inflatable_utils")
        self.kinds = kinds.inflatable_class_registry
        self.load_app = first_module("flwr.supercore.object_ref", "flwr.common.object_ref").load_app
        messages = first_module("flwr.app.message", "flwr.common.message")
        self.without_content = messages.remove_content_from_message
        # From 1.39 on, messages that an app creates contain these ids.
        identity = first_module("flwr.supercore.task_identity", None)
        self.identity = identity and identity.TaskIdentity


def installed_version() -> str:
    try:
        version = importlib.metadata.version("flwr")
        number = tuple(int(part) for part in version.split(".")[:2])
    except importlib.metadata.PackageNotFoundError:
        raise Unusable("flwr is not installed for it: install it (`pip install flwr`), or name another Python") from None
    except ValueError:
        raise Unusable(f"the version of its flwr, {version!r}, is not a release: install a release of flwr") from None
    if number < OLDEST_FLWR:
        raise Unusable(f"its flwr {version} is too old: install 1.25 or later")
    return version


def first_module(name: str, *others: str | None) -> object:
    """The first of these modules that exists; a last name None makes it optional."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as missing:
        if not others or not name.startswith(missing.name or "?"):
            raise
        return first_module(*others) if others[0] else None


class Inbox:
    """Builds a message from objects, children first. Drops each object after its last parent."""

    def __init__(self, flower: Flower, tree: object) -> None:
        self._flower, self._root = flower, tree.object_id
        self._made: dict[str, object] = {}
        self._uses: dict[str, int] = {}
        self._count_uses(tree, set())

    def _count_uses(self, tree: object, seen: set[str]) -> None:
        if tree.object_id in seen:
            return
        seen.add(tree.object_id)
        for child in {child.object_id: child for child in tree.children}.values():
            self._uses[child.object_id] = self._uses.get(child.object_id, 0) + 1
            self._count_uses(child, seen)

    def take(self, name: str, content: bytes) -> None:
        kind, children, _ = self._flower.head_values(content)
        below = {child: self._made[child] for child in children}
        # flwr would copy chunks and arrays, the bulk of a model, three times.
        if kind == "ArrayChunk":
            made = body_of(content)
        elif kind == "Array":
            made = self._array(json.loads(bytes(body_of(content))), list(below.values()))
        else:
            made = self._flower.kinds[kind].inflate(content, children=below)
        self._made[name] = made
        for child in children:
            self._uses[child] -= 1
            if not self._uses[child]:
                del self._made[child]

    def _array(self, body: dict, chunks: list[memoryview]) -> object:
        data = b"".join(chunks[index] for index in body["arraychunk_ids"])
        return self._flower.kinds["Array"](body["dtype"], tuple(body["shape"]), body["stype"], data)

    def message(self) -> object:
        message = self._made.pop(self._root)
        # A message object cannot contain its own id.
        message.metadata.__dict__["_message_id"] = self._root
        return message


class Worker:
    """Executes the instructions with the app of this process."""

    def __init__(self, channel: Channel, flower: Flower) -> None:
        self._channel, self._flower = channel, flower
        self._parent_watch = ParentWatch(channel)
        self._app = None

    def serve(self) -> None:
        """Executes instructions until the node is gone."""
        while True:
            self._serve_one()

    def _serve_one(self) -> None:
        header, (context, tree) = self._channel.receive()
        inbox = Inbox(self._flower, self._flower.protocol.ObjectTree.FromString(tree))
        for _ in range(header["objects"]):
            named, (content,) = self._channel.receive()
            inbox.take(named["id"], content)
            del content
        with self._parent_watch:
            self._execute(header, inbox.message(), self._flower.protocol.Context.FromString(context))

    def _execute(self, header: dict, message: object, context: object) -> None:
        context = self._flower.serde.context_from_proto(context)
        started = time.perf_counter()
        try:
            reply = self._call(header, message, context)
        except SystemExit as exit_call:
            self._channel.send("exit", reason=f"sys.exit({exit_call.code!r})"[:REASON_LIMIT])
            raise
        runtime_s = time.perf_counter() - started
        del message
        flush_output()
        try:
            self._send_reply(reply, context, runtime_s)
        except OSError:
            raise
        except Exception as error:
            traceback.print_exc()
            self._channel.send("failed", reason=f"its reply cannot be sent: {describe(error)}"[:REASON_LIMIT])

    def _call(self, header: dict, message: object, context: object) -> object:
        flower = self._flower
        if flower.identity:
            flower.identity.run_id, flower.identity.node_id = context.run_id, context.node_id
            flower.identity.task_id = secrets.randbits(63) + 1
        try:
            if self._app is None:
                self._app = self._load(header["directory"], header["client_app"])
            return self._app(message=message, context=context)
        except Exception as error:
            code, reason = flower.error_code.CLIENT_APP_RAISED_EXCEPTION, describe(error)
            if isinstance(error, flower.load_error):
                code = flower.error_code.LOAD_CLIENT_APP_EXCEPTION
                reason = "An exception was raised when attempting to load `ClientApp`"
            logging.getLogger("flwr").error("ClientApp raised an exception", exc_info=error)
            return flower.message(flower.error(code=code, reason=reason), reply_to=message)

    def _load(self, directory: str, reference: str) -> object:
        app = self._flower.load_app(reference, self._flower.load_error, directory)
        if not isinstance(app, self._flower.client_app):
            raise self._flower.load_error(f"{reference} is a {type(app)}, not a {self._flower.client_app}")
        limit_gpu_memory()
        return app

    def _send_reply(self, reply: object, context: object, runtime_s: float) -> None:
        flower = self._flower
        if not isinstance(reply, flower.message):
            raise TypeError(f"the ClientApp returned a {type(reply)}, not a Message")
        reply.metadata.__dict__["_message_id"] = reply.object_id
        message = flower.serde.message_to_proto(flower.without_content(reply)).SerializeToString()
        context = flower.serde.context_to_proto(context).SerializeToString()
        with flower.no_object_id_recompute():
            objects: dict[str, object] = {}
            tree = self._gather(reply.metadata.message_id, reply, objects).SerializeToString()
            del reply
            for name in list(objects):
                self._channel.send("object", (encoded(objects.pop(name)),), id=name)
        parts = ([message], [tree], [context])
        self._channel.send("reply", parts, loaded=self._app is not None, runtime_s=runtime_s)

    def _gather(self, name: str, held: object, objects: dict[str, object]) -> object:
        """Returns the tree of an object; adds the object and its descendants to `objects`, children first."""
        children = (held.children or {}).items()
        trees = [self._gather(child_name, child, objects) for child_name, child in children]
        objects[name] = held
        return self._flower.protocol.ObjectTree(object_id=name, children=trees)


def body_of(content: bytes) -> memoryview:
    """An object without its header, which ends at the first zero byte."""
    return memoryview(content)[content.index(0) + 1 :]


def encoded(held: object) -> list:
    """The bytes of an object as buffers; flwr would copy the bulk of a model twice."""
    if type(held).__qualname__ == "ArrayChunk":
        return [b"ArrayChunk  %d\0" % len(held.data), held.data]
    return [held.deflate()]


def describe(error: Exception) -> str:
    """The format of official error replies."""
    return f"{type(error)}:<'{error}'>"


def limit_gpu_memory() -> None:
    """Applies TRELLIS_GPU_MEMORY_FRACTION if the app uses torch; other libraries have no such limit."""
    fraction, torch = os.environ.get("TRELLIS_GPU_MEMORY_FRACTION"), sys.modules.get("torch")
    if not fraction or torch is None or not torch.cuda.is_available():
        return
    for device in range(torch.cuda.device_count()):
        torch.cuda.set_per_process_memory_fraction(float(fraction), device)


def flush_output() -> None:
    """Output of the app precedes its reply."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, OSError, ValueError):
            pass  # The app may have closed or replaced it.


def main() -> None:
    channel = Channel()
    # Prints the stack after a crash in native code.
    faulthandler.enable()
    # Python adds the directory of this file, which apps must not import from.
    if sys.path and sys.path[0] == os.path.dirname(os.path.abspath(__file__)):
        del sys.path[0]
    try:
        flower = Flower()
    except Unusable as error:
        channel.send("unusable", reason=str(error))
        return
    except Exception as error:
        traceback.print_exc()
        channel.send("unusable", reason=f"its flwr cannot be used: {describe(error)}"[:REASON_LIMIT])
        return
    channel.send("ready", python=platform.python_version(), flwr=flower.version)
    try:
        Worker(channel, flower).serve()
    except NodeGone:
        pass


if __name__ == "__main__":
    main()
