//! The file that stores compiled pipelines between processes.
//!
//! The contents belong to the driver, which identifies pipelines by their shaders. Drivers do not validate them, so
//! the file's header names the adapter and the driver, and has a hash of the contents. The file is written under
//! another name and then renamed, so that readers see either the old contents or the new ones.

use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::device::options::PipelineCache;

const MAGIC: &[u8; 24] = b"delegraph pipelines v1\r\n";
const HASH: usize = blake3::OUT_LEN;
/// Bytes before the contents: magic, hash of adapter and driver, hash of the contents.
const HEADER: usize = MAGIC.len() + 2 * HASH;
/// The size above which a file is neither read nor written: it has accumulated pipelines that are no longer used.
const MAX_FILE_BYTES: u64 = 256 << 20;

/// The file of one adapter with one driver.
pub(crate) struct CacheFile {
    path: PathBuf,
    owner: blake3::Hash,
    /// Whether a warning was logged. Further warnings are suppressed.
    warned: AtomicBool,
}

impl CacheFile {
    /// Returns the file for `info`'s adapter in the folder that `choice` names; `None` for [`PipelineCache::Off`] or
    /// without a folder.
    pub(crate) fn new(choice: &PipelineCache, info: &wgpu::AdapterInfo) -> Option<Self> {
        let folder = match choice {
            PipelineCache::User => user_folder()?,
            PipelineCache::Folder(folder) => folder.clone(),
            PipelineCache::Off => return None,
        };
        let wgpu::AdapterInfo { name, vendor, device, driver, driver_info, backend, .. } = info;
        let (architecture, version) = (std::env::consts::ARCH, env!("CARGO_PKG_VERSION"));
        let owner =
            format!("{version}|{architecture}|{backend}|{vendor}|{device}|{name}|{driver}|{driver_info}");
        let owner = blake3::hash(owner.as_bytes());
        let path = folder.join(format!("{}.pipelines", &owner.to_hex()[..32]));
        Some(CacheFile { path, owner, warned: AtomicBool::new(false) })
    }

    /// Returns the saved contents; `None` if there is no file or, with a warning, where it cannot be used.
    pub(crate) fn load(&self) -> Option<Vec<u8>> {
        match self.read() {
            Ok(data) => data,
            Err(e) => {
                self.warn(&format!("cannot be used, so shaders are compiled again: {e}"));
                None
            }
        }
    }

    /// Saves `data`; a failure is a warning.
    pub(crate) fn save(&self, data: &[u8]) {
        if let Err(e) = self.write(data) {
            self.warn(&format!("cannot be written, so the next process compiles shaders again: {e}"));
        }
    }

    fn read(&self) -> io::Result<Option<Vec<u8>>> {
        let file = match fs::File::open(&self.path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        let mut bytes = Vec::new();
        file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
        let wrong = |what| Err(io::Error::new(io::ErrorKind::InvalidData, what));
        if bytes.len() as u64 > MAX_FILE_BYTES {
            return wrong("it is larger than 256 MiB");
        }
        let Some((header, data)) = bytes.split_at_checked(HEADER) else {
            return wrong("it is shorter than its header");
        };
        let (magic, hashes) = header.split_at(MAGIC.len());
        let (owner, hash) = hashes.split_at(HASH);
        if magic != MAGIC {
            return wrong("it is not a file of pipelines");
        }
        if owner != self.owner.as_bytes() {
            return wrong("it is for another adapter or driver");
        }
        if hash != blake3::hash(data).as_bytes() {
            return wrong("its contents do not match their hash");
        }
        bytes.drain(..HEADER);
        Ok(Some(bytes))
    }

    fn write(&self, data: &[u8]) -> io::Result<()> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        if data.len() as u64 > MAX_FILE_BYTES - HEADER as u64 {
            // The next process starts without a file.
            return fs::remove_file(&self.path);
        }
        let folder = self.path.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(folder)?;
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let temporary = self.path.with_extension(format!("{}-{number}.tmp", std::process::id()));
        let written = fs::File::create_new(&temporary).and_then(|mut file| {
            file.write_all(MAGIC)?;
            file.write_all(self.owner.as_bytes())?;
            file.write_all(blake3::hash(data).as_bytes())?;
            file.write_all(data)
        });
        let written = written.and_then(|()| fs::rename(&temporary, &self.path));
        if written.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        written
    }

