//! The WebAssembly module of the npm package `delegraph`.
//!
//! The package's JavaScript (`js/`) is its interface, and calls this module. Tensors cross the boundary as bytes in the
//! layout of the format, descriptions and reports as JSON, and errors as JavaScript objects with a code. Nothing here
//! blocks: a run is polled, and wakes the page when it can continue.
//!
//! A panic ends the module. Its message is kept ([`panic_message`]), and the package replaces the module.

mod describe;
mod error;
#[cfg(all(feature = "wgpu", target_arch = "wasm32"))]
mod gpu;
#[cfg(all(feature = "wgpu", target_arch = "wasm32"))]
mod inputs;
mod model;
mod profile;
mod report;
mod wake;

use std::cell::RefCell;

use wasm_bindgen::prelude::*;

thread_local! {
    static PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Installs the panic hook that keeps the message for [`panic_message`]. Called when the module is instantiated.
#[wasm_bindgen(start)]
pub fn start() {
    std::panic::set_hook(Box::new(|info| {
        let text = info.to_string();
        PANIC.with(|message| {
            if let Ok(mut message) = message.try_borrow_mut() {
                *message = text;
            }
        });
    }));
}

/// Returns the message of the panic that ended the module.
#[wasm_bindgen(js_name = panicMessage)]
pub fn panic_message() -> String {
    PANIC.with(|message| message.try_borrow().map(|text| text.clone()).unwrap_or_default())
}

/// Returns the version of the package.
#[wasm_bindgen]
pub fn version() -> String {
    env!("CARGO_PKG_VERSION").into()
}
