"""Program whose end waits for that of a daemon it has started, as by its number."""

AWAITING = """
import os, signal, subprocess, sys, time
from pathlib import Path
started = subprocess.check_output(["sh", "-c", "sleep 600 > /dev/null & echo $!"], text=True)
daemon = Path("/proc", started.strip())
def end(*_):
    while daemon.exists():
        time.sleep(0.01)
    Path(sys.argv[1]).with_name("in order").touch()
    os._exit(0)
signal.signal(signal.SIGTERM, end)
"""
"""Its beginning. At SIGTERM it waits until the daemon has vanished, and makes the file ``in order``
beside the one that its first argument names."""
