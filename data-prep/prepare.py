"""``prepare.py NAME ARGUMENTS...``: prepare_NAME.py's ``main`` as prepare-NAME.sh. Mistakes end it with one line."""

import importlib
import logging
import os
import signal
import sys

if __name__ == "__main__":  # a process for a part of the text imports this file again, where it isn't forked
    name = sys.argv.pop(1)
    sys.argv[0] = f"prepare-{name}.sh"
    os.register_at_fork(after_in_child=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))  # this process ends them
    logging.disable(logging.INFO)  # fairseq's notes on what it loads
    try:
        importlib.import_module(f"prepare_{name}").main()
    except (ValueError, OSError, EOFError) as error:
        sys.exit(f"{sys.argv[0]}: error: {error}")
    except KeyboardInterrupt:
        sys.exit(f"{sys.argv[0]}: interrupted: no output was kept")
