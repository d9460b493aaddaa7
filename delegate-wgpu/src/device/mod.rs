//! The device: the choice of the adapter, its options, its capabilities, and the work on it.
//!
//! State that belongs to a device and not to one delegate (compiled pipelines, uploaded weights) is kept by the folder
//! that defines it and stored in [`SharedDevice`], so that all delegates on one device share it.

pub(crate) mod adapter;
mod gpu;
pub(crate) mod named;
pub(crate) mod options;
mod scopes;
mod shared;
pub(crate) mod time;
mod timer;

use delegraph_core::Error;

pub(crate) use gpu::{DeviceCaps, Gpu, POLL_TIMEOUT};
pub(crate) use scopes::{Reports, checked, collect};
pub(crate) use shared::SharedDevice;
pub(crate) use timer::Timer;

/// The delegate's name in reports and messages.
pub(crate) const NAME: &str = "wgpu";

/// Returns an error of this delegate.
pub(crate) fn failed(message: impl Into<String>) -> Error {
    Error::delegate(NAME, message)
}
