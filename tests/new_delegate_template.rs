//! The tests of the crate that `delegraph new-delegate` makes, on its code: compiled with this workspace, they need no
//! other build of the interpreter and of the conformance suite. `new_delegate_conformance.rs` is the other test of the
//! crate, and `new_delegate.rs` builds its library.

#![allow(clippy::expect_used, clippy::unwrap_used, unreachable_pub, reason = "the code of another crate")]

// The crate's tests import the delegate from `the_delegate`.
extern crate self as the_delegate;

#[rustfmt::skip] // in the style of new crates
#[path = "../src/cli/new_delegate/template/delegate.rs.in"]
mod delegate;
#[rustfmt::skip] // in the style of new crates
#[path = "../src/cli/new_delegate/template/lib.rs.in"]
mod template;

pub use template::MyDelegate;
