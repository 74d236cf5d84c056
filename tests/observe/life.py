# SPDX-License-Identifier: MIT
"""A program with ten moments: at each it prints its process id and its live bytes, and waits for a line."""
import os
import signal
import sys
import threading


def moment(name, pid=None):
    while pid is None and len(os.listdir("/proc/self/task")) > 1 + len(waiting):
        pass  # a joined thread may still be ending
    print(pid or os.getpid(), name, flush=True)
    sys.stdin.readline()


def hold(count):
    blocks = [bytes(200 + i % 3000) for i in range(count)]
    ready.release()
    stop.wait()
    del blocks


waiting, ready, stop = [], threading.Semaphore(0), threading.Event()
moment("started")
blocks = [bytes(1000) for _ in range(20000)]
moment("20000 blocks")
for i in range(0, len(blocks), 2):
    blocks[i] = None
moment("every second deleted")
large = [bytearray(b"x") * (1 << 16 + i % 8) for i in range(24)]
moment("large blocks")
del large[::2]
moment("half of them deleted")
zeros = bytearray(40 << 20)
read = sum(zeros[:: 1 << 12])  # pages of zeros that were read, and never written
moment("zeros")
waiting = [threading.Thread(target=hold, args=(3000,)) for _ in range(4)]
for thread in waiting:
    thread.start()
for thread in waiting:
    ready.acquire()
moment("four threads")
child = os.fork()
if child == 0:
    while True:
        signal.pause()  # until the parent ends it
moment("a forked child", child)
os.kill(child, 9)
os.waitpid(child, 0)
stop.set()
for thread in waiting:
    thread.join()
waiting = []
moment("threads ended")
blocks = large = zeros = None
moment("all deleted")
