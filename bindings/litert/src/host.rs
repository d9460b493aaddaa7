//! Identification of the calling runtime.
//!
//! The layout of the C structures is not guaranteed, and the structures have no version, so only tested runtimes are
//! accepted. A runtime is identified by the shared object that contains its functions: by the version that it exports,
//! or else by the metadata of the Python package that installed it.

use std::ffi::c_void;

use crate::raw::Result;

/// The tested runtimes: the name of each Python package, and its versions.
pub const KNOWN_HOSTS: &[(&str, &[&str])] = &[
    ("ai-edge-litert", &["1.0.1", "1.1.2", "1.2.0", "1.3.0", "1.4.0", "2.0.3", "2.1.6", "2.2.0", "2.3.0"]),
    ("tflite-runtime", &["2.14.0"]),
    ("tensorflow", &["2.21.0"]),
];

/// A runtime.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Host {
    /// The name of the Python package, in the form of [`KNOWN_HOSTS`].
    name: String,
    version: String,
}

impl std::fmt::Display for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.name, self.version)
    }
}

impl Host {
    fn is_known(&self) -> bool {
        KNOWN_HOSTS.iter().any(|(name, versions)| *name == self.name && versions.contains(&&*self.version))
    }
}

/// An accepted runtime.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Accepted {
    /// The runtime's name.
    pub(crate) name: String,
    /// Whether the runtime is newer than all known fields of the structures for params, so that all fields are present
    /// for every version of a node.
    pub(crate) all_fields: bool,
}

/// Checks that the runtime with these functions is a known one; `allow_unknown` also accepts others.
///
/// # Errors
/// The reason, and advice for the user.
pub(crate) fn check(functions: &[*const c_void], allow_unknown: bool) -> Result<Accepted> {
    let found = object_of_all(functions).and_then(|object| recognise(&object));
    let accept = |name, all_fields| Ok(Accepted { name, all_fields });
    match found {
        Ok(host) if host.is_known() => return accept(host.to_string(), host.name != "tflite-runtime"),
        Ok(host) if allow_unknown => return accept(format!("{host} (not tested)"), false),
        Err(reason) if allow_unknown => return accept(format!("an unknown runtime ({reason})"), false),
        _ => {}
    }
    let what = match found {
        Ok(host) => format!("the runtime is {host}, which this delegate was not tested with"),
        Err(reason) => format!("the runtime was not recognised: {reason}"),
    };
    let known = |(name, versions): &(&str, &[&str])| format!("{name} {}", versions.join(", "));
    let known: Vec<String> = KNOWN_HOSTS.iter().map(known).collect();
    Err(format!("{what}; known are {}; the option allow_unknown_host=1 accepts it", known.join("; ")))
}

/// A shared object in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Object {
    path: std::path::PathBuf,
    base: usize,
}

/// The object that contains all these functions.
fn object_of_all(functions: &[*const c_void]) -> Result<Object> {
    let mut objects = functions.iter().map(|&function| object(function));
    let first = objects.next().unwrap_or_else(|| Err("it has no functions".into()))?;
    for other in objects {
        let other = other?;
        if other.base != first.base {
            let (a, b) = (first.path.display(), other.path.display());
            return Err(format!("its functions are in {a} and in {b}"));
        }
    }
    Ok(first)
}

/// Returns true if both are in the same object, or if that is unknown.
pub(crate) fn same_object(a: *const c_void, b: *const c_void) -> bool {
    match (object(a), object(b)) {
        (Ok(a), Ok(b)) => a.base == b.base,
        _ => true,
    }
}

#[cfg(unix)]
pub(crate) fn object(function: *const c_void) -> Result<Object> {
    use std::ffi::{CStr, OsStr};
    use std::os::unix::ffi::OsStrExt;
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: any address is allowed; `info` is written on success, and all zero is a valid value of it.
    let (found, info) = unsafe { (libc::dladdr(function, info.as_mut_ptr()), info.assume_init()) };
    if found == 0 || info.dli_fname.is_null() {
        return Err(format!("{function:p} is not in a shared object"));
    }
    // SAFETY: the loader's name of an object ends with a zero byte.
    let path = unsafe { CStr::from_ptr(info.dli_fname) };
    Ok(Object { path: OsStr::from_bytes(path.to_bytes()).into(), base: info.dli_fbase.addr() })
}

#[cfg(not(unix))]
pub(crate) fn object(_: *const c_void) -> Result<Object> {
    Err("runtimes are recognised on Unix only".into())
}

fn recognise(object: &Object) -> Result<Host> {
    if let Some(version) = exported_version(object) {
        return Ok(Host { name: "tensorflow".into(), version });
    }
    packaged(&object.path)
}

