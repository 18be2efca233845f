"""Parts of the package that need no server."""

import io
import json
import pickle
import struct
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

pytestmark = [pytest.mark.quick, pytest.mark.trellis_only]

SECRET = "a-token-that-nobody-sees"


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize(
    ("head", "body"),
    [("Content-Length: 5", b"hello"), ("Transfer-Encoding: chunked", b"3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n"), ("X: y", b"hello")],
)
def test_an_answer_is_whole_however_it_is_cut(size, head, body):
    from trellis._http import Answer

    answer, text = Answer(), b""
    stream = f"HTTP/1.1 200 OK\r\n{head}\r\n\r\n".encode() + body
    for at in range(0, len(stream), size):
        answer.feed(stream[at : at + size])
        text += answer.take()
    answer.feed(b"")
    assert (answer.status, text, answer.complete) == (200, b"hello", True)


@pytest.mark.parametrize("stream", [b"", b"HTTP/1.1 200 OK\r\nContent-Le", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel"])
def test_an_answer_that_breaks_off_is_an_error(stream):
    from trellis._http import Answer

    answer = Answer()
    if stream:
        answer.feed(stream)
    with pytest.raises(ConnectionError):
        answer.feed(b"")


CHUNKS = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize("stream", [b"SSH-2.0-OpenSSH\r\n\r\n", b"x" * 100_000, CHUNKS + b"-5\r\n", CHUNKS + b"1" * 10_000])
def test_what_is_no_http_is_told(stream):
    from trellis._http import Answer
    from trellis.errors import UnexpectedAnswer

    with pytest.raises(UnexpectedAnswer, match="Trellis server"):
        Answer().feed(stream)


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_events_are_whole_however_the_stream_is_cut(size):
    from trellis import _decode
    from trellis._sse import Lines

    stream = (
        b': still here\n\nevent: resync\ndata: {"kind":"resync"}\n\n'
        b'event: later\r\ndata: {"kind":"of-a-newer-server"}\r\n\r\ndata:{"kind":"gone",\ndata:"federation":"lab"}\n\ndata: {"ki'
    )
    lines, told = Lines(), []
    for at in range(0, len(stream), size):
        told += [_decode.read_event(data) for data in lines.feed(stream[at : at + size])]
    assert [event and event.kind for event in told] == ["resync", None, "gone"]


def test_answers_of_newer_servers_are_read_and_others_are_not():
    from trellis import _decode, types
    from trellis.errors import UnexpectedAnswer

    me = _decode.read(types.Me, b'{"name": "ada", "role": "admin", "version": "9", "shoe_size": 36}')
    assert me == types.Me(name="ada", role="admin", version="9")
    for body in (b"[]", b"{}", b"no", b'{"name": 1, "role": "admin", "version": "9"}'):
        with pytest.raises(UnexpectedAnswer, match="no Me"):
            _decode.read(types.Me, body)


def test_a_secret_is_in_no_text():
    import trellis
    from trellis import _target, types

    target = _target.find("http://127.0.0.1:1", token=SECRET)
    client = trellis.Client(target)
    issued = types.IssuedToken(token=SECRET, about=types.Token(id="1", name="ada", role="viewer", created_at=0.0))
    with pytest.raises(trellis.Unreachable) as error:
        client.me()
    import traceback

    texts = [repr(target), repr(client), repr(issued), str(error.value), "".join(traceback.format_exception(error.value))]
    assert not [text for text in texts if SECRET in text]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"url": "http://example.org:7766"}, "could be read on the way"),
        ({"url": "example.org"}, "no URL"),
        ({"url": "https://example.org/api"}, "no URL"),
        ({"url": "https://ada:secret@example.org"}, "no user"),
        ({"url": "http://127.0.0.1:99999"}, "no usable host and port"),
        ({"url": "https://ada:secret@example.org:99999"}, "no usable host and port"),
        ({"url": "https://[::1"}, "no usable host and port"),
        ({"url": "https://" + "ä" * 80}, "no usable host and port"),
        ({"url": "http://127.0.0.1", "home": "/tmp"}, "both url= and home="),
        ({"url": "http://127.0.0.1", "token": "two\r\nlines"}, "no token in token="),
        ({"url": "http://127.0.0.1", "token": None}, "token_file="),
        ({"url": "http://127.0.0.1", "token_file": "x"}, "leave out one"),
        ({"url": "http://127.0.0.1", "token": None, "token_file": "/nowhere"}, "cannot be read"),
        ({"url": "https://127.0.0.1", "root_certificates": "/nowhere"}, "PEM file"),
    ],
)
def test_a_server_that_cannot_be_meant(given, why):
    from trellis._target import find
    from trellis.errors import ConfigurationError

    with pytest.raises(ConfigurationError, match=why) as error:
        find(**{"token": SECRET, **given})
    assert SECRET not in str(error.value) and "secret" not in str(error.value)