    fn warn(&self, what: &str) {
        if !self.warned.swap(true, Ordering::Relaxed) {
            log::warn!("the cache of compiled shaders {} {what}", self.path.display());
        }
    }
}

/// `$DELEGRAPH_CACHE/pipelines`, or `delegraph/pipelines` in the system's cache folder of the user.
fn user_folder() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let system = || {
        if cfg!(windows) {
            return set("LOCALAPPDATA");
        }
        let home = if cfg!(target_vendor = "apple") { "Library/Caches" } else { ".cache" };
        set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(home)))
    };
    let ours = set("DELEGRAPH_CACHE").or_else(|| Some(system()?.join("delegraph")));
    Some(ours?.join("pipelines"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(driver: &str) -> wgpu::AdapterInfo {
        let mut info = wgpu::AdapterInfo::new(wgpu::DeviceType::Cpu, wgpu::Backend::Vulkan);
        info.driver_info = driver.into();
        info
    }

    fn file(folder: &Path, driver: &str) -> CacheFile {
        CacheFile::new(&PipelineCache::Folder(folder.to_owned()), &info(driver)).unwrap()
    }

    #[track_caller]
    fn check_warning(file: &CacheFile, warned: bool) {
        assert_eq!(file.warned.load(Ordering::Relaxed), warned);
    }

    #[test]
    fn saved_data_are_loaded_by_the_same_driver_only() {
        let folder = tempfile::tempdir().unwrap();
        let (one, other) = (file(folder.path(), "1.0"), file(folder.path(), "1.1"));
        assert_eq!(one.load(), None);
        one.save(b"machine code");
        assert_eq!(one.load().as_deref(), Some(&b"machine code"[..]));
        assert_eq!(other.load(), None);
        one.save(b"more of it");
        assert_eq!(file(folder.path(), "1.0").load().as_deref(), Some(&b"more of it"[..]));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing temporary is left");
        check_warning(&one, false);
        check_warning(&other, false);
        assert!(CacheFile::new(&PipelineCache::Off, &info("1.0")).is_none());
    }

    #[test]
    fn broken_and_foreign_files_are_a_warning() {
        let folder = tempfile::tempdir().unwrap();
        let (one, other) = (file(folder.path(), "1.0"), file(folder.path(), "1.1"));
        one.save(b"machine code");
        let good = fs::read(&one.path).unwrap();
        // The other driver's file under this driver's name.
        fs::copy(&one.path, &other.path).unwrap();
        assert_eq!(other.load(), None);
        check_warning(&other, true);
        for at in 0..good.len() {
            let one = file(folder.path(), "1.0");
            let mut bad = good.clone();
            bad[at] ^= 1;
            fs::write(&one.path, &bad).unwrap();
            assert_eq!(one.load(), None, "byte {at}");
            check_warning(&one, true);
            fs::write(&one.path, &good[..at]).unwrap();
            assert_eq!(one.load(), None, "cut at {at}");
        }
        one.save(b"machine code");
        assert_eq!(one.load().as_deref(), Some(&b"machine code"[..]));
    }

    #[test]
    fn an_invalid_folder_is_a_warning() {
        let folder = tempfile::tempdir().unwrap();
        let no_folder = folder.path().join("a file");
        fs::write(&no_folder, "").unwrap();
        let one = file(&no_folder, "1.0");
        assert_eq!(one.load(), None);
        one.save(b"machine code");
        check_warning(&one, true);
    }
}