/// The result of the object's own `TfLiteVersion`, if it exports this function.
#[cfg(unix)]
fn exported_version(object: &Object) -> Option<String> {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::CString::new(object.path.as_os_str().as_bytes()).ok()?;
    // SAFETY: with RTLD_NOLOAD nothing is loaded or run; the object is already loaded.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_LAZY) };
    if handle.is_null() {
        return None;
    }
    // SAFETY: a handle, and a text that ends with a zero byte.
    let symbol = unsafe { libc::dlsym(handle, c"TfLiteVersion".as_ptr()) };
    // A handle also finds functions of the object's dependencies, whose version would be wrong.
    let own = !symbol.is_null() && self::object(symbol).is_ok_and(|o| o.base == object.base);
    let version = own.then(|| {
        // SAFETY: a function of this name has no parameters and returns static text.
        let version: unsafe extern "C" fn() -> *const std::ffi::c_char =
            unsafe { std::mem::transmute(symbol) };
        // SAFETY: as above.
        unsafe { crate::raw::text(version()) }
    });
    // SAFETY: the handle from above; the runtime that loaded the object holds another handle.
    unsafe { libc::dlclose(handle) };
    version.filter(|version| !version.is_empty())
}

#[cfg(not(unix))]
fn exported_version(_: &Object) -> Option<String> {
    None
}

/// The Python package that installed the file at `path`: the neighbouring package whose record lists the file with its
/// size.
fn packaged(path: &std::path::Path) -> Result<Host> {
    let path = std::fs::canonicalize(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let size = std::fs::metadata(&path).map_err(|e| format!("{}: {e}", path.display()))?.len();
    for folder in path.ancestors().skip(1) {
        let Ok(entries) = std::fs::read_dir(folder) else { continue };
        let infos =
            entries.flatten().map(|e| e.path()).filter(|p| p.extension().is_some_and(|e| e == "dist-info"));
        let inside = path.strip_prefix(folder).unwrap_or(&path).to_string_lossy().replace('\\', "/");
        let mut any = false;
        for info in infos {
            any = true;
            let Ok(record) = std::fs::read_to_string(info.join("RECORD")) else { continue };
            let line =
                record.lines().find(|line| line.strip_prefix(&*inside).is_some_and(|l| l.starts_with(',')));
            let recorded = line.and_then(|line| line.rsplit(',').next()?.parse::<u64>().ok());
            if recorded == Some(size) {
                return named(&info);
            }
        }
        if any {
            break;
        }
    }
    Err(format!("{} belongs to no Python package and exports no version", path.display()))
}

/// The package of the folder `NAME-VERSION.dist-info`.
fn named(info: &std::path::Path) -> Result<Host> {
    let stem = info.file_stem().unwrap_or_default().to_string_lossy();
    let (name, version) = stem.rsplit_once('-').ok_or_else(|| format!("{stem} names no version"))?;
    let name = name.to_lowercase().replace(['_', '.'], "-");
    // Builds of the same sources under several names.
    let name = name.strip_suffix("-nightly").map_or(name.clone(), str::to_owned);
    let name = if name.starts_with("tensorflow") { "tensorflow".into() } else { name };
    Ok(Host { name, version: version.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_found_by_their_record() {
        let folder = std::env::temp_dir().join(format!("delegraph-litert-{}", std::process::id()));
        let (package, info) = (folder.join("ai_edge_litert"), folder.join("ai_edge_litert-2.3.0.dist-info"));
        std::fs::create_dir_all(&package).unwrap();
        std::fs::create_dir_all(&info).unwrap();
        let library = package.join("libruntime.so");
        std::fs::write(&library, b"12345").unwrap();
        let record = |size: &str| {
            let text =
                format!("ai_edge_litert/other.so,sha256=x,5\nai_edge_litert/libruntime.so,sha256=y,{size}\n");
            std::fs::write(info.join("RECORD"), text).unwrap();
            packaged(&library)
        };
        let host = record("5").unwrap();
        assert_eq!(host.to_string(), "ai-edge-litert 2.3.0");
        assert!(host.is_known());
        // A file that differs from the installed one.
        assert!(record("6").unwrap_err().contains("belongs to no Python package"));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn names_are_normalised() {
        let name = |folder: &str| named(std::path::Path::new(folder)).unwrap();
        assert!(name("/x/tflite_runtime-2.14.0.dist-info").is_known());
        assert_eq!(name("/x/tensorflow_cpu-1.0.0.dist-info").to_string(), "tensorflow 1.0.0");
        assert!(!name("/x/ai_edge_litert-0.1.0.dist-info").is_known());
        assert_eq!(
            name("ai_edge_litert_nightly-2.4.0.dev1.dist-info").to_string(),
            "ai-edge-litert 2.4.0.dev1"
        );
    }

    #[cfg(unix)]
    #[test]
    fn a_program_without_a_version_is_unknown() {
        let function = packages_are_found_by_their_record as fn() as *const c_void;
        let error = check(&[function], false).unwrap_err();
        assert!(error.contains("not recognised") && error.contains("allow_unknown_host=1"), "{error}");
        assert!(error.contains("ai-edge-litert 1.0.1,"), "{error}");
        assert!(check(&[function], true).unwrap().name.contains("unknown runtime"));
        let elsewhere = libc::getpid as *const c_void;
        assert!(check(&[function, elsewhere], false).unwrap_err().contains("its functions are in"));
        assert!(!same_object(function, elsewhere));
    }
}
