//! Wakers that call a JavaScript function.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Wake, Waker};

use js_sys::Function;
use wasm_bindgen::JsValue;

thread_local! {
    /// Functions by the number of their waker: wakers may be sent between threads, functions may not.
    static FUNCTIONS: RefCell<HashMap<u32, Function>> = RefCell::new(HashMap::new());
}

struct Call(u32);

impl Wake for Call {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let function = FUNCTIONS.with_borrow_mut(|functions| functions.remove(&self.0));
        if let Some(function) = function {
            // The function resolves a promise, which does not throw.
            let _ = function.call0(&JsValue::UNDEFINED);
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        FUNCTIONS.with_borrow_mut(|functions| functions.remove(&self.0));
    }
}

/// Returns a waker that calls `function`, once.
pub(crate) fn waker(function: Function) -> Waker {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    FUNCTIONS.with_borrow_mut(|functions| functions.insert(number, function));
    Arc::new(Call(number)).into()
}
