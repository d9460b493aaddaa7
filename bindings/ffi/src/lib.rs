//! What the C APIs share: objects behind numbers ([`handle`]), panics that do not leave a library and pointers that are
//! checked ([`contain`]), delegates by name ([`delegates`]), and kernels of all interpreters ([`resolvers`]).

pub mod contain;
pub mod delegates;
#[cfg(feature = "wgpu")]
mod gpu;
pub mod handle;
pub mod resolvers;