def test_documents_are_dicts_texts_and_files(tmp_path: Path):
    from trellis._document import text_of
    from trellis.errors import ConfigurationError

    document = {"metadata": {"name": "lab"}, "spec": {}}
    file = tmp_path / "federation.yaml"
    file.write_text("metadata: {name: lab}\n")
    assert text_of(document) == (json.dumps(document), "lab")
    assert text_of(json.dumps(document))[1] == "lab"
    assert text_of("metadata: {name: lab}\n") == text_of(file) == text_of(str(file)) == ("metadata: {name: lab}\n", None)
    with pytest.raises(ConfigurationError, match=r"nowhere\.yaml cannot be read"):
        text_of("nowhere.yaml")


def report(number: int, **fields):
    from trellis import types

    given = {"round": number, "kind": "round", "strategy": "FedAvg", "rounds_planned": 2, "started_at": 0.0}
    return types.TrainingReport(**{**given, **fields})


def phase(**metrics):
    from trellis import types

    return types.PhaseReport(seconds=0.5, asked=2, answered=2, metrics=metrics)


def test_rounds_become_rows():
    from trellis._history import history

    rounds = [
        report(1, train=phase(loss="nan"), evaluate=phase(evaluate_accuracy=0.5)),
        report(2, train=phase(loss=1.0), epsilon=2.0),
        report(2, kind="end"),
    ]
    first, second = history(rounds)
    assert first["train_loss"] != first["train_loss"], "nan"
    assert {key: first[key] for key in first if key != "train_loss"} == {
        "round": 1,
        "seconds": 1.0,
        "nodes": 2,
        "evaluate_accuracy": 0.5,
    }
    assert second == {"round": 2, "seconds": 0.5, "nodes": 2, "epsilon": 2.0, "train_loss": 1.0}
    assert history(rounds).column("epsilon") == [None, 2.0]


def safetensors(tensors: dict[str, tuple[str, list[int], bytes]], **metadata: str) -> bytes:
    header, data = {"__metadata__": metadata}, b""
    for name, (dtype, shape, content) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def test_models_become_arrays_in_the_order_of_the_model():
    from trellis._safetensors import arrays

    wide = np.arange(6, dtype="<f8").reshape(2, 3)
    half = np.array([1.5, -2.0], dtype="<f4")
    content = safetensors(
        {
            "w": ("F64", [2, 3], wide.tobytes()),
            "b": ("BF16", [2], (half.view("<u4") >> 16).astype("<u2").tobytes()),
            "n": ("I64", [], np.int64(7).tobytes()),
        },
        order='["n", "w", "b"]',
    )
    found = arrays(content)
    assert list(found) == ["n", "w", "b"]
    np.testing.assert_array_equal(found["w"], wide)
    np.testing.assert_array_equal(found["b"], half)
    assert found["n"] == 7 and found["n"].shape == () and found["w"].flags.writeable


@pytest.mark.parametrize("content", [b"", b"\x05", safetensors({"w": ("F64", [2], b"short")}), safetensors({"w": ("X", [1], b"1")})])
def test_a_model_that_is_none_is_told(content):
    from trellis._safetensors import arrays
    from trellis.errors import UnexpectedAnswer

    with pytest.raises(UnexpectedAnswer, match="safetensors"):
        arrays(content)


