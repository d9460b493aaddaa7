//! Fusions behind the functions of the table, for authors in Rust. Used by `export_fusions!` of `delegraph-interpreter`,
//! which has the traits of fusions.

use std::ffi::{CString, c_void};

use delegraph_core::{Error, Result};

use super::super::abi::*;
use super::super::fusions_abi::*;
use super::super::raw::{read, slice, text};
use super::super::{FusionKind, FusionResult, LibraryFusion};
use super::contain::{contain, contain_quietly, failed, report, status};
use super::host::Host;
use super::ops::OpenFunction;

/// The fusions of a library.
pub trait Fusions {
    /// Returns the fusions, in the order of their indices.
    fn list(&self) -> Vec<LibraryFusion>;

    /// Rewrites the model in the file `model` with the fusion of this index.
    ///
    /// # Errors
    /// The errors of the fusion.
    fn rewrite(&self, fusion: usize, model: &[u8]) -> Result<FusionResult>;
}

/// Returns the table of a library with this `open` function.
pub const fn table(open: OpenFunction) -> DelegraphFusionLibrary {
    DelegraphFusionLibrary {
        abi_version: DELEGRAPH_ABI_VERSION,
        size: size_of::<DelegraphFusionLibrary>(),
        open: Some(open),
        close: Some(close),
        fusions: Some(fusions),
        rewrite: Some(rewrite),
    }
}

/// The fusions of a library, to which the application holds a pointer.
struct Exported {
    source: Box<dyn Fusions>,
    list: Vec<DelegraphFusion>,
    /// The names to which `list` points.
    _names: Vec<CString>,
}

/// Implements the `open` function of a table; `make` creates the fusions.
///
/// # Safety
/// The pointers follow the interface.
pub unsafe fn open(
    host: *const DelegraphHost,
    library: *mut *mut c_void,
    error: *mut DelegraphError,
    make: impl FnOnce() -> Box<dyn Fusions>,
) -> i32 {
    let opened = contain(|| {
        // SAFETY: this function's condition.
        unsafe { Host::new(host)? }.take_log();
        let exported = Exported::new(make())?;
        if library.is_null() {
            return Err(Error::State("`library` is null".into()));
        }
        // SAFETY: this function's condition; not null.
        unsafe { library.write(Box::into_raw(Box::new(exported)).cast()) };
        Ok(())
    });
    // SAFETY: this function's condition.
    unsafe {
        match opened {
            Ok(Ok(())) => DELEGRAPH_OK,
            Ok(Err(e)) => report(error, &e),
            Err(panic) => failed(error, DELEGRAPH_PANICKED, &panic),
        }
    }
}

impl Exported {
    fn new(source: Box<dyn Fusions>) -> Result<Self> {
        let (mut list, mut names) = (Vec::new(), Vec::<CString>::new());
        for fusion in source.list() {
            let name = CString::new(fusion.name.as_str()).map_err(|_| {
                Error::State(format!("\"{}\" contains a zero byte", fusion.name.escape_debug()))
            })?;
            let flags = match fusion.kind {
                FusionKind::Composite => DELEGRAPH_FUSION_COMPOSITE,
                FusionKind::Pattern => 0,
            };
            list.push(DelegraphFusion { name: name.as_ptr(), flags, tolerance: fusion.tolerance });
            names.push(name);
        }
        Ok(Exported { source, list, _names: names })
    }

    /// # Safety
    /// `result` follows the interface.
    unsafe fn rewrite(
        &self,
        fusion: usize,
        model: &[u8],
        result: *const DelegraphFusionResult,
    ) -> Result<()> {
        // SAFETY: this function's condition.
        let result = unsafe { read(result) };
        let result =
            result.ok_or_else(|| Error::State("`result` is null, misaligned or too small".into()))?;
        let FusionResult { model, changes, unchanged } = self.source.rewrite(fusion, model)?;
        // SAFETY: functions of the application, with bytes and text valid during the calls.
        unsafe {
            if let (Some(set_model), Some(model)) = (result.set_model, &model) {
                set_model(result.context, model.as_ptr(), model.len());
            }
            for change in result.add_change.iter().flat_map(|add| changes.iter().map(move |c| (add, c))) {
                let (add, change) = change;
                let (from, to) = (change.from.join("\n"), change.to.join("\n"));
                add(result.context, change.subgraph, text(&change.tensor), text(&from), text(&to));
            }
            if let Some(add) = result.add_unchanged {
                for kept in &unchanged {
                    add(result.context, kept.subgraph, text(&kept.tensor), text(&kept.reason));
                }
            }
        }
        Ok(())
    }
}

unsafe extern "C" fn close(library: *mut c_void) {
    // SAFETY: `open` made it, and it is closed once.
    contain_quietly(|| drop(unsafe { Box::from_raw(library.cast::<Exported>()) }));
}

unsafe extern "C" fn fusions(library: *mut c_void, count: *mut usize) -> *const DelegraphFusion {
    // SAFETY: `open` made it, and `count` is valid for a write.
    unsafe {
        let exported = &*library.cast::<Exported>();
        count.write(exported.list.len());
        exported.list.as_ptr()
    }
}

unsafe extern "C" fn rewrite(
    library: *mut c_void,
    fusion: usize,
    data: *const u8,
    len: usize,
    result: *const DelegraphFusionResult,
    error: *mut DelegraphError,
) -> i32 {
    // SAFETY: `open` made the library, which is not changed; the other pointers follow the interface.
    unsafe {
        status(error, || {
            let model = slice(data, len).ok_or_else(|| Error::State("there is no model".into()))?;
            (*library.cast::<Exported>()).rewrite(fusion, model, result)
        })
    }
}
