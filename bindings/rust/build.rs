// SPDX-License-Identifier: MIT
//! Builds hakmem's sources with cc: those in vendor, as in a package, else those of the checkout around this crate,
//! where python3 writes the table of size classes. It makes what meson.build makes there: hak_config.h, parts.c and
//! hak_settings.def.
use std::path::{Path, PathBuf};
use std::{env, fs, process::Command};

/// Names of parts, by kind, in the order in which Meson has them.
struct Parts {
    frontends: Vec<String>,
    backends: Vec<String>,
    releases: Vec<String>,
}

/// The default parts of meson_options.txt, beside src; a backend's meson.build says its kind.
fn built_parts(src: &Path) -> Parts {
    let options = fs::read_to_string(src.join("../meson_options.txt")).unwrap();
    let built = |option: &str| -> Vec<String> {
        let line = options.lines().find(|line| line.starts_with(&format!("option('{option}'"))).unwrap();
        let names = line.split("value: [").nth(1).unwrap().split(']').next().unwrap();
        names.split(',').map(|name| name.trim().trim_matches('\'').to_string()).collect()
    };
    let is_release = |name: &String| {
        let text = fs::read_to_string(src.join("backends").join(name).join("meson.build")).unwrap();
        text.lines().any(|line| line.starts_with("releases +="))
    };
    let (mut releases, backends): (Vec<_>, Vec<_>) = built("backends").into_iter().partition(is_release);
    releases.push("direct".to_string());
    Parts { frontends: built("frontends"), backends, releases }
}

fn feature(name: &str) -> bool {
    env::var_os(format!("CARGO_FEATURE_{name}")).is_some()
}

/// The one of several choices whose feature is on.
fn choice(default: &'static str, others: &[(&str, &'static str)]) -> &'static str {
    let on: Vec<_> = others.iter().filter(|(name, _)| feature(name)).collect();
    assert!(on.len() < 2, "hakmem: features {on:?} exclude each other");
    on.first().map_or(default, |(_, value)| value)
}

fn sources(folder: &Path, skip: &dyn Fn(&Path) -> bool, found: &mut Vec<PathBuf>) {
    let mut entries: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        if skip(&path) {
        } else if path.is_dir() {
            sources(&path, skip, found);
        } else if path.extension().map_or(false, |ending| ending == "c") {
            found.push(path);
        }
    }
}

/// The size ranges that the frontends' meson.build name.
fn ranges(src: &Path, parts: &Parts) -> Vec<String> {
    let range = |name: &String| {
        let text = fs::read_to_string(src.join("frontends").join(name).join("meson.build")).unwrap();
        let line = text.lines().find(|line| line.starts_with("size_ranges")).unwrap();
        line.split('\'').nth(1).unwrap().to_string()
    };
    parts.frontends.iter().map(range).collect()
}

fn table_of(parts: &Parts) -> String {
    let mut text = "#include \"core/parts/parts.h\"\n".to_string();
    for (kind, names) in [("frontend", &parts.frontends), ("backend", &parts.backends), ("release", &parts.releases)] {
        let entries: Vec<_> = names.iter().map(|name| format!("&hak_{kind}_{name}")).collect();
        for name in names {
            text += &format!("extern const struct hak_{kind} hak_{kind}_{name};\n");
        }
        text += &format!("const struct hak_{kind} *const hak_{kind}s[] = {{{}, NULL}};\n", entries.join(", "));
    }
    text
}

fn config(header: &str, cache: &str, cpu_heaps: bool, parts: &Parts) -> String {
    let arch = env::var("CARGO_CFG_TARGET_ARCH").unwrap();
    let version = env::var("CARGO_PKG_VERSION").unwrap();
    let flags = [
        ("SUPERSLAB_LG", 21), ("TINY_PREWARM", 0), ("POOL_PREWARM", 0), ("HARDENED", feature("HARDENED") as usize),
        ("HARDENED_FULL", feature("HARDENED") as usize),
        ("VALGRIND", 0), ("PROBES", 0), ("COUNTING", 0), ("SANITIZED", 0),
        ("OWN_THREADS", ["x86_64", "aarch64"].contains(&arch.as_str()) as usize),
        ("OWN_MMAP", (arch != "s390x") as usize),
        ("CACHE_ARRAY", (cache == "array") as usize), ("CPU_HEAPS", cpu_heaps as usize),
        ("SEQUENCES", (cpu_heaps && ["x86_64", "aarch64"].contains(&arch.as_str())) as usize),
        ("CACHE_SLOTS", (cache != "list") as usize), ("NFRONTENDS", parts.frontends.len()),
    ];
    let words = [
        ("VERSION", version.as_str()), ("TINY_HEADER_NAME", header), ("CACHE_NAME", cache),
        ("DEFAULT_BACKEND", parts.backends[0].as_str()), ("BUILD_ID", &format!("cargo-{header}")),
    ];
    let mut text: String = flags.iter().map(|(name, value)| format!("#define HAK_{name} {value}\n")).collect();
    text += "#define HAK_INLINE_NAME hakmem_inline_rust\n"; // there is no hakmem/inline.h for it
    text.extend(words.iter().map(|(name, value)| format!("#define HAK_{name} \"{value}\"\n")));
    text
}