def test_what_the_program_complains_about_is_read():
    from trellis._program import Finished, failed

    one = failed("trellis run", Finished(1, "", "note: x\ntrellis run: it is no app\n  to do: name one\n"))
    assert str(one) == "it is no app (to do: name one)"
    many = failed(
        "trellis run",
        Finished(2, "", "trellis run: 2 problems with the arguments, nothing was done\n\n  1. a is wrong\n     to do: b\n  2. c\n"),
    )
    assert [(problem.what, problem.advice) for problem in many.problems] == [("a is wrong", "b"), ("c", "")]
    assert "- a is wrong\n  to do: b\n- c" in str(many)
    assert "ended with 101: panicked" in str(failed("trellis up", Finished(101, "", "panicked\n")))


def test_errors_survive_a_pool_of_workers():
    import trellis
    from trellis import types

    detail = types.Detail(what="no", advice="yes", path="spec.nodes", line=3, column=9)
    for error in (trellis.Invalid(422, "invalid", "bad", [detail]), trellis.ProgramFailed("bad"), trellis.RunFailed("1", "why")):
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is type(error) and str(again) == str(error) and vars(again) == vars(error)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_a_bar_on_a_terminal_and_lines_elsewhere(monkeypatch):
    from trellis import types
    from trellis._progress import Progress

    monkeypatch.setenv("COLUMNS", "200")
    info = types.RunInfo(
        app="a", federation="f", id="7", native=True, state="finished", submitted_at=0.0, version="1", outcome="completed"
    )
    shown = {}
    for stream in (io.StringIO(), Terminal()):
        progress = Progress("7", stream)
        progress.round(report(1, train=phase(loss=0.25)))
        progress.end(info)
        shown[stream.isatty()] = stream.getvalue()
    assert shown[False] == "round 1/2  0.50 s  2/2 nodes  train_loss 0.2500\nrun 7 completed\n"
    assert shown[True] == f"\r\x1b[2K[{'#' * 12}{'.' * 12}] {shown[False].splitlines()[0]}\nrun 7 completed\n"


def test_progress_is_one_bar_in_a_notebook(monkeypatch):
    """The display of a notebook, as much of it as is used."""
    from trellis import types
    from trellis._progress import Progress

    shown: list[list[str]] = []

    class Handle:
        def update(self, content: str) -> None:
            shown[-1].append(content)

    def display(content: str, display_id: bool) -> Handle:
        shown.append([content])
        return Handle()

    module = ModuleType("IPython")
    module.get_ipython = lambda: SimpleNamespace(config={"IPKernelApp": {}})
    module.display = SimpleNamespace(display=display, HTML=str)
    monkeypatch.setitem(sys.modules, "IPython", module)
    progress = Progress("7")
    progress.round(report(1, train=phase(loss=0.25)))
    progress.round(report(2, train=phase(**{"<script>": 0.125})))
    progress.end(
        types.RunInfo(app="a", federation="f", id="7", native=True, state="finished", submitted_at=0.0, version="1", outcome="failed")
    )
    [[first, second, last]] = shown
    assert 'value="1" max="2"' in first and "train_loss 0.2500" in first
    assert 'value="2" max="2"' in second and "&lt;script&gt;" in second and "<script>" not in second
    assert "run 7 failed" in last
    module.display.display = lambda content, display_id: 1 / 0
    Progress("7").round(report(1)), "a display that fails ends nothing"


def test_a_server_that_is_away_is_forgiven_for_a_while():
    import trellis
    from trellis._patience import Absence

    now = [0.0]
    absence = Absence(60.0, clock=lambda: now[0])
    away = trellis.Unreachable("away")
    absence.excuse(away)
    now[0] = 59.0
    absence.excuse(away)
    absence.over()
    now[0] = 110.0
    absence.excuse(away)
    now[0] = 171.0
    with pytest.raises(trellis.Unreachable):
        absence.excuse(away)
    with pytest.raises(trellis.Unauthorized):
        Absence().excuse(trellis.Unauthorized(401, "unknown-caller", "no"))
