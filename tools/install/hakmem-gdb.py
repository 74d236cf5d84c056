# SPDX-License-Identifier: MIT
"""gdb loads this with libhakmem where both are installed below gdb's prefix; elsewhere: source PATH/hakmem-gdb.py.

`hakmem block` and `hakmem heap` only read memory: they work on a live process and on a core, of the kernel or of gdb,
and need no debug information. The section .hakmem.layout (src/core/base/layout.h) has the addresses."""
import struct

import gdb
import gdb.printing


class Library:
    """The library or program with the records, and memory by their names."""

    def __init__(self):
        for objfile in gdb.objfiles():
            try:
                self._read(objfile.filename)
            except (OSError, TypeError, struct.error, IndexError):
                continue
            if self.records:
                self._find(objfile.filename)
                return
        raise gdb.GdbError("no loaded file has hakmem's records; does hakmem serve the process?")

    def _read(self, path):
        self.records, self.text = {}, None
        with open(path, "rb") as stream:
            data = stream.read()
        if data[:5] != b"\x7fELF\x02":
            return
        at, size, count, names = *struct.unpack_from("=Q", data, 40), *struct.unpack_from("=HHH", data, 58)
        sections = [struct.unpack_from("=IIQQQQ", data, at + i * size) for i in range(count)]
        for name, _, _, address, offset, length in sections:
            start = sections[names][4] + name
            title = data[start:data.index(b"\0", start)]
            if title == b".text":
                self.text = address
            elif title == b".hakmem.layout":
                self._parse(data[offset:offset + length])

    def _parse(self, data):
        at = 0
        while (end := data.find(b"\0", at)) >= 0:
            self.records[data[at:end].decode()] = struct.unpack_from("=QQ", data, end + 1)
            at = end + 17

    def _find(self, path):
        """The offset at which it was loaded."""
        for line in gdb.execute("info files", to_string=True).splitlines():
            words = line.split()
            if words[3:5] == ["is", ".text"] and (words[5:] == ["in", path] or not words[5:]):
                if words[5:] or path == gdb.current_progspace().filename:
                    self.bias = int(words[0], 16) - self.text
                    return
        raise gdb.GdbError(f"{path} is not loaded")

    def number(self, name):
        return self.records[f"number {name}"][0]

    def read(self, address, size):
        return bytes(gdb.selected_inferior().read_memory(address, size))

    def variable(self, name):
        address, size = self.records[f"variable {name}"]
        return self.read(address + self.bias, size)

    def get(self, data, field, at=0):
        offset, size = self.records[f"field {field}"]
        return int.from_bytes(data[at + offset:at + offset + size], "little")

    def has(self, field):
        return f"field {field}" in self.records


