//! Code that the C APIs share: handles of objects ([`handle`]), containment of panics and checks of pointers
//! ([`contain`]), delegates by name ([`delegates`]), and shared kernels of interpreters ([`resolvers`]).

pub mod contain;
pub mod delegates;
#[cfg(feature = "wgpu")]
mod gpu;
pub mod handle;
pub mod resolvers;