fn main() {
    let here = PathBuf::from(env::var("CARGO_MANIFEST_DIR").unwrap());
    let out = PathBuf::from(env::var("OUT_DIR").unwrap());
    let vendor = here.join("vendor");
    let src = if vendor.is_dir() { vendor.join("src") } else { here.join("../../src") };
    println!("cargo:rerun-if-changed={}", src.display());
    println!("cargo:rerun-if-changed=build.rs");
    let parts = built_parts(&src);

    let header = choice("false", &[("HEADER", "true"), ("HEADER_SMALL", "small")]);
    let cache = choice("array", &[("CACHE_LIST", "list")]);
    let cpu_heaps = cache == "array" && !feature("HARDENED");
    fs::write(out.join("hak_config.h"), config(header, cache, cpu_heaps, &parts)).unwrap();
    fs::write(out.join("parts.c"), table_of(&parts)).unwrap();
    let mut tables = vec!["core/options.def"];
    if feature("HARDENED") {
        tables.push("core/heap/settings.def");
    }
    let settings: String = tables.iter().map(|table| format!("#include \"{table}\"\n")).collect();
    fs::write(out.join("hak_settings.def"), settings).unwrap();
    let table = out.join("sizeclass_table.h");
    if vendor.is_dir() {
        fs::copy(vendor.join(format!("sizeclass-{header}.h")), table).unwrap();
    } else {
        let script = src.join("core/base/sizeclass.py");
        let made = Command::new("python3")
            .arg(script)
            .args([header, "21"])
            .arg(table)
            .args(ranges(&src, &parts))
            .status();
        assert!(
            made.map_or(false, |status| status.success()),
            "hakmem: python3 could not write the table of size classes"
        );
    }

    let skip = |path: &Path| {
        let folder = path.parent().unwrap();
        let name = path.file_name().unwrap().to_str().unwrap();
        (folder.ends_with("core/heap/caches")
                && name != cache && (name != "slots" || cache == "list") && (name != "cpu" || !cpu_heaps))
            || (path.ends_with("src/hardened") && !feature("HARDENED"))
            || (!cpu_heaps && (path.ends_with("os/rseq.c") || path.ends_with("heap/cpu_heaps.c")))
            || path.ends_with("api/dlopen.c")
            || path.ends_with("api/sized.c")
            || path.ends_with("api/inline.c")
            || path.ends_with("api/mallocx.c")
            || path.ends_with("src/compat")
    };
    let mut files = vec![out.join("parts.c")];
    sources(&src, &skip, &mut files);
    let mut build = cc::Build::new();
    build.files(files).include(&out).include(&src);
    build.include(src.join("core/heap/caches").join(cache));
    build.include(src.join("hardened").join(if feature("HARDENED") { "on" } else { "off" }));
    build.std("gnu11").opt_level(3).pic(true).warnings(false);
    build.define("_GNU_SOURCE", None).define("NDEBUG", None);
    build.define("HAK_OVERRIDE", Some(if feature("OVERRIDE") { "1" } else { "0" }));
    for flag in [
        "-pthread", "-fvisibility=hidden", "-fno-builtin-malloc", "-fno-builtin-calloc", "-fno-builtin-realloc",
        "-fno-builtin-free", "-fno-semantic-interposition", "-fomit-frame-pointer",
    ] {
        build.flag_if_supported(flag);
    }
    // All of it, or C code that comes first in the link would take malloc from elsewhere.
    build.cargo_metadata(true).link_lib_modifier(if feature("OVERRIDE") { "+whole-archive" } else { "-whole-archive" });
    build.compile("hakmem_c");
}