class Slab:
    """A run of pages carved into blocks, or one large block."""

    def __init__(self, library, data):
        self.library = library
        self.data = data
        for name in ("base", "used", "carved", "capacity", "stride", "pages", "cls", "word", "owner", "requested"):
            setattr(self, name, library.get(data, f"hak_slab.{name}"))
        states = ("active", "full", "partial", "empty", "span", "arena")
        state = self.word & library.number("state_mask")
        self.state = next((name for name in states if library.number(f"state.{name}") == state), "unused")
        self.is_span = self.state == "span" or (self.state == "arena" and self.cls == library.number("class_span"))
        self.remote = self.word >> library.number("remote_shift") & library.number("remote_mask")

    def owner_name(self):
        if self.state == "arena":
            offset, length = self.library.records["field hak_arena.name"]
            name = self.library.read(self.owner + offset, length).partition(b"\0")[0].decode(errors="replace")
            return f"the program's heap {self.owner:#x} {name!r}"
        return f"heap {self.owner:#x}, {thread_of(self.library, self.owner)}" if self.owner else "nobody"

    def block(self, number):
        """Facts about a block."""
        if number >= self.carved:
            return "not cut yet"
        words = self.library.get(self.data, "hak_slab.bitmap")
        if words and self.library.read(words + number // 64 * 8, 8)[number % 64 // 8] >> number % 8 & 1:
            return "free, in its slab"
        if heap := self.bin_of(self.base + number * self.stride):
            return f"free, in the bin of heap {heap:#x}"
        known = self.library.has("hak_bin.own.slots") and self.library.has("hak_cache.bin")
        return ("live" + ("" if known else ", or in the bin of a heap")
                + (f", or one of {self.remote} that other threads freed" if self.remote else ""))

    def bin_of(self, address):
        """The heap whose bin contains the block; 0 if none is found, or bins are not arrays."""
        if not self.library.has("hak_bin.own.slots") or not self.library.has("hak_cache.bin"):
            return 0
        for heap, data in heaps(self.library):
            bin_at = self.library.records["field hak_heap.bins"][0] + self.cls * self.library.number("sizeof.hak_bin")
            slots, cache = self.library.get(data, "hak_bin.own.slots", bin_at), self.library.get(data, "hak_heap.cache")
            length = 0
            if cache and slots:
                end = self.library.read(cache + self.library.records["field hak_cache.bin"][0] + self.cls * 8, 8)
                length = (int.from_bytes(end, "little") - slots) // 8
            if slots and 0 < length < 1 << 16:
                if struct.pack("=Q", address) in self.library.read(slots + 8, length * 8):
                    return heap
        return 0


def heaps(library):
    """Address and content of all heaps."""
    heap = int.from_bytes(library.variable("used"), "little")
    for _ in range(1 << 16):
        if not heap:
            break
        data = library.read(heap, library.number("sizeof.hak_heap"))
        yield heap, data
        heap = library.get(data, "hak_heap.next")


def zones(library):
    count, size = int.from_bytes(library.variable("hak_zone_count"), "little"), library.number("sizeof.hak_zone")
    data = library.variable("hak_zones")
    for i in range(min(count, len(data) // size)):
        yield library.get(data, "hak_zone.base", i * size), library.get(data, "hak_zone.mapped", i * size)


def descriptor(library, page):
    table, size = library.variable("hak_page_map"), library.number("sizeof.hak_slab")
    rotation, mask = (library.get(table, f"hak_page_map.{name}") for name in ("rotation", "mask"))
    return library.get(table, "hak_page_map.descriptors") + (page + rotation & mask) * size


def slab_of(library, address):
    """The slab around an address; None if there is none."""
    if not any(base <= address < base + mapped for base, mapped in zones(library)):
        return None
    page, size = address >> 16, library.number("sizeof.hak_slab")
    data = library.read(descriptor(library, page), size)
    if head := library.get(data, "hak_slab.head_offset"):
        data = library.read(descriptor(library, page - head), size)
    slab = Slab(library, data)
    return slab if slab.base <= address < slab.base + (slab.pages << 16) else None


def thread_of(library, heap):
    """The number of gdb's thread whose storage has the heap's cache."""
    for address, data in heaps(library):
        cache = library.get(data, "hak_heap.cache")
        if address != heap or not cache:
            continue
        for thread in gdb.selected_inferior().threads():
            before = gdb.selected_thread()
            thread.switch()
            try:
                base = int(gdb.parse_and_eval("(unsigned long)$fs_base"))
            except gdb.error:
                base = 0
            before.switch()
            if 0 < base - cache < 1 << 16:
                return f"thread {thread.num}"
        return "a thread"
    return "an ended thread, or all threads"


def tell_block(argument):
    library = Library()
    address = int(gdb.parse_and_eval(f"(unsigned long)({argument})"))
    slab = slab_of(library, address)
    if slab is None or slab.state == "unused":
        print(f"{address:#x}: in no slab (a block above 64 MiB has its own mapping, not searched here)")
        return
    if slab.is_span:
        where = "" if address == slab.base else f", {address - slab.base} bytes behind its start {slab.base:#x}"
        print(f"{address:#x}: large block of {slab.requested} bytes in {slab.pages} pages of 64 KiB{where}"
              + (f", of {slab.owner_name()}" if slab.state == "arena" else ""))
        return
    number, inside = divmod(address - slab.base, slab.stride)
    print(f"{address:#x}: block {number} of {slab.capacity}, {slab.stride} bytes (class {slab.cls})"
          + (f", {inside} bytes behind its start {address - inside:#x}" if inside else ""))
    print(f"  {slab.block(number)}")
    print(f"  slab {slab.base:#x}, {slab.state}, of {slab.owner_name()}; {slab.used} blocks not free in it, "
          f"{slab.carved} cut")
    for other, name in (number - 1, "before"), (number + 1, "behind"):
        if 0 <= other < slab.capacity:
            print(f"  the block {name}: {slab.base + other * slab.stride:#x}, {slab.block(other)}")


def tell_heap():
    library = Library()
    size = library.number("sizeof.hak_slab")
    classes, spans = {}, [0, 0]
    for base, mapped in zones(library):
        page = base >> 16
        while page < base + mapped >> 16:
            slab = Slab(library, library.read(descriptor(library, page), size))
            if slab.base != page << 16 or slab.state == "unused" or not slab.pages:
                page += 1
                continue
            if slab.is_span:
                spans = [spans[0] + 1, spans[1] + slab.requested]
            else:
                row = classes.setdefault(slab.stride, [0, 0, 0, 0])
                for i, more in enumerate((1, slab.used, slab.carved - slab.used, slab.pages << 16)):
                    row[i] += more
            page += slab.pages
    for heap, data in heaps(library):
        print(f"heap {heap:#x}: "
              f"{thread_of(library, heap) if library.get(data, 'hak_heap.cache') else 'waits for a thread'}")
    print(f"{'stride':>8} {'slabs':>7} {'not free':>9} {'free':>9} {'KiB':>9}")
    for stride, (slabs, used, free, length) in sorted(classes.items()):
        print(f"{stride:8} {slabs:7} {used:9} {free:9} {length >> 10:9}")
    print(f"large blocks: {spans[0]}, {spans[1]} bytes")


def tell_log():
    library = Library()
    ring, written = library.variable("hak_log_ring"), int.from_bytes(library.variable("hak_log_written"), "little")
    at = written % len(ring)
    lines = (ring[at:] + ring[:at]).lstrip(b"\0").decode(errors="replace").splitlines()
    print("\n".join("".join(c if c.isprintable() else "?" for c in line) for line in lines))


class Hakmem(gdb.Command):
    """hakmem block ADDRESS: class, slab, state, owner, free or live, and the neighbours.
hakmem heap: heaps, slabs by size, and large blocks.
hakmem log: the last lines that the library logged.
hakmem stats|json: the stopped process writes its report to its stderr.
hakmem usable ADDRESS: how many bytes of a block may be used.
The process runs for the last three: no thread may stand inside of malloc or free."""

    def __init__(self):
        super().__init__("hakmem", gdb.COMMAND_DATA)

    def invoke(self, argument, from_tty):
        verb, _, rest = argument.partition(" ")
        if verb == "block" and rest:
            tell_block(rest)
        elif verb == "heap" and not rest:
            tell_heap()
        elif verb == "log" and not rest:
            tell_log()
        elif verb in ("stats", "json") and not rest:
            gdb.parse_and_eval(f"((int (*)(int, int))hakmem_stats)(2, {int(verb == 'json')})")
        elif verb == "usable" and rest:
            print(gdb.parse_and_eval(f"((unsigned long (*)(void *))hakmem_malloc_usable_size)((void *)({rest}))"))
        else:
            raise gdb.GdbError("hakmem block ADDRESS, hakmem heap, hakmem log, hakmem stats, hakmem json, "
                               "or hakmem usable ADDRESS")


class SlabPrinter:
    """With debug information, `print *slab` shows a slab in one line."""

    def __init__(self, value):
        self.value = value

    def to_string(self):
        v = self.value
        return (f"slab {int(v['base']):#x}: {int(v['used'])} of {int(v['capacity'])} blocks of "
                f"{int(v['stride'])} bytes, {int(v['carved'])} cut, class {int(v['cls'])}")


Hakmem()
printers = gdb.printing.RegexpCollectionPrettyPrinter("hakmem")
printers.add_printer("hak_slab", "^hak_slab$", SlabPrinter)
gdb.printing.register_pretty_printer(None, printers, replace=True)
