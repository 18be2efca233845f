import importlib
import json
import os
import site
import sys
import sysconfig

for name in ("ssl", "ctypes", "hashlib", "lzma", "sqlite3"):
    try:
        importlib.import_module(name)
    except ImportError:
        pass
with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
    fields = (line.rstrip("\n").split(None, 5) for line in maps)
    libraries = {line[5] for line in fields if len(line) == 6 and line[5].startswith("/")}
program = os.path.realpath(sys.executable)
prefixes = [sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix]
installed = sysconfig.get_paths()
vital = [program, *prefixes, *(installed[name] for name in ("stdlib", "platstdlib", "purelib", "platlib"))]
search = [os.path.abspath(entry) for entry in sys.path if entry]
paths = [*vital, *search, *installed.values(), *libraries]
# A mapped file may have been deleted ("... (deleted)").
paths = sorted({path for path in paths if os.path.exists(path)})
base = site.getuserbase() if site.ENABLE_USER_SITE else None
vital = sorted({path for path in vital if os.path.exists(path)})
print(json.dumps({"executable": sys.executable, "paths": paths, "vital": vital, "user_base": base}))
