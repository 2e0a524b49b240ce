"""A Python that starts in 0.1 seconds: it is forked from a process that has imported torch and fairseq, but not the
package. ``forked_python()`` is a program that takes what Python takes, passes Ctrl-C and SIGTERM on, and ends as the
process does.

Tests of what is imported call ``sys.executable``.
"""

import json
import os
import signal
import socket
import sys
from contextlib import suppress

IMPORTED = "fairseq_cli.train fairseq_cli.validate fairseq_cli.generate fairseq_cli.interactive fairseq_cli.eval_lm "
IMPORTED += "fairseq_cli.preprocess fairseq_cli.hydra_train jinja2 matplotlib.pyplot multiprocessing.spawn "
IMPORTED += "pandas sacrebleu scipy.stats setuptools snakemake.cli torch._dynamo yaml"


def forked_python() -> str:
    """The program's path. What forks ends with the first process that asks, of which xdist's workers are children."""
    import atexit
    import subprocess
    import tempfile

    if "FORKED_PYTHON" in os.environ:
        return os.environ["FORKED_PYTHON"]
    folder = tempfile.TemporaryDirectory(dir="/tmp")  # a socket's path must be short
    program, address = f"{folder.name}/python", f"{folder.name}/socket"
    with open(program, "w") as file:
        file.write(f'#!/bin/sh\nexec "{sys.executable}" -IS "{__file__}" "{address}" "$0" "$@"\n')
    os.chmod(program, 0o755)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        number = listener.fileno()
        command = [sys.executable, "-W", "ignore", __file__, str(number)]
        server = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[number])
    atexit.register(lambda: (server.communicate(), folder.cleanup()))
    os.environ["FORKED_PYTHON"] = program
    return program


def call(address, program, *arguments) -> None:
    """In the place of Python: has a new process run the command, and ends as it does."""
    words = list(arguments)
    while words and (words[0] == "-B" or words[0].startswith("-W")):
        del words[: 2 if words[0] == "-W" else 1]
    if not words or (words[0].startswith("-") and words[0] not in ("-m", "-c", "-")):
        os.execv(sys.executable, [sys.executable, *arguments])
    opened = [number for number in map(int, os.listdir("/proc/self/fd")) if os.path.exists(f"/proc/self/fd/{number}")]
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        socket.send_fds(connection, [json.dumps(opened).encode()], opened)
        ignored = signal.getsignal(signal.SIGINT) == signal.SIG_IGN
        connection.sendall(json.dumps([ignored, words, program, os.getcwd(), dict(os.environ)]).encode() + b"\n")
        answers = connection.makefile()
        group = int(answers.readline())
        def pass_on(number, _):
            with suppress(ProcessLookupError):  # it may be gone already
                (os.killpg if number == signal.SIGINT else os.kill)(group, number)
        for number in [signal.SIGTERM] + [signal.SIGINT] * (not ignored):
            signal.signal(number, pass_on)
        code = int(answers.readline())  # when the process is gone
    if code < 0:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)


def serve(listener) -> None:
    """Forks a process for each call, until the tests end, which closes this one's input."""
    import contextlib
    import gc
    import importlib
    import select

    sys.path[:] = [folder for folder in sys.path[1:] if folder not in os.environ.get("PYTHONPATH", "").split(":")]
    for name in IMPORTED.split():
        with contextlib.suppress(ImportError):  # an extra that isn't installed
            importlib.import_module(name)
    gc.freeze()
    running = {}  # by the descriptor that tells when it has ended: a process, and where it was called
    while 0 not in (ready := select.select([listener, 0, *running], [], [])[0]):
        if listener in ready:
            connection, _ = listener.accept()
            process = os.fork()
            if process == 0:
                listener.close()
                answer(connection)
            running[os.pidfd_open(process)] = process, connection
        for ended in running.keys() & set(ready):
            process, connection = running.pop(ended)
            os.close(ended)
            with connection, contextlib.suppress(OSError):  # the caller is dead
                connection.sendall(b"%d\n" % os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]))


def answer(connection) -> None:
    """Runs a command and ends as Python does, but for freeing the memory of all modules, which takes half a second."""
    import atexit
    import fcntl
    import select
    import signal
    import threading

    # out of the way of the caller's open files, which get the numbers that they have there
    connection = socket.socket(fileno=fcntl.fcntl(connection.detach(), fcntl.F_DUPFD_CLOEXEC, 400))
    numbers, received, *_ = socket.recv_fds(connection, 1000, 100)
    aside = [fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, 500) for number in received]
    os.closerange(3, 400)
    for number, place in zip(json.loads(numbers), aside):
        os.dup2(place, number)
        os.close(place)
    ignored, *request = json.loads(connection.makefile().readline())
    signal.signal(signal.SIGINT, signal.SIG_IGN if ignored else signal.default_int_handler)
    os.setpgid(0, 0)  # with what it starts, as the caller is with what it starts
    connection.sendall(b"%d\n" % os.getpid())
    fcntl.fcntl(connection, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(connection, fcntl.F_SETFL, os.O_ASYNC)  # where the caller dies, a signal that ends this process
    if select.select([connection], [], [], 0)[0]:
        os._exit(1)  # it is dead already
    code = None
    try:
        run(*request)
    except SystemExit as end:
        code = end.code
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    if not isinstance(code, (int, type(None))):
        print(code, file=sys.stderr)
        code = 1
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        if not stream.closed:
            stream.flush()
    os._exit(code or 0)


def run(words, program, folder, environment) -> None:
    """With the caller's variables and folder; other programs that it starts as ``sys.executable`` are forked, too."""
    import multiprocessing.spawn
    import runpy
    import types

    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    kind, *sys.argv = words
    sys.executable = program
    multiprocessing.spawn.set_executable(program)
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    first = {"-m": folder, "-c": "", "-": ""}.get(kind, os.path.dirname(kind))
    sys.path[:0] = [first, *filter(None, environment.get("PYTHONPATH", "").split(":"))]
    what = sys.argv.pop(0) if kind in ("-m", "-c") else kind
    sys.argv.insert(0, kind)
    if kind == "-m":
        runpy._run_module_as_main(what)
    elif kind in ("-c", "-"):
        exec(what if kind == "-c" else sys.stdin.read(), main.__dict__)
    else:
        runpy.run_path(kind, run_name="__main__")


if __name__ == "__main__":
    if len(sys.argv) == 2:
        serve(socket.socket(fileno=int(sys.argv[1])))
    else:
        call(*sys.argv[1:])
