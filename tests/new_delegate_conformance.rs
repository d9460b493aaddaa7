//! The conformance suite of the crate that `delegraph new-delegate` makes, as in its `tests/conformance.rs`.

#![allow(unreachable_pub, reason = "the code of another crate")]

#[rustfmt::skip] // in the style of new crates
#[path = "../src/cli/new_delegate/template/lib.rs.in"]
mod template;

use delegraph::delegate_api::Simple;
use template::MyDelegate;

delegraph_conformance::main!(|| Simple(MyDelegate::new()));
